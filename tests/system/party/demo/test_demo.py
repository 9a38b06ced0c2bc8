"""The demo, as a person runs it, on embedded data: a verified release, and a table of what it is worth."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest

from party.commands.group import run_command
from party.demo.demo import MARK, LocalConsortium, _own_folder
from party.demo.demo_data import HOSPITALS, demo_data, demo_study
from party.demo.figures import in_words
from protocols.crypto.identity import fingerprint, phrase, private_key_from_pem
from protocols.errors import EngineFailed, Refused
from protocols.installing import install
from tests.harness.local_consortium import ConsortiumHere


class Recorded(ConsortiumHere):
    """Keeps what was typed at each program."""

    called: ClassVar[list[tuple[str, ...]]] = []

    def call(self, program, home, *arguments, **more):
        self.called.append((program, *arguments))
        return super().call(program, home, *arguments, **more)


@pytest.fixture(scope="module")
def demo(tmp_path_factory, forked):
    """The figures of a demo whose servers are processes, and whose commands are called here; its folder."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("party.demo.demo.LocalConsortium", Recorded)
        from party.demo.demo import run_demo

        said = []
        figures = run_demo(folder / "demo", data_dir=None, say=said.append)
    return figures, folder / "demo", said


@pytest.mark.slow
def test_the_demo_goes_from_nothing_to_a_verified_release_of_record_votes(demo):
    figures, folder, said = demo
    assert figures["hospitals"] == len(HOSPITALS)
    assert figures["votes_by"] == "record"
    assert figures["epsilon"] == 1.0
    assert figures["labels_released"] == figures["asked"] == figures["queries"]
    assert figures["student_accuracy"] > figures["commonest_class"]
    for page in figures["pages"]:
        assert (folder / "release" / page).is_file()
    verified = [number for number, line in enumerate(said) if "verified" in line]
    assert verified == [len(said) - 1]  # it is said when it is known
    statement = json.loads((folder / "release" / "privacy.json").read_text())
    assert statement["records"]["population"] == sum(figures["records"].values())
    for spent in figures["budgets"].values():
        (seat,) = spent["seats"]
        assert seat["epsilon_used"] == pytest.approx(1.0, rel=1e-3)
        assert seat["answers_left"] == 0


@pytest.mark.slow
def test_fingerprints_come_from_each_hospital_s_own_terminal(demo):
    assert not {("coordinator", "requests"), ("coordinator", "status")} & {each[:2] for each in Recorded.called}
    for name in HOSPITALS:
        words = phrase(fingerprint(private_key_from_pem((demo[1] / name / "key.pem").read_bytes()).public_key()))
        assert ("coordinator", "approve", name, "--fingerprint", words) in Recorded.called


@pytest.mark.slow
def test_it_ends_with_each_hospital_alone_all_together_and_pooled_on_the_same_records_and_names_its_pages(demo):
    figures, _, _ = demo
    said = in_words(figures)
    table = said[said.index("Accuracy on the same") :].split("\n\n")[0].splitlines()
    assert table[0] == f"Accuracy on the same {figures['test_records']} test records"
    rows = [re.fullmatch(r"  (.+?)  +(\d\.\d{3})", line).groups() for line in table[1:]]
    assert [what for what, _ in rows] == [
        *(f"{name} alone" for name in HOSPITALS),
        "together, with privacy (epsilon 1)",
        "all records pooled, without privacy",
        "always the commonest class",
    ]
    assert rows[4][1] == f"{figures['student_accuracy']:.3f}"
    assert "Each record's data are used once" in said
    for page in figures["pages"]:
        assert os.path.relpath(page) in said
    assert "made-up hospitals" in said
    assert "cleveland" not in said


def test_teachers_are_shown_with_what_four_hospitals_cannot_achieve():
    figures = {
        "votes_by": "teacher", "data": "d", "hospitals": 4, "teachers_per_hospital": 12, "records": {"a": 1},
        "labels_released": 9, "asked": 30, "test_records": 5, "student_accuracy": None, "alone": {"a": 0.5},
        "pooled": 0.75, "commonest_class": 0.5, "epsilon": 8.0, "delta": 1e-5, "unit": "record",
        "epsilon_of_a_patient_at_all_hospitals": None, "confidentiality": "clear", "seconds": 1.0, "pages": [],
        "labels_if_a_whole_hospital_were_the_unit": 0,
    }  # fmt: skip
    said = in_words(figures)
    assert "9 labels released of 30 queries asked" in said
    assert "onnxruntime is not installed" in said
    assert "a guarantee for a whole hospital (0 labels at this budget)" in said


def test_a_folder_that_is_in_use_is_refused(tmp_path, capsys):
    (tmp_path / "something").touch()
    assert run_command(["demo", "--out", str(tmp_path)]) == 3
    assert "allowed: a new folder" in capsys.readouterr().err


def test_an_earlier_demo_is_replaced_in_place_unless_it_still_runs(tmp_path):
    said = []
    with _own_folder(tmp_path / "demo", said.append):
        (tmp_path / "demo" / "centre").mkdir()
        (tmp_path / "demo" / "centre" / "key.pem").touch()
        (tmp_path / "demo" / "pool.npy").touch()
        with pytest.raises(Refused, match="another demo runs"), _own_folder(tmp_path / "demo", said.append):
            pass
    assert said == []
    with _own_folder(tmp_path / "demo", said.append):
        assert [path.name for path in (tmp_path / "demo").iterdir()] == [MARK]
    assert len(said) == 1


@pytest.mark.parametrize("ends", ["a server ends", "the time is over"])
def test_a_step_that_cannot_end_is_one_message_and_not_a_traceback(tmp_path, monkeypatch, ends):
    data = demo_data(None)
    consortium = LocalConsortium(tmp_path, data, demo_study(data), say=lambda line: None)
    monkeypatch.setattr("party.demo.demo._LOOK_S", 0.05)
    if ends == "a server ends":
        consortium.processes["centre"] = subprocess.Popen([sys.executable, "-c", "raise SystemExit(6)"])
        expected = "centre ended with exit code 6.*centre.log.*so conclave-http.server 0 was ended"
    else:
        monkeypatch.setattr("party.demo.demo._STEP_S", 0.0)
        expected = "was ended after 0 s; is this machine very busy"
    with pytest.raises(EngineFailed, match=expected):
        consortium.call("http.server", None, "0")
    consortium.stop()


def test_what_is_not_installed_is_said_before_anything_is_made(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("party.demo.demo.find_spec", lambda name: None if name in ("jinja2", "onnxruntime") else name)
    assert run_command(["demo", "--out", str(tmp_path / "demo")]) == 3
    said = capsys.readouterr().err
    assert f"missing: jinja2, onnxruntime; {install('party', 'coordinator', 'sklearn')}" in said
    assert not (tmp_path / "demo").exists()


def test_the_four_hospitals_of_the_heart_disease_data_keep_their_names():
    data = demo_data(Path(os.environ["CONCLAVE_DATA"])) if "CONCLAVE_DATA" in os.environ else None
    if data is not None:
        assert data.hospitals == ("cleveland", "hungarian", "switzerland", "va")
    assert demo_data(None).hospitals == HOSPITALS
    assert not {"cleveland", "va"} & set(HOSPITALS)
