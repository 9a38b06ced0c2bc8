"""Jobs whose parties are absent, late or not approved yet: they wait, say for whom, and ask the same again."""

import threading
from dataclasses import replace

import pytest

from coordinator.release.charges import check_charges, left_out
from coordinator.release.evidence import collect
from coordinator.status import study_status
from protocols.errors import DataCorrupt
from protocols.ledger.ledger import Ledger
from protocols.wire.messages import Refusal, VoteRequest
from tests.harness.clocks import wait_until


def test_a_job_waits_for_its_quorum_and_asks_the_very_same_again(bench):
    made = bench(quorum=3, present={"hospital-0", "hospital-1"})
    job = made.store.ask_job("test", student=None)
    opened = made.open()
    thread = threading.Thread(target=opened.run, args=(job,), kwargs={"patience_s": 120.0})
    thread.start()
    wait_until(lambda: len(made.hub.asked) >= 3)
    assert "waiting for hospital-2" in made.store.job("test").message
    assert len(set(made.hub.asked)) == 1
    reserved = made.own("hospital-0")
    assert reserved > 0
    made.hub.present.add("hospital-2")
    thread.join()
    opened.close()
    assert made.store.job("test").state == "finished"
    digests = {}
    for number, digest in made.hub.asked:
        assert digests.setdefault(number, digest) == digest
    assert made.store.labelled("test").differences == {}


def _late(made, seat, times):
    """The hub's transport, over which a seat says of each batch that it is late, so many times, before it answers."""
    opened = made.open()
    real, left = opened._send, {}

    def send(requests):
        first = next(iter(requests.values()))
        if isinstance(first, VoteRequest) and seat in requests and left.setdefault(first.digest, times) > 0:
            left[first.digest] -= 1
            others = {name: request for name, request in requests.items() if name != seat}
            return (real(others) if others else {}) | {seat: Refusal("teachers_late", "teachers_late: 25 s so far")}
        return real(requests)

    opened._send = send
    return opened


@pytest.mark.parametrize("quorum", [2, 3])
def test_a_late_party_is_asked_again_and_left_out_of_no_batch(bench, quorum):
    made = bench(quorum=quorum)
    opened = _late(made, "hospital-1", 2)
    opened.run(made.store.ask_job("test", student=None), patience_s=120.0)
    opened.close()
    job, found = made.store.job("test"), made.store.labelled("test")
    assert job.state == "finished"
    assert found.left_out == found.differences == {}
    assert made.store.faults("test") == []
    with Ledger(found.ledger) as ledger:
        for seat, balance in ledger.balances().items():
            assert made.own(seat) == balance.spent > 0
    # It answered within the deadline, whatever it said before: nothing of that is for the operator.
    assert "hospital-1" not in study_status(made.store, "test", set())["message"]


def test_a_party_that_is_late_for_longer_than_the_patience_is_said_to_be_late(bench):
    made = bench(quorum=3)
    opened = _late(made, "hospital-1", 10**9)
    opened.run(made.store.ask_job("test", student=None), patience_s=0.2)
    opened.close()
    job = made.store.job("test")
    assert job.state == "stopped"
    assert job.message.startswith("hospital-1 (late) did not answer; when they are back, run resume test")
    assert {fault.code for fault in made.store.faults("test")} == {"teachers_late"}
    assert made.run().state == "finished"


def test_the_operator_decides_about_a_party_whose_votes_are_always_too_late_to_be_counted(bench):
    made = bench(quorum=2, batch_limit=4)
    misses = made.study.terms.misses

    def run(without=()):
        job, opened = made.store.ask_job("test", student=None, without=without), made.open()
        real = opened._send

        def send(requests):  # it votes, and is charged, but its votes come after the deadline
            first = next(iter(requests.values()))
            if votes := isinstance(first, VoteRequest) and "hospital-1" in requests:
                # In an earlier try of the same batch it said so itself: that is one miss, not two.
                made.store.add_faults("test", first.batch.number, {"hospital-1": "teachers_late"}, {})
            return real(requests) | ({"hospital-1": Refusal("late", "late: no answer yet")} if votes else {})

        opened._send = send
        opened.run(job, patience_s=0.0)
        opened.close()
        return made.store.job("test")

    for times in (1, 2):  # each time that it goes on as before, after as many again
        job = run()
        assert (job.state, job.batches) == ("stopped", times * misses)
        assert "resume test --without hospital-1" in job.message
        assert made.store.labelled("test").stop == "missed"
    charged = made.own("hospital-1")
    assert charged > 0
    job = run(["hospital-1"])
    assert (job.state, job.batches > 2 * misses) == ("finished", True)
    assert made.own("hospital-1") == charged
    assert made.hub.without == {"hospital-1"}
    with Ledger(made.store.labelled("test").ledger) as ledger:
        assert ledger.balances()["hospital-1"].spent == 0 < ledger.balances()["hospital-0"].spent
        assert "hospital-1" not in ledger.charged(job.batches - 1)
    found = made.store.labelled("test")
    evidence = collect(found.ledger, study=made.study.digest)
    check_charges(made.study, found.labels, evidence)
    assert left_out(made.study, evidence, {})["hospital-1"][-1] == {"batch": 2 * misses, "why": "asked_no_more"}
    first, *others = evidence.charges
    for charges in (first.reserved, first.settled):
        charges.pop("hospital-1")
    with pytest.raises(DataCorrupt):  # it is done without for ever, or not at all
        check_charges(made.study, found.labels, replace(evidence, charges=(first, *others)))


def test_a_job_whose_parties_do_not_come_stops_and_resume_goes_on(bench):
    made = bench(quorum=3, present={"hospital-0", "hospital-1"})
    job = made.run(patience_s=0.0)
    assert job.state == "stopped"
    assert "hospital-2 did not connect" in job.message
    assert made.store.labelled("test").stop == "quorum_lost"
    reserved = made.own("hospital-0")
    made.hub.present.add("hospital-2")
    first = made.hub.asked[0]
    job = made.run()
    assert job.state == "finished"
    assert job.number == 2
    assert made.hub.asked.count(first) == len([a for a in made.hub.asked if a[0] == first[0]])
    assert made.own("hospital-0") >= reserved - 1


def test_a_party_that_has_not_approved_yet_is_waited_for(bench):
    made = bench(quorum=3)
    made.hub.refusing = {"hospital-1": "unknown_study"}
    job = made.store.ask_job("test", student=None)
    opened = made.open()
    thread = threading.Thread(target=opened.run, args=(job,), kwargs={"patience_s": 120.0})
    thread.start()
    wait_until(lambda: len(made.hub.asked) >= 2)
    made.hub.refusing = {}
    thread.join()
    opened.close()
    assert made.store.job("test").state == "finished"
