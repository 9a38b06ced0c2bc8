"""By how much ledgers may differ: never said too low, whatever was lost, given up, or told again after a stop."""

import io
import threading

import pytest

from coordinator.labelling.giving_up import give_up
from coordinator.labelling.jobs import ServedStudy
from coordinator.store.store import Store, ledger_path
from protocols.labelling.coordinator import Coordinator
from protocols.ledger.ledger import Ledger
from protocols.wire.messages import VoteRequest
from runtime.logs import Log
from tests.harness.operators import FakeHub, add_study, make_home


class Killed(BaseException):
    """In place of a process that ends."""


class Bench:
    """A study of three hospitals. Of its first batch one reply is lost: that hospital is charged, and not counted."""

    def __init__(self, folder, *, quorum):
        self.home = make_home(folder)
        self.hub = FakeHub(add_study(self.home, folder, quorum=quorum, batch_limit=10))
        self.store = Store(self.home)
        self.leaving = set()
        self._open_study, self.hub.open_study = self.hub.open_study, self._lossy

    def _lossy(self, *what, **how):
        real = self._open_study(*what, **how)

        def exchange(requests):
            first = next(iter(requests.values()))
            if isinstance(first, VoteRequest) and first.batch.number == 0:
                return {**real(requests), "hospital-0": None}
            if isinstance(first, VoteRequest):
                self.hub.present -= self.leaving
            return real(requests)

        return exchange

    def label(self):
        opened = ServedStudy(
            self.store, "test", self.hub, guardians=None, stop=threading.Event(), on_event=Log(io.StringIO())
        )
        try:
            opened.run(self.store.ask_job("test", student=None), patience_s=0.0)
        finally:
            opened.close()

    @property
    def said(self):
        return self.store.differences("test")

    @property
    def real(self):
        """By how much each ledger stands higher, where it does."""
        with Ledger(ledger_path(self.home, "test")) as ledger:
            balances = ledger.balances()
        higher = {seat: self.hub.ledgers[seat].balance(seat).spent - each.spent for seat, each in balances.items()}
        return {seat: nano for seat, nano in higher.items() if nano > 0}


@pytest.fixture
def bench(tmp_path, monkeypatch):
    monkeypatch.setattr("coordinator.labelling.jobs._FIRST_WAIT_S", 0.01)
    monkeypatch.setattr("coordinator.labelling.jobs._LOOK_S", 0.01)
    made = []

    def make(**how):
        made.append(Bench(tmp_path, **how))
        return made[-1]

    yield make
    for each in made:
        each.store.__exit__()


def test_giving_a_batch_up_says_nothing_of_an_earlier_one(bench):
    made = bench(quorum=2)
    made.leaving = {"hospital-1", "hospital-2"}
    made.label()
    give_up(made.store, "test", 1)
    assert made.real.keys() == {"hospital-0"}
    assert made.said == made.real


def test_an_outcome_told_again_after_a_stop_adds_to_what_was_known(bench, monkeypatch):
    made = bench(quorum=1)
    tell = Coordinator._tell

    def die(self, stored, *what, **how):
        if stored.number == 1:
            raise Killed
        tell(self, stored, *what, **how)

    monkeypatch.setattr(Coordinator, "_tell", die)
    with pytest.raises(Killed):
        made.label()
    before = made.said["hospital-0"]
    monkeypatch.setattr(Coordinator, "_tell", tell)
    made.hub.present -= {"hospital-0", "hospital-1"}
    made.label()
    assert made.real["hospital-0"] >= before > 0
    assert all(made.said[seat] >= nano for seat, nano in made.real.items())


def test_what_a_seat_tells_takes_the_place_of_all_that_was_suspected_of_it_alone(bench):
    made = bench(quorum=1)
    with made.store.together():
        differences = made.store.ledger_differences
        differences.suspect("test", 0, {"hospital-0": 3, "hospital-1": 4})
        differences.suspect("test", 1, {"hospital-0": 10})
        differences.told("test", {"hospital-0": -2, "hospital-2": 0}, open_batch=None)
    assert made.said == {"hospital-0": -2, "hospital-1": 4}


def test_what_a_seat_tells_leaves_the_batch_that_is_open_suspected(bench):
    made = bench(quorum=1)
    with made.store.together():
        differences = made.store.ledger_differences
        differences.suspect("test", 0, {"hospital-0": 3})
        differences.suspect("test", 1, {"hospital-0": 10})
        differences.told("test", {"hospital-0": 1}, open_batch=1)
        assert made.said == {"hospital-0": 11}
        differences.drop("test", 1)
    assert made.said == {"hospital-0": 1}
