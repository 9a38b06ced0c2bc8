"""A receipt that says more than any budget: serve goes on, its sender is named, and every figure stays whole."""

from functools import partial

import pytest

from coordinator.store.store import Store
from protocols.wire.messages import Refusal, Settled
from tests.harness.clocks import wait_until
from tests.harness.operators import add_study, make_home
from tests.harness.served_homes import Hospital, Served


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("coordinator.labelling.jobs._FIRST_WAIT_S", 0.05)
    monkeypatch.setattr("coordinator.labelling.jobs._LOOK_S", 0.01)
    monkeypatch.setattr("coordinator.serving._LOOK_S", 0.02)


class Lying:
    """A party that settles, and says another figure; then it refuses, as far as `times` goes."""

    def __init__(self, party, spent, times):
        self._party, self._spent, self._left = party, spent, times
        self.name = party.name

    def handle(self, request):
        reply = self._party.handle(request)
        if not isinstance(reply, Settled):
            return reply
        self._left -= 1
        return Settled(reply.batch_digest, self._spent) if self._left >= 0 else Refusal("no", "no")


@pytest.mark.parametrize(("spent", "times"), [(2**64 - 1, 99), (2**63, 99), (2**63 - 1, 1), (2**52 + 1, 1)])
def test_serve_goes_on_and_names_who_says_that_it_spent_more_than_any_cap(tmp_path, spent, times):
    home = make_home(tmp_path)
    study = add_study(home, tmp_path, quorum=3)
    cap = int(study.budgets.cap[1])
    hospitals = []
    with Served(home) as served, Store(home) as store:
        try:
            hospitals += [Hospital(f"hospital-{n}", home, study, tmp_path, served.serving.port) for n in (0, 2)]
            lies = partial(Lying, spent=spent, times=times)
            hospitals.append(Hospital("hospital-1", home, study, tmp_path, served.serving.port, acts=lies))
            store.ask_job("test", student=None)
            wait_until(lambda: store.job("test").ended or served.error is not None)
            assert served.error is None
            assert store.job("test").state == "finished"
            told = {fault.code for fault in store.faults("test") if fault.seat == "hospital-1"}
            assert "outcome_bad_receipt" in told
            # What is counted is what the seat may have reserved, and not what it says.
            assert 0 <= store.differences("test")["hospital-1"] <= cap
            assert {fault.seat for fault in store.faults("test")} == {"hospital-1"}
            assert (store.labelled("test").labels >= -1).any()
        finally:
            for hospital in hospitals:
                hospital.close()
    assert served.error is None
    assert any(event.get("seat") == "hospital-1" and event["event"] == "refusal" for event in served.events())


def test_differences_add_up_beyond_what_sqlite_adds(tmp_path):
    home = make_home(tmp_path)
    add_study(home, tmp_path)
    with Store(home) as store:
        store.add_faults("test", 0, {"hospital-1": "outcome_refused"}, {"hospital-1": 2**62})
        with store.together():
            store.ledger_differences.told("test", {"hospital-1": 2**63 - 1}, open_batch=0)
        assert store.differences("test") == {"hospital-1": 2**63 - 1 + 2**62}
