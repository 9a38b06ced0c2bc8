"""Jobs that stop in the middle: they go on without another charge, and what they released can be published."""

import threading
from dataclasses import replace

import numpy as np
import pytest

from coordinator.labelling.giving_up import give_up
from coordinator.queries import choice_between_batches
from protocols.errors import Refused, StorageFailed
from protocols.labelling.questions import next_questions
from protocols.ledger.ledger import Ledger
from protocols.levels.clear import ClearAggregation
from protocols.votes import ABSTAIN, NOT_ASKED
from protocols.wire.messages import VoteRequest
from tests.harness.guardians import guarded_study
from tests.harness.studies import pool_of


@pytest.mark.parametrize(("rounds", "questions"), [(1, "given"), (2, "given"), (3, "uncertainty"), (4, "uncertainty")])
def test_a_stop_in_any_round_is_gone_on_with_without_another_charge(bench, rounds, questions):
    made = bench(questions=questions)
    job = made.store.ask_job("test", student=None)
    opened = made.open()
    send = opened._send
    left, ended = [rounds], threading.Event()

    def stop_in_round(requests):
        replies = send(requests)
        left[0] -= 1
        if left[0] == 0:
            made.stop.set()
            ended.wait(300)  # the stop is seen in this round, not after it
        return replies

    opened._send = stop_in_round
    opened.run(job, patience_s=120.0)
    ended.set()
    opened.close()
    assert made.store.job("test").state == "running"
    made.stop.clear()
    again = made.open()
    again.run(made.store.open_jobs()[0], patience_s=120.0)
    again.close()
    assert made.store.job("test").state == "finished"
    found = made.store.labelled("test")
    with Ledger(found.ledger) as ledger:
        for seat, balance in ledger.balances().items():
            # A lost outcome leaves the party with the higher figure, and the coordinator knows by how much.
            assert made.own(seat) - balance.spent == found.differences.get(seat, 0)
            assert made.own(seat) <= balance.cap
        _questions_are_those_of_the_labels_before(made.study, found.labels, ledger)
    digests = {}
    for number, digest in made.hub.asked:
        assert digests.setdefault(number, digest) == digest


def _questions_are_those_of_the_labels_before(study, labels, ledger):
    """Each batch asked what the study says, with the labels of those before: so it can be replayed."""
    choose = choice_between_batches(study.votes.questions, pool_of(60, 4), columns=study.terms.features)
    known, number = np.full(60, NOT_ASKED), 0
    while ids := ledger.queries(number):
        assert ids == next_questions(choose, known, known != NOT_ASKED, len(ids)).tolist()
        known[ids] = labels[ids]
        number += 1
    assert number >= 3
    assert (known == labels).all()


def test_a_ledger_that_cannot_be_written_leaves_the_job_under_way(bench):
    made = bench()
    job = made.store.ask_job("test", student=None)
    opened = made.open()

    def full(*_, **__):
        raise StorageFailed("ledger: database or disk is full; nothing was charged")

    opened._ledger.reserve = full
    with pytest.raises(StorageFailed, match="disk is full"):
        opened.run(job, patience_s=120.0)
    opened.close()
    assert made.store.job("test").state == "running"
    again = made.open()
    again.run(made.store.open_jobs()[0], patience_s=120.0)
    again.close()
    assert made.store.job("test").state == "finished"


def _after_two_batches(made):
    """Two batches are released, then a hospital leaves: the third is asked and stays open."""
    left = 2

    def leave(requests):
        nonlocal left
        if isinstance(next(iter(requests.values())), VoteRequest):
            left -= 1
            if left < 0:
                made.hub.present.discard("hospital-1")
        return real(requests)

    opened = made.open()
    real, opened._send = opened._send, leave
    job = made.store.ask_job("test", student=None)
    opened.run(job, patience_s=0.0)
    opened.close()
    assert made.store.job("test").batches == 2
    return made.store.labelled("test")


def test_what_was_released_before_a_guardian_left_for_good_can_be_released(bench):
    made = bench(quorum=3)
    before = _after_two_batches(made)
    made.store._database.execute("DELETE FROM labelled")
    opened = made.open()
    other = guarded_study()
    opened.study = replace(made.study, confidentiality=other.confidentiality, votes=other.votes)
    opened._guardian_is_there = lambda: False
    asked = len(made.hub.asked)
    opened.run(made.store.ask_job("test", student=None), patience_s=0.0)
    opened.close()
    job = made.store.job("test")
    assert job.state == "stopped"
    assert "did not answer; when it is back, run resume test; if that never happens, give-up test" in job.message
    assert len(made.hub.asked) == asked
    found = made.store.labelled("test")
    assert found.stop == "guardian_lost"
    assert (found.labels == before.labels).all()
    assert found.batches == before.batches
    assert (found.reinforced == ABSTAIN).all()


def test_what_was_released_before_a_job_failed_can_be_released(bench, monkeypatch):
    made = bench(quorum=3)
    before = _after_two_batches(made)
    monkeypatch.setattr(ClearAggregation, "count", _refuse)
    assert made.run().state == "failed"
    found = made.store.labelled("test")
    assert found.stop == "failed"
    assert (found.labels == before.labels).all()
    assert found.batches == before.batches


def _refuse(*_):
    raise Refused("too_many_attempts", "labels of the batch were computed 16 times")


def test_a_batch_that_is_given_up_leaves_no_difference_that_was_only_suspected(bench):
    made = bench(quorum=3, batch_limit=10)
    _after_two_batches(made)
    assert made.store.differences("test")["hospital-1"] > 0
    give_up(made.store, "test", 2)
    assert made.store.differences("test") == {}
    made.hub.present.add("hospital-1")
    job = made.run()
    assert job.state == "finished"
    with Ledger(made.store.labelled("test").ledger) as ledger:
        for seat, balance in ledger.balances().items():
            difference = made.store.differences("test").get(seat, 0)
            assert made.own(seat) - balance.spent == difference <= 0
    # It was away: here it counts, at home it never heard of it.
    assert made.store.differences("test")["hospital-1"] < 0
