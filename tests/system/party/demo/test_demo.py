"""The demo, as a person runs it, on embedded data: a verified release, and words that say what it does not show."""

import json

import pytest

from party.commands.group import run_command
from party.demo.demo_data import HOSPITALS


@pytest.mark.slow
def test_the_demo_goes_from_nothing_to_a_verified_release(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("CONCLAVE_DATA", raising=False)
    assert run_command(["demo", "--out", str(tmp_path / "demo"), "--json"]) == 0
    out, err = capsys.readouterr()
    figures = json.loads(out)
    assert figures["hospitals"] == len(HOSPITALS)
    assert 10 < figures["labels_released"] <= figures["asked"]
    assert figures["epsilon"] == 8.0
    assert figures["labels_if_a_whole_hospital_were_the_unit"] == 0
    assert figures["student_accuracy"] > figures["commonest_class"]
    assert (tmp_path / "demo" / "release" / "privacy.html").is_file()
    assert "conclave-coordinator verify" in err


def test_a_folder_that_is_in_use_is_refused(tmp_path, capsys):
    (tmp_path / "something").touch()
    assert run_command(["demo", "--out", str(tmp_path)]) == 3
    assert "allowed: a new folder" in capsys.readouterr().err
