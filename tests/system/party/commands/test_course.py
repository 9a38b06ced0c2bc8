"""A hospital from its invitation to a release, through its own commands, with a node in a process of its own."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest

from party.budget.spending import spending
from party.commands.group import run_command
from party.commands.homes import enrol_home
from party.live import last_audit
from protocols.crypto.identity import private_key_from_pem, request_from_pem, to_pem
from protocols.errors import Refused, Unreachable
from protocols.release.labels import labels_csv
from protocols.release.manifest import write_manifest
from protocols.wire.enrolment import Enrolled
from tests.harness.clocks import wait_until
from tests.harness.consortium import Consortium
from tests.harness.homes import FEATURES, make_member, study_file, write_invitation
from tests.harness.studies import NOW, deployed_study


def tabled_study(parties=1, **more):
    study = deployed_study(parties, **more)
    return replace(study, terms=replace(study.terms, features=FEATURES))


@pytest.fixture
def consortium(tmp_path):
    with Consortium(tabled_study(), tmp_path) as made:
        yield made


def sign_release(folder, consortium, labels):
    """Labels, manifest and signature as a coordinator writes them."""
    (folder / "labels.csv").write_text(labels_csv(labels, np.full(len(labels), -1)))
    (folder / "coordinator.pem").write_bytes(to_pem(consortium.certificate))
    write_manifest(folder, study=consortium.study.digest, created=NOW, key=consortium.key)


def start(home):
    return subprocess.Popen(
        [sys.executable, "-m", "party", "run", "--home", str(home.path)], stderr=subprocess.PIPE, text=True
    )


def stopped(process, number=signal.SIGTERM):
    process.send_signal(number)
    _, log = process.communicate(timeout=300)
    return process.returncode, [json.loads(line) for line in log.splitlines()]


def test_from_invitation_to_labels(tmp_path, consortium, capsys):
    home = make_member(tmp_path / "a", consortium)
    file = study_file(tmp_path, consortium.study)
    at = ["--home", str(home.path)]
    assert run_command(["data", "check", str(file), *at, "--json"]) == 0
    out = capsys.readouterr().out
    checked = json.loads(out[out.index("{") :])
    assert checked["records"] == 60
    assert checked["patients"] == 30
    assert sum(checked["records_per_teacher"]["hospital-0"]) == 60
    assert run_command(["approve", str(file), *at, "--yes", "--train"]) == 0
    said = capsys.readouterr().out
    assert said.endswith(f"next: conclave-party run --home {home.path}\n")
    for words in ("epsilon", "unit record", "replace-one", "Not covered", "100.0 %", "centre"):
        assert words in said
    assert run_command(["doctor", *at]) == 0
    node = start(home)
    try:
        assert not consortium.hub.wait_for(frozenset({"hospital-0"}), timeout_s=300)
        labelled = consortium.label()
    finally:
        code, events = stopped(node)
    assert code == 0
    happened = [line["event"] for line in events]
    assert happened.index("teachers_ready") < happened.index("ready") < happened.index("connected")
    assert (labelled.labels >= 0).sum() > 5
    assert labelled.ledger_differences == {}
    assert {"started", "connected", "teachers_started", "teachers_ended", "ended"} <= {each["event"] for each in events}
    capsys.readouterr()
    assert run_command(["budget", "show", *at, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["seats"][0]["answers_left"] == 0  # every question was asked
    assert 0 < shown["seats"][0]["epsilon_used"] <= shown["seats"][0]["epsilon_cap"]
    assert shown["lifetime"][0]["share_reserved"] == 1.0
    release = tmp_path / "release"
    release.mkdir()
    sign_release(release, consortium, labelled.labels)
    assert run_command(["verify", "--release", str(release), *at, "--json"]) == 0
    verified = json.loads(capsys.readouterr().out)
    assert verified["holds"]
    assert verified["seats"][0]["compared"] == (labelled.labels >= -1).sum()
    silent = int(np.flatnonzero(labelled.labels == -1)[0])
    forged = labelled.labels.copy()
    forged[silent] = 0
    sign_release(release, consortium, forged)
    assert last_audit(home).holds
    assert run_command(["verify", "test", "--release", str(release), *at]) == 8
    assert not last_audit(home).holds
    assert f"error [outcome_false]: query {silent}" in capsys.readouterr().err
    (release / "labels.csv").write_text("query,label\n")
    assert run_command(["verify", "--release", str(release), *at]) == 8
    assert "error [not_verified]" in capsys.readouterr().err
    assert run_command(["withdraw", "test", "--yes", *at, "--json"]) == 0
    ended = json.loads(capsys.readouterr().out)
    assert 0 < ended["share_reserved"]["record"] <= 1
    shown, there = spending(consortium.study, "hospital-0", labelled.spent[0]), ended["spent"]["hospital-0"]
    assert (there["epsilon_used"], there["epsilon_cap"]) == pytest.approx((shown.epsilon_used, shown.epsilon_cap))
    assert there["bound"] == "exactly"
    assert run_command(["approve", str(file), *at, "--yes"]) == 4
    assert "error [withdrawn]" in capsys.readouterr().err


@pytest.mark.usefixtures("forked")
def test_a_withdrawal_ends_answers_of_a_running_node(tmp_path, consortium, capsys):
    home = make_member(tmp_path / "a", consortium)
    file = study_file(tmp_path, consortium.study)
    at = ["--home", str(home.path)]
    assert run_command(["approve", str(file), *at, "--yes"]) == 0
    assert run_command(["train", "test", *at]) == 0
    node = start(home)
    try:
        assert not consortium.hub.wait_for(frozenset({"hospital-0"}), timeout_s=300)
        assert run_command(["withdraw", "test", "--yes", *at]) == 0
        labelled = consortium.label()
    finally:
        code, _ = stopped(node, signal.SIGINT)
    assert code == 130
    assert (labelled.labels < 0).all()
    capsys.readouterr()
    assert run_command(["budget", "show", *at, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["lifetime"][0]["share_reserved"] == 0


def test_of_two_homes_that_share_a_policy_the_one_that_approved_a_study_alone_withdraws_it(
    tmp_path, consortium, capsys
):
    first, second = make_member(tmp_path / "a", consortium), make_member(tmp_path / "b", consortium)
    toml = second.settings_file.read_text()
    second.settings_file.write_text(toml.replace('"policy.sqlite"', f'"{first.path / "policy.sqlite"}"'))
    file = study_file(tmp_path, consortium.study)
    assert run_command(["approve", str(file), "--home", str(first.path), "--yes"]) == 0
    there = ["--home", str(second.path)]
    for command, code in (
        (["approve", str(file), *there, "--yes"], "approved_elsewhere"),
        (["withdraw", str(file), *there], "approved_elsewhere"),  # refused before it asks
        (["train", str(file), *there], "not_approved"),
    ):
        capsys.readouterr()
        assert run_command(command) == 4
        assert f"error [{code}]" in capsys.readouterr().err
    assert not list((second.path / "studies").glob("*"))
    assert run_command(["budget", "show", *there, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["seats"] == []
    assert shown["lifetime"][0]["share_reserved"] == 1.0


def test_enrolling_waits_for_the_operator_and_takes_its_own_certificate_only(tmp_path, capsys):
    study = tabled_study()
    answers = [Enrolled(b"", "pending", "compare the fingerprint")]

    class Enrolling(Consortium):
        def start_hub(self, ledger="coordinator.sqlite"):
            super().start_hub(ledger)
            self.hub._enrol = lambda message: answers[0] if len(answers) == 1 else self.issue_for(message)

        def issue_for(self, message):
            key = request_from_pem(message.request).public_key()
            holder = type("Key", (), {"public_key": lambda _: key})()
            return Enrolled(to_pem(self.certify(holder, answers[1])), "", "")

    with Enrolling(study, tmp_path) as consortium:
        invitation = write_invitation(tmp_path / "invitation.toml", consortium)
        at = ["--home", str(tmp_path / "home")]
        assert run_command(["init", str(invitation), "--enrol", *at]) == 0
        said = capsys.readouterr().out
        assert "asked for a certificate" in said
        assert f"conclave-party data check --home {tmp_path / 'home'} STUDY.toml" in said
        (words,) = re.findall(r"in words +(\S+)", said)
        assert run_command(["enrol", *at]) == 4
        assert f"error [pending]: compare the fingerprint: {words}" in capsys.readouterr().err
        assert run_command(["enrol", *at, "--wait", "0.01"]) == 4
        assert (
            f"asking for up to 0.01 s, until the operator has approved these words: {words}" in capsys.readouterr().err
        )
        answers.append("hospital-7")
        assert run_command(["enrol", *at]) == 4
        assert "error [bad_certificate]" in capsys.readouterr().err
        assert not (tmp_path / "home" / "certificate.pem").exists()
        answers[1] = "hospital-0"
        assert run_command(["enrol", *at, "--wait", "5"]) == 0
        assert (tmp_path / "home" / "certificate.pem").exists()
        key = private_key_from_pem((tmp_path / "home" / "key.pem").read_bytes())
        assert (tmp_path / "home" / "key.pem").stat().st_mode & 0o777 == 0o600
        assert run_command(["init", str(invitation), *at]) == 0
        assert (
            private_key_from_pem((tmp_path / "home" / "key.pem").read_bytes()).private_numbers()
            == key.private_numbers()
        )
        capsys.readouterr()
        # Settings are not filled in yet: that is the next step, and not wrong.
        assert run_command(["doctor", *at]) == 0
        assert "data.name; data.loader; teachers.kind; [lifetime.record]" in capsys.readouterr().out


def test_a_node_without_a_certificate_asks_for_one_and_says_so_in_its_log(tmp_path, consortium, capsys, monkeypatch):
    home = make_member(tmp_path / "a", consortium)
    home.certificate.unlink()

    def refused(found, wait_s, *, say):
        say("asking: these-are-words")
        raise Refused("pending", "nobody approved")

    monkeypatch.setattr("party.commands.homes.enrol_home", refused)
    assert run_command(["run", "--home", str(home.path)]) == 4
    line, error, _ = capsys.readouterr().err.splitlines()
    assert json.loads(line)["event"] == "enrolling"
    assert json.loads(line)["reason"] == "asking: these-are-words"
    assert error.startswith("error [pending]: ")


def test_a_wait_for_the_certificate_outlives_a_lost_connection_and_without_a_wait_it_is_an_error(
    tmp_path, consortium, monkeypatch
):
    home, calls = make_member(tmp_path / "a", consortium), []

    def ask(message, **how):
        calls.append(message)
        if len(calls) < 3:
            raise Unreachable("centre does not answer")
        return Enrolled(b"", "revoked", "no longer")

    monkeypatch.setattr("party.connection.dialling.enrol", ask)
    monkeypatch.setattr("party.commands.homes._POLL_S", 0.0)
    with pytest.raises(Unreachable):
        enrol_home(home, 0.0, say=print)
    said = []
    with pytest.raises(Refused, match="no longer"):
        enrol_home(home, 60.0, say=said.append)
    assert len(calls) == 3
    assert len([each for each in said if "does not answer" in each]) == 1


def test_nobody_there_is_an_error_of_the_network(tmp_path, consortium, capsys):
    home = make_member(tmp_path / "a", consortium)
    consortium.hub.stop()
    at = ["--home", str(home.path)]
    assert run_command(["doctor", *at]) == 7
    assert "FAIL  TCP" in capsys.readouterr().out
    assert run_command(["enrol", *at]) == 7
    assert "error [unreachable]" in capsys.readouterr().err
    consortium.hub.stop = lambda: None


@pytest.mark.usefixtures("forked")
def test_a_node_that_is_killed_leaves_no_process_and_goes_on_when_started_again(tmp_path, consortium, capsys):
    home = make_member(tmp_path / "a", consortium)
    at = ["--home", str(home.path)]
    assert run_command(["approve", str(study_file(tmp_path, consortium.study)), *at, "--yes"]) == 0
    assert run_command(["train", "test", *at]) == 0
    node = start(home)
    assert not consortium.hub.wait_for(frozenset({"hospital-0"}), timeout_s=300)
    labelled = []
    labelling = threading.Thread(target=lambda: labelled.append(consortium.label()))
    labelling.start()
    child = next(event["process"] for event in map(json.loads, node.stderr) if event["event"] == "teachers_started")
    node.kill()
    node.communicate(timeout=300)
    again = start(home)
    try:
        labelling.join(300)
        wait_until(lambda: not alive(child))
    finally:
        code, _ = stopped(again)
    assert code == 0
    assert (labelled[0].labels >= 0).any()
    capsys.readouterr()
    assert run_command(["budget", "show", *at, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["seats"][0]
    assert 0 < shown["epsilon_used"] <= shown["epsilon_cap"]


def alive(process_id):
    try:
        with open(f"/proc/{process_id}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.usefixtures("forked")
def test_a_revoked_node_stops_with_a_reason_and_a_next_step(tmp_path, consortium):
    home = make_member(tmp_path / "a", consortium)
    assert run_command(["approve", str(study_file(tmp_path, consortium.study)), "--home", str(home.path), "--yes"]) == 0
    consortium.denied["hospital-0"] = "left"
    node = start(home)
    _, said = node.communicate(timeout=300)
    assert node.returncode == 4
    assert "error [revoked]: the party 'hospital-0' is denied: left" in said
    assert "next: ask the consortium's operator why" in said


@pytest.mark.usefixtures("forked")
def test_teachers_are_loaded_with_run_and_end_with_it_in_the_middle_of_a_prediction(tmp_path):
    study = tabled_study(teachers=1)
    with Consortium(study, tmp_path) as consortium:
        home = make_member(tmp_path / "a", consortium, teacher="tests.harness.own_models:Gated")
        at = ["--home", str(home.path)]
        assert run_command(["approve", str(study_file(tmp_path, study)), *at, "--yes"]) == 0
        assert run_command(["train", "test", *at]) == 0
        gate, log = home.teachers(study.digest, "hospital-0") / "gate", tmp_path / "log"
        os.mkfifo(gate)

        def predicting():
            try:
                os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
            except OSError:  # nobody has it open
                return False
            return True

        with log.open("w") as lines:
            node = subprocess.Popen([sys.executable, "-m", "party", "run", *at], stderr=lines)
        try:
            wait_until(lambda: "teachers_ready" in log.read_text())
            assert not consortium.hub.wait_for(frozenset({"hospital-0"}), timeout_s=300)
            asking = threading.Thread(target=consortium.label)
            asking.start()
            wait_until(predicting)
            node.send_signal(signal.SIGINT)
            assert node.wait(timeout=300) == 130
            consortium.unawaited.add("hospital-0")
            asking.join()
        finally:
            node.kill()
            node.wait()
        assert not predicting()
        happened = [json.loads(line)["event"] for line in log.read_text().splitlines()]
        assert happened.index("started") < happened.index("teachers_started")
        assert happened.count("teachers_started") == happened.count("teachers_ended") == 1
