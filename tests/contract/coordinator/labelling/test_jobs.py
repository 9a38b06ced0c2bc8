"""Labelling under serve's conditions: parties missing, refusing, coming back; stops at any moment."""

import threading
from dataclasses import replace

import numpy as np
import pytest

from coordinator.in_process import InProcessTransport
from coordinator.labelling.giving_up import give_up
from coordinator.labelling.jobs import ServedStudy
from coordinator.status import study_status
from coordinator.store.store import Store
from party.party import Party
from protocols.crypto.randomness import system_source
from protocols.errors import Refused, StorageFailed
from protocols.labelling.coordinator import Coordinator
from protocols.ledger.ledger import Ledger
from protocols.levels.clear import ClearAggregation
from protocols.noise import simulated
from protocols.votes import ABSTAIN, NOT_ASKED
from protocols.wire.messages import Refusal, VoteRequest
from runtime.logs import Log
from tests.harness.clocks import wait_until
from tests.harness.guardians import guarded_study
from tests.harness.operators import FakeHub, add_study, make_home
from tests.harness.studies import pool_of, voter


@pytest.fixture
def quiet():
    import io

    return Log(io.StringIO())


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("coordinator.labelling.jobs._FIRST_WAIT_S", 0.05)
    monkeypatch.setattr("coordinator.labelling.jobs._LOOK_S", 0.01)
    monkeypatch.setattr("coordinator.labelling.late_seats._FIRST_WAIT_S", 0.01)


class Bench:
    """A home with one study, and a fake hub."""

    def __init__(self, folder, quiet, **how):
        self.present = how.pop("present", None)
        self.home = make_home(folder)
        self.study = add_study(self.home, folder, **how)
        self.store = Store(self.home)
        self.hub = FakeHub(self.study, present=self.present)
        self.stop = threading.Event()
        self.log = quiet
        self.opened = None

    def open(self):
        self.opened = ServedStudy(self.store, "test", self.hub, guardians=None, stop=self.stop, on_event=self.log)
        return self.opened

    def run(self, *, patience_s=120.0, student=None):
        job = self.store.ask_job("test", student=student)
        self.open().run(job, patience_s=patience_s)
        self.opened.close()
        return self.store.job("test")

    def own(self, seat):
        return self.hub.ledgers[seat].balance(seat).spent


@pytest.fixture
def bench(tmp_path, quiet):
    made = []

    def make(**how):
        made.append(Bench(tmp_path, quiet, **how))
        return made[-1]

    yield make
    for each in made:
        each.store.__exit__()


def test_a_job_ends_with_labels_progress_and_ledgers_that_agree(bench):
    made = bench()
    job = made.run()
    found = made.store.labelled("test")
    assert job.state == "finished"
    asked = found.labels != NOT_ASKED
    assert (job.asked, job.answered) == (asked.sum(), (found.labels >= 0).sum())
    assert job.batches == len(found.batches) >= 3
    assert found.refusals == found.differences == {}
    with Ledger(found.ledger) as ledger:
        for seat, balance in ledger.balances().items():
            assert made.own(seat) == balance.spent
    assert [entry.event for entry in made.store.entries()][-3:] == ["job_asked", "job_started", "job_ended"]


def test_labels_are_those_of_a_coordinator_alone_from_the_same_noise(bench, monkeypatch):
    monkeypatch.setattr("protocols.levels.table.cryptographic", lambda source: simulated(np.random.default_rng(1)))
    made = bench()
    made.run()
    parties = {
        seat.party: Party(
            seat.party, study=made.study, ledger=Ledger(":memory:"), voter=voter(seat.party), coins_from=None
        )
        for seat in made.study.roster
    }
    alone = Coordinator(
        made.study,
        ledger=Ledger(":memory:"),
        aggregation=ClearAggregation(simulated(np.random.default_rng(1))),
        exchange=InProcessTransport({name: party.handle for name, party in parties.items()}),
        run=b"run",
    ).label(pool_of(60, 4))
    found = made.store.labelled("test")
    assert found.stop == alone.stop.reason
    assert list(found.batches) == alone.batches
    assert (found.labels == alone.labels).all()


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
    assert found.refusals == {"hospital-1": "absent"}
    assert made.own("hospital-1") == 0
    # It may have heard the questions: the coordinator cannot know.
    assert found.differences["hospital-1"] > 0


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
    assert found.refusals == found.differences == {}
    assert made.store.faults("test") == []
    with Ledger(found.ledger) as ledger:
        for seat, balance in ledger.balances().items():
            assert made.own(seat) == balance.spent > 0
    assert f"hospital-1 ({job.batches} batches" in study_status(made.store, "test", set())["message"]


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


def test_a_round_that_waits_for_late_teachers_says_so(bench):
    made = bench(quorum=3)
    opened = _late(made, "hospital-1", 10**9)
    job = made.store.ask_job("test", student=None)
    thread = threading.Thread(target=opened.run, args=(job,), kwargs={"patience_s": 120.0})
    thread.start()
    said = "waiting for late seats: hospital-1 (25 s so far)"
    wait_until(lambda: study_status(made.store, "test", set())["message"] == said)
    made.stop.set()
    thread.join()
    opened.close()


def test_a_round_that_lasts_says_whom_it_waits_for(bench, monkeypatch):
    monkeypatch.setattr("coordinator.labelling.jobs._SAY_AFTER_S", 0.0)
    made = bench(present={"hospital-0", "hospital-2"})
    made.hub.hold = threading.Event()
    job = made.store.ask_job("test", student=None)
    opened = made.open()
    thread = threading.Thread(target=opened.run, args=(job,), kwargs={"patience_s": 120.0})
    thread.start()
    wait_until(lambda: "not connected: hospital-1" in made.store.job("test").message)
    made.hub.hold.set()
    thread.join()
    opened.close()
    assert made.store.job("test").message == "every query of the pool was asked"


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


def test_parties_that_refuse_stop_the_job_at_once_with_their_reasons(bench):
    made = bench(quorum=3)
    made.hub.refusing = {"hospital-1": "storage_failed"}
    job = made.run()
    assert job.state == "stopped"
    assert "hospital-1 (storage_failed)" in job.message
    assert "resume test" in job.message
    assert len(made.hub.asked) == 1


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


def test_a_code_that_a_party_makes_up_does_not_reach_tables(bench):
    made = bench(quorum=3)
    made.hub.refusing = {"hospital-1": "votes were 1, 0, 1"}
    job = made.run()
    assert "votes were" not in job.message
    assert made.store.faults("test")[0].code == "refused"


@pytest.mark.parametrize("rounds", [1, 2, 3, 4])
def test_a_stop_in_any_round_is_gone_on_with_without_another_charge(bench, rounds):
    made = bench()
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
    digests = {}
    for number, digest in made.hub.asked:
        assert digests.setdefault(number, digest) == digest


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
    opened.study = replace(made.study, confidentiality=guarded_study().confidentiality)
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
