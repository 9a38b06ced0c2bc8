import numpy as np
import pytest

from coordinator.status import alive, job_line, read_status, study_status, waiting_line
from coordinator.store.store import Serving, SessionRecord, Store, ledger_path
from protocols.ledger.ledger import Ledger
from tests.harness.amounts import nano
from tests.harness.operators import add_study, enrol, make_home


@pytest.fixture
def home(tmp_path):
    return make_home(tmp_path)


def test_before_anything_is_asked_every_answer_is_left(home, tmp_path):
    study = add_study(home, tmp_path)
    with Store(home) as store:
        shown = study_status(store, "test", set())
    assert shown["state"] == "created"
    left = study.budgets.affordable(np.zeros(3, dtype=np.int64), limit=study.query_limit)
    assert [seat["answers_left"] for seat in shown["seats"]] == left.tolist()
    assert [seat["epsilon_used"] for seat in shown["seats"]] == [0.0] * 3
    assert all(seat["epsilon_guaranteed"] <= 20.0 for seat in shown["seats"])


def test_what_a_ledger_holds_is_taken_off_the_answers_and_on_the_budget_used(home, tmp_path):
    study = add_study(home, tmp_path)
    with Store(home) as store:
        before = study_status(store, "test", {"hospital-1"})["seats"]
        with Ledger(ledger_path(home, "test")) as ledger:
            ledger.open_accounts(
                nano({seat.party: int(cap) for seat, cap in zip(study.roster, study.budgets.cap, strict=True)})
            )
            half = int(study.budgets.cap[1]) // 2
            ledger.reserve(0, bytes(32), {"hospital-1": half}, b"", queries=[0], limit=2000)
        after = study_status(store, "test", {"hospital-1"})["seats"]
    assert after[0] == before[0]
    assert after[1]["answers_left"] < before[1]["answers_left"]
    spent = np.array([0, half, 0], dtype=np.int64)
    assert after[1]["epsilon_used"] == pytest.approx(float(study.budgets.epsilon_of(spent)[1]))
    assert [seat["connected"] for seat in after] == [False, True, False]


def test_nobody_is_connected_when_serve_is_gone(home):
    with Store(home) as store:
        sessions = [SessionRecord("a", 1.0, 2.0, "x", "s", 1)]
        store.write_sessions(sessions, Serving(7, 1000.0, 1, 2, 0))
        assert [each["party"] for each in read_status(store, now_s=1009.9)["connected"]] == ["a"]
        assert alive(store, now_s=1009.9) is not None
        # It was killed: nothing took its row away.
        assert read_status(store, now_s=1010.0)["connected"] == []
        assert read_status(store, now_s=1010.0)["serving"] is None


def test_whoever_waits_for_labels_is_told_that_serve_is_gone(home, tmp_path):
    add_study(home, tmp_path)
    with Store(home) as store:
        job = store.ask_job("test", student=None)
        store.write_sessions([], Serving(7, 1000.0, 1, 2, 0))
        assert waiting_line(store, job, 60, now_s=1001) == job_line(job, 60)
        assert "not running; start it: conclave-coordinator serve" in waiting_line(store, job, 60, now_s=1010)


def test_a_party_is_shown_by_its_newest_certificate(home):
    with Store(home) as store:
        enrol(home, store, "a")
        store.members.revoke(name="a", serial=None, reason="lost", now_s=1)
        assert read_status(store, now_s=0)["parties"][0]["revoked"] == "lost"
        enrol(home, store, "a")
        newest = [each for each in store.members.certificates() if each.name == "a"][-1]
        (party,) = read_status(store, now_s=newest.not_after_s - 36 * 3600)["parties"]
    assert party["revoked"] is None
    assert party["days_left"] == 1.5
