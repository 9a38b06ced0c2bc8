import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from party.party import Party
from party.voting.trained import load_teachers, read_teachers_manifest
from protocols.errors import CannotVote, DataCorrupt, DataUnavailable, InvalidInput
from protocols.ledger.ledger import Ledger
from protocols.wire.messages import Refusal, VoteReply, VoteRequest
from tests.harness.clocks import wait_until
from tests.harness.refusals import refused_for, refuses
from tests.harness.teacher_children import MODELS, REASONS, batch, process, study_of, trained


def test_votes_of_the_child_are_those_of_its_teachers(tmp_path):
    folder, study, said = trained(tmp_path, "logistic_regression")
    assert any("teacher 2 of 2" in line for line in said)
    child, events = process(folder, study)
    try:
        for size in (5, 1, 20):
            votes = child(batch(size))
            expected = [teacher.predict(batch(size).inputs) for teacher in load_teachers(folder, study=study.digest)]
            np.testing.assert_array_equal(votes, expected)
        assert events == ["teachers_started", "teachers_ready"]
        first = child.process
        os.kill(first, signal.SIGKILL)
        child._pipe.process.wait()
        assert child(batch()).shape == (2, 5)
        assert child.process != first
    finally:
        child.close()
    assert child.process is None


@pytest.mark.usefixtures("forked")
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
    begun = ["teachers_started", "teachers_ready"]
    assert events == [*begun, "teachers_failed", "teachers_ended", *begun, "teachers_ended"]


@pytest.mark.usefixtures("forked")
def test_a_process_that_cannot_be_started_refuses_the_batch(tmp_path, monkeypatch):
    folder, study, _ = trained(tmp_path, f"{MODELS}:Saved")
    child, events = process(folder, study)
    (folder / "teacher_process.log").mkdir()
    with refused_for("could_not_vote") as refused:
        child(batch())
    assert str(tmp_path) not in str(refused.value)
    assert events == ["teachers_failed"]
    (folder / "teacher_process.log").rmdir()

    def full(*_, **__):
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("party.voting.teacher_process.subprocess.Popen", full)
        with refused_for("could_not_vote"):
            child(batch())
    assert "Too many open files" in REASONS[-1]
    assert child(batch()).shape == (2, 5)
    child.close()


@pytest.mark.usefixtures("forked")
def test_teachers_slower_than_the_deadline_go_on_and_their_votes_serve_the_retry_charged_once(gated):
    now = [0.0]
    child, events = gated.make(deadline_s=0.05, clock=lambda: now[0])
    child.warm()
    first = child.process
    with Ledger(":memory:") as ledger:
        party = Party("hospital-0", study=gated.study, ledger=ledger, voter=child, coins_from=None)
        asked = VoteRequest(gated.study.digest, b"r", batch())
        now[0] = 25.0
        for _ in range(2):
            refusal = party.handle(asked)
            assert refusal.code == "teachers_late"
        assert "predicting 5 queries has taken 0 s and continues; the study's deadline is 0.05 s" in refusal.reason
        assert ledger.balance("hospital-0").spent == 0
        now[0] = 66.0
        gated.let(2)  # each teacher once: what was predicted is not predicted again
        wait_until(lambda: "teachers_slow" in events)
        assert "predicting 5 queries took 41 s; the study's deadline is 0.05 s: ask the operator" in REASONS[-1]
        assert ledger.balance("hospital-0").spent == 0
        votes = party.handle(asked)
        assert isinstance(votes, VoteReply)
        spent = ledger.balance("hospital-0").spent
        assert spent > 0
        np.testing.assert_array_equal(party.handle(asked).votes, votes.votes)
        assert ledger.balance("hospital-0").spent == spent
    assert child.process == first
    assert events.count("teachers_started") == 1
    assert "teachers_ended" not in events


@pytest.mark.usefixtures("forked")
def test_a_newer_batch_takes_the_place_of_one_that_nobody_waits_for(gated):
    child, events = gated.make(deadline_s=0.05)
    for number in (0, 1):
        with refused_for("teachers_late"):
            child(batch(number=number))
    gated.let(1 + 2)  # the teacher that was voting, then both on the newer batch
    wait_until(lambda: "teachers_slow" in events)
    assert child(batch(number=1)).shape == (2, 5)
    with refused_for("teachers_late"):
        child(batch(number=0))
    assert events.count("teachers_started") == 1


@pytest.mark.usefixtures("forked")
def test_votes_of_the_newest_two_batches_are_kept_and_no_more(gated):
    child, _ = gated.make()
    gated.let(2 * 3)
    for number in range(3):
        child(batch(number=number))
    assert set(child._kept) == {batch(number=1).digest, batch(number=2).digest}


@pytest.mark.usefixtures("forked")
def test_teachers_without_any_progress_are_ended_after_their_own_limit(gated):
    child, events = gated.make(deadline_s=0.05)
    child.warm()
    hung = child.process
    with refused_for("teachers_late"):
        child(batch(number=0))
    assert child.process == hung
    child._deadline_s, child._stalled_s = 60.0, 0.2  # before a teacher of either batch begins with the old limits
    gated.let(1)
    with pytest.raises(CannotVote) as failed:
        child(batch(number=1))
    assert "made no progress for 0.2 s" in failed.value.why
    assert "teachers_ended" in events
    with pytest.raises(ProcessLookupError):
        os.kill(hung, 0)


