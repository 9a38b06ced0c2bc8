import os
import signal
import time
from dataclasses import replace

import numpy as np
import pytest

from party.home import Home
from party.party import Party
from party.settings import DataSettings, Settings, TeacherSettings
from party.teacher_process import TeacherProcess
from party.trained import load_teachers, read_manifest
from party.training import train
from protocols.accounting.ledger import Ledger
from protocols.errors import DataCorrupt, DataUnavailable, InvalidInput, Refused
from protocols.messages import Refusal, VoteReply, VoteRequest
from protocols.queries import QueryBatch
from tests.consortium import deployed_study
from tests.party.homes import FEATURES, write_records

MODELS = "tests.party.own_models"
# What the hospital's own log was told of failures.
REASONS = []


def study_of(teachers=2):
    study = deployed_study(1, teachers=teachers)
    return replace(study, terms=replace(study.terms, features=FEATURES))


def trained(tmp_path, kind, *, study=None, seed=1, files=()):
    study = study or study_of()
    home = Home(tmp_path / "home")
    records = write_records(tmp_path / "records.csv")
    settings = Settings(
        data=DataSettings(name="ward", path=records, loader="csv", patient="patient"),
        teachers=TeacherSettings(kind=kind, seed=seed, files=files),
        lifetime={},
        settle=True,
        policy=tmp_path / "policy.sqlite",
    )
    said = []
    train(home, settings, study, "hospital-0", say=said.append)
    return home.teachers(study.digest, "hospital-0"), study, said


def process(folder, study, *, deadline_s=30.0, idle_s=60.0):
    events = []
    made = TeacherProcess(
        folder,
        study=study.digest,
        deadline_s=deadline_s,
        idle_s=idle_s,
        on_event=lambda event, fields: (events.append(event), REASONS.append(str(fields.get("reason", "")))),
    )
    return made, events


def batch(size=5, number=0):
    inputs = np.random.default_rng(number).standard_normal((size, 4)).astype(np.float32)
    return QueryBatch(number, np.arange(size), inputs)


def test_votes_of_the_child_are_those_of_its_teachers(tmp_path):
    folder, study, said = trained(tmp_path, "logistic_regression")
    assert any("teacher 2 of 2" in line for line in said)
    child, events = process(folder, study)
    try:
        for size in (5, 1, 20):
            votes = child(batch(size))
            expected = [teacher.predict(batch(size).inputs) for teacher in load_teachers(folder, study=study.digest)]
            np.testing.assert_array_equal(votes, expected)
        assert events == ["teachers_started"]
        first = child.process_id
        os.kill(first, signal.SIGKILL)
        child._child.wait()
        assert child(batch()).shape == (2, 5)
        assert child.process_id != first
    finally:
        child.close()
    assert child.process_id is None


def test_a_crash_refuses_the_batch_and_charges_nothing(tmp_path):
    folder, study, _ = trained(tmp_path, f"{MODELS}:Crashing")
    child, events = process(folder, study)
    with Ledger(":memory:") as ledger:
        party = Party("hospital-0", study=study, ledger=ledger, voter=child, coins_from=None)
        reply = party.handle(VoteRequest(study.digest, b"r", batch()))
        assert isinstance(reply, Refusal)
        assert reply.code == "could_not_vote"
        assert str(tmp_path) not in reply.reason
        assert "teacher_process.log" in REASONS[-1] or "teacher_process.log" in REASONS[-2]
        assert ledger.balance("hospital-0").spent == 0
        assert isinstance(party.handle(VoteRequest(study.digest, b"r", batch(3))), VoteReply)
        assert ledger.balance("hospital-0").spent > 0
    child.close()
    assert events == ["teachers_started", "teachers_failed", "teachers_ended", "teachers_started", "teachers_ended"]


def test_a_process_that_cannot_be_started_refuses_the_batch(tmp_path, monkeypatch):
    folder, study, _ = trained(tmp_path, f"{MODELS}:Saved")
    child, events = process(folder, study)
    (folder / "teacher_process.log").mkdir()
    with pytest.raises(Refused, match="could_not_vote") as refused:
        child(batch())
    assert str(tmp_path) not in str(refused.value)
    assert events == ["teachers_failed"]
    (folder / "teacher_process.log").rmdir()

    def full(*_, **__):
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("party.teacher_process.subprocess.Popen", full)
        with pytest.raises(Refused, match="could_not_vote"):
            child(batch())
    assert "Too many open files" in REASONS[-1]
    assert child(batch()).shape == (2, 5)
    child.close()


def test_teachers_that_are_late_are_ended_and_refused(tmp_path):
    folder, study, _ = trained(tmp_path, f"{MODELS}:Slow")
    child, _ = process(folder, study)
    child(batch(2))  # started: the deadline below is for voting alone
    child._deadline_s = 0.2
    with pytest.raises(Refused, match="teachers_late"):
        child(batch())
    assert child.process_id is None


def test_an_idle_child_is_ended(tmp_path):
    folder, study, _ = trained(tmp_path, f"{MODELS}:Saved")
    child, events = process(folder, study, idle_s=0.05)
    child(batch())
    deadline = time.monotonic() + 20
    while len(events) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert events == ["teachers_started", "teachers_ended"]
    assert child(batch()).shape == (2, 5)
    child.close()


def test_absent_broken_and_foreign_teachers_are_refused(tmp_path):
    study = study_of()
    child, _ = process(tmp_path / "nowhere", study)
    with pytest.raises(Refused, match="no_teachers") as refused:
        child(batch())
    assert str(tmp_path) not in str(refused.value)
    assert "nowhere does not exist" in REASONS[-1]
    with pytest.raises(DataUnavailable, match="conclave-party train"):
        read_manifest(tmp_path)
    folder, study, _ = trained(tmp_path, "logistic_regression")
    with pytest.raises(DataCorrupt, match="holds teachers of study"):
        load_teachers(folder, study=bytes(32))
    (folder / "teacher-0001").write_bytes(b"broken")
    child, _ = process(folder, study)
    with pytest.raises(Refused, match="could_not_vote") as refused:
        child(batch())
    child.close()
    assert str(tmp_path) not in str(refused.value)
    assert any(str(folder / "teacher-0001") in detail for detail in REASONS)
    for content in (b"[]", b"{", b'{"study": 1}', b"\xff"):
        (folder / "manifest.json").write_bytes(content)
        with pytest.raises(DataCorrupt, match=r"manifest\.json"):
            read_manifest(folder)


def test_teachers_are_trained_again_when_records_or_kind_change_only(tmp_path):
    folder, study, _ = trained(tmp_path, "logistic_regression")
    before = (folder / "teacher-0000").stat().st_mtime_ns
    _, _, said = trained(tmp_path, "logistic_regression", study=study)
    assert any("already" in line for line in said)
    assert (folder / "teacher-0000").stat().st_mtime_ns == before
    trained(tmp_path, "random_forest", study=study)
    assert read_manifest(folder).kind == "random_forest"


def test_onnx_wants_one_file_a_teacher(tmp_path):
    with pytest.raises(InvalidInput, match="names 0 files; allowed: 2"):
        trained(tmp_path, "onnx")
