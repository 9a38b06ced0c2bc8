"""The demo, as a person runs it, on the data of the package: a verified release, and a page of what it is worth."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from party.commands.group import run_command
from party.demo.demo import DEMO_MARK, LocalConsortium, _own_folder
from party.demo.demo_data import HOSPITALS, demo_data, demo_study
from party.demo.figures import gain, in_words, verdict_in_words
from protocols.crypto.identity import fingerprint, phrase, private_key_from_pem
from protocols.errors import EngineFailed
from protocols.installing import install
from tests.harness.local_consortium import ConsortiumHere
from tests.harness.refusals import refused_for


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
def test_what_people_type_is_what_the_page_on_running_a_consortium_says(demo):
    page = (Path(__file__).parents[4] / "docs/how-to/run-a-consortium.md").read_text()
    operator, each, hospital = map(int, re.search(
        r"types (\d+) commands, and (\d+) more for each hospital; a hospital types (\d+)", page).groups())  # fmt: skip
    typed = [program for program, *_ in Recorded.called]
    # A server is a process of its own in this test, and a command for a person.
    assert typed.count("coordinator") + 1 == operator + each * len(HOSPITALS)
    assert typed.count("party") + len(HOSPITALS) == hospital * len(HOSPITALS)


@pytest.mark.slow
def test_it_ends_with_one_sentence_of_verdict_one_page_and_a_file_of_commands(demo):
    figures, folder, said = demo
    found = figures["gain"]
    assert found["low"] < found["mean"] < found["high"]
    assert found["mean"] == pytest.approx(figures["student_accuracy"] - np.mean(list(figures["alone"].values())))
    ends = " ".join(in_words(figures).split())
    assert f"{100 * found['low']:+.1f} to {100 * found['high']:+.1f}" in ends
    assert os.path.relpath(folder / "demo.html") in ends
    assert os.path.relpath(folder / "commands.txt") in ends
    page = (folder / "demo.html").read_text()
    for name, accuracy in figures["alone"].items():
        assert f"({name}) alone" in page
        assert f"{100 * accuracy:.1f}\xa0%" in page
    for link in re.findall(r'href="([^"]+)"', page):
        assert (folder / link).is_file()
    # Commands are in their file, and not on the terminal.
    commands = (folder / "commands.txt").read_text()
    assert not any("conclave-" in line for line in said)
    assert "conclave-coordinator serve" in commands


def test_a_gain_is_paired_and_the_verdict_is_good_only_where_its_whole_interval_is():
    rng = np.random.default_rng(0)
    alone = rng.random((4, 200)) < 0.7
    draws = [gain(rng.random(200) < share, alone) for share in (0.95, 0.7, 0.4)]
    # By hand, from the definition: the standard error of one mean of 200 differences.
    together = rng.random(200) < 0.8
    differences = [float(one) - np.mean(each) for one, each in zip(together, alone.T, strict=True)]
    found, error = gain(together, alone), np.std(differences, ddof=1) / np.sqrt(200)
    assert found["low"] == pytest.approx(np.mean(differences) - 1.96 * error, abs=1e-4)
    shown = {"epsilon": 1.0, "hospitals": 4, "student_accuracy": 0.8, "test_records": 200}
    tones = [verdict_in_words({**shown, "gain": each}) for each in draws]
    assert [tone for tone, _ in tones] == ["good", "warn", "warn"]
    assert [each["high"] < 0 for each in draws] == [False, False, True]


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
        with refused_for("already_running"), _own_folder(tmp_path / "demo", said.append):
            pass
    assert said == []
    with _own_folder(tmp_path / "demo", said.append):
        assert [path.name for path in (tmp_path / "demo").iterdir()] == [DEMO_MARK]
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