@pytest.mark.usefixtures("forked")
def test_closing_ends_a_prediction_at_once_and_whoever_waits_for_it_is_told(gated):
    child, events = gated.make(deadline_s=600.0, stalled_s=600.0)
    child.warm()
    voting, refused = child.process, []

    def vote():
        with refused_for("could_not_vote"):
            child(batch())
        refused.append(True)

    thread = threading.Thread(target=vote)
    thread.start()
    wait_until(lambda: child._wishes.task is not None)
    child.close()
    thread.join()
    assert refused
    with pytest.raises(ProcessLookupError):
        os.kill(voting, 0)
    assert "teachers_failed" not in events
    with refused_for("could_not_vote"):
        child(batch())


@pytest.mark.usefixtures("forked")
def test_the_child_ends_with_its_node_in_the_middle_of_a_prediction(tmp_path):
    folder, study, _ = trained(tmp_path, f"{MODELS}:Gated")
    os.mkfifo(folder / "gate")
    code = (
        "import sys; from pathlib import Path; from tests.system.party.voting.test_teacher_process import batch\n"
        "from party.voting.teacher_process import TeacherProcess\n"
        "TeacherProcess(Path(sys.argv[1]), study=bytes.fromhex(sys.argv[2]), deadline_s=600, idle_s=600, "
        "stalled_s=600, on_event=print)(batch())"
    )

    def predicting():
        try:
            os.close(os.open(folder / "gate", os.O_WRONLY | os.O_NONBLOCK))
        except OSError:  # nobody has it open
            return False
        return True

    node = subprocess.Popen([sys.executable, "-c", code, str(folder), study.digest.hex()], stdout=subprocess.DEVNULL)
    try:
        wait_until(predicting)
    finally:
        node.kill()
        node.wait()
    wait_until(lambda: not predicting())


@pytest.mark.usefixtures("forked")
def test_teachers_are_loaded_before_the_first_question_and_rest_if_there_was_none(tmp_path):
    folder, study, _ = trained(tmp_path, f"{MODELS}:Saved")
    child, events = process(folder, study)
    child.warm()
    assert events == ["teachers_started", "teachers_ready"]
    child.rest()
    assert events[2:] == ["teachers_ended"]
    child.warm()
    first = child.process
    child(batch())
    child.rest()
    assert child.process == first
    child.close()


@pytest.mark.usefixtures("forked")
def test_an_idle_child_is_ended(tmp_path):
    folder, study, _ = trained(tmp_path, f"{MODELS}:Saved")
    child, events = process(folder, study, idle_s=0.05)
    child(batch())
    wait_until(lambda: len(events) == 3)
    assert events == ["teachers_started", "teachers_ready", "teachers_ended"]
    assert child(batch(number=1)).shape == (2, 5)
    child.close()


@pytest.mark.usefixtures("forked")
def test_absent_broken_and_foreign_teachers_are_refused(tmp_path):
    study = study_of()
    child, _ = process(tmp_path / "nowhere", study)
    with refused_for("no_teachers") as refused:
        child(batch())
    assert str(tmp_path) not in str(refused.value)
    assert "nowhere does not exist" in REASONS[-1]
    with refuses(DataUnavailable, "conclave-party train"):
        read_teachers_manifest(tmp_path)
    folder, study, _ = trained(tmp_path, "logistic_regression")
    with refuses(DataCorrupt, "teachers", "study"):
        load_teachers(folder, study=bytes(32))
    (folder / "teacher-0001").write_bytes(b"broken")
    child, _ = process(folder, study)
    with refused_for("could_not_vote") as refused:
        child(batch())
    child.close()
    assert str(tmp_path) not in str(refused.value)
    assert any(str(folder / "teacher-0001") in detail for detail in REASONS)
    for content in (b"[]", b"{", b'{"study": 1}', b"\xff"):
        (folder / "manifest.json").write_bytes(content)
        with refuses(DataCorrupt, "manifest.json"):
            read_teachers_manifest(folder)


@pytest.mark.usefixtures("forked")
def test_teachers_are_trained_again_when_records_or_kind_change_only(tmp_path):
    folder, study, _ = trained(tmp_path, "logistic_regression")
    before = (folder / "teacher-0000").stat().st_mtime_ns
    _, _, said = trained(tmp_path, "logistic_regression", study=study)
    assert any("already" in line for line in said)
    assert (folder / "teacher-0000").stat().st_mtime_ns == before
    trained(tmp_path, "random_forest", study=study)
    assert read_teachers_manifest(folder).kind == "random_forest"


@pytest.mark.usefixtures("forked")
def test_onnx_wants_one_file_a_teacher(tmp_path):
    with refuses(InvalidInput, 0, 2):
        trained(tmp_path, "onnx")
