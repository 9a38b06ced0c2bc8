"""A job from its first question to its labels: what it releases, and what makes it fail."""

import numpy as np
import pytest

from coordinator.status import study_status
from protocols.crypto.randomness import system_source
from protocols.errors import Refused
from protocols.ledger.ledger import Ledger
from protocols.plural import counted
from protocols.votes import ABSTAIN, NOT_ASKED


def test_a_job_ends_with_labels_progress_and_ledgers_that_agree(bench):
    made = bench()
    job = made.run()
    found = made.store.labelled("test")
    assert job.state == "finished"
    asked = found.labels != NOT_ASKED
    assert (job.asked, job.answered) == (asked.sum(), (found.labels >= 0).sum())
    assert job.batches == len(found.batches) >= 3
    assert found.left_out == found.differences == {}
    with Ledger(found.ledger) as ledger:
        for seat, balance in ledger.balances().items():
            assert made.own(seat) == balance.spent
    assert [entry.event for entry in made.store.entries()][-3:] == ["job_asked", "job_started", "job_ended"]


def test_noise_is_of_the_operating_system(bench, monkeypatch):
    drawn = []
    real = system_source
    monkeypatch.setattr("coordinator.labelling.jobs.system_source", lambda count: drawn.append(count) or real(count))
    job = bench().run()
    # A threshold bit and two counts a query, 16 bytes each.
    assert sum(drawn) == 16 * 3 * job.asked


def test_a_second_run_of_a_finished_study_asks_nothing_more(bench):
    made = bench()
    made.run()
    asked, labels = list(made.hub.asked), made.store.labelled("test").labels
    made.run()
    assert made.hub.asked == asked
    assert (made.store.labelled("test").labels == labels).all()


def test_a_party_that_is_away_is_left_out_batch_by_batch_and_named(bench):
    made = bench(quorum=2, present={"hospital-0", "hospital-2"})
    job = made.run()
    found = made.store.labelled("test")
    assert job.state == "finished"
    faults = made.store.faults("test")
    assert {fault.seat for fault in faults} == {"hospital-1"}
    assert [fault.number for fault in faults] == list(range(job.batches))
    assert found.left_out == {number: {"hospital-1": "absent"} for number in range(job.batches)}
    assert made.own("hospital-1") == 0
    # It may have heard the questions: the coordinator cannot know.
    assert found.differences["hospital-1"] > 0


def test_a_coordinator_that_was_rolled_back_fails_the_job_and_says_what_to_do(bench):
    made = bench(quorum=1)
    fault = Refused("coordinator_rolled_back", "the coordinator's ledger is not the newest: entry 9 is not in it")

    def open_study(*_, **__):
        def exchange(_):
            raise fault

        return exchange

    made.hub.open_study = open_study
    job = made.run()
    assert job.state == "failed"
    assert job.message.startswith("coordinator_rolled_back: the coordinator's ledger is not the newest")
    assert "replace this home by the newest copy of the coordinator's home" in job.message
    assert job.message.endswith("then run resume test")
    shown = study_status(made.store, "test", set())
    assert (shown["state"], shown["message"]) == ("failed", job.message)
    assert made.store.faults("test") == []


@pytest.mark.parametrize("gone", [[], ["hospital-3"]])
def test_parties_that_refuse_stop_the_job_at_once_with_their_reasons(bench, gone):
    made = bench(parties=3 + len(gone), quorum=3, present={"hospital-0", "hospital-1"} if gone else None)
    made.store.ask_job("test", student=None, without=gone)
    made.hub.refusing = {"hospital-1": "storage_failed"}
    job = made.run()
    assert job.state == "stopped"
    assert "hospital-1 (storage_failed)" in job.message
    assert "resume test" in job.message
    assert len(made.hub.asked) == 1


def test_a_job_that_did_without_a_party_says_so_and_why_at_its_end(bench):
    made = bench(quorum=2)
    made.hub.refusing = {"hospital-1": "storage_failed"}
    job = made.run()
    assert job.state == "finished"
    assert f"hospital-1 in {counted(job.batches, 'batch')} (storage_failed)" in job.message


def test_a_code_that_a_party_makes_up_does_not_reach_tables(bench):
    made = bench(quorum=3)
    made.hub.refusing = {"hospital-1": "votes were 1, 0, 1"}
    job = made.run()
    assert "votes were" not in job.message
    assert made.store.faults("test")[0].code == "refused"


def test_an_interactive_study_trains_between_its_rounds_and_again_after_a_stop(bench, monkeypatch):
    made = bench(
        mechanism="interactive_gnmax", sigma=6.0, sigma_threshold=8.0, threshold=-2.0, interactive_threshold=0.5,
        reinforce_confidence=0.9, round_one=20,
    )  # fmt: skip
    job = made.run(student="random_forest")
    assert job.state == "finished"
    found = made.store.labelled("test")
    assert found.batches[0][0] == 20
    assert (found.reinforced[:20] == ABSTAIN).all()


def test_an_interactive_study_without_a_student_fails_and_says_so(bench):
    made = bench(
        mechanism="interactive_gnmax", sigma=6.0, sigma_threshold=8.0, threshold=-2.0, interactive_threshold=0.5,
        reinforce_confidence=0.9, round_one=20,
    )  # fmt: skip
    job = made.run()
    assert job.state == "failed"
    assert "--student" in job.message
    assert made.hub.asked == []


def test_a_pool_that_was_changed_fails_the_job_before_anything_is_asked(bench):
    made = bench()
    pool = made.home.study("test") / "pool.npy"
    changed = np.load(pool)
    changed[0, 0] += 1
    np.save(pool, changed)
    job = made.run()
    assert job.state == "failed"
    assert "hash" in job.message
    assert made.hub.asked == []
