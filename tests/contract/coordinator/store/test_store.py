"""Studies, jobs and what they leave, under any order of steps."""

import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from coordinator.home import CoordinatorHome
from coordinator.store.store import Serving, SessionRecord, Store
from protocols.errors import DataUnavailable, InvalidInput, StorageFailed
from protocols.labelling.coordinator import Labelling
from protocols.labelling.schedule import Stop
from tests.harness.dying import Deaths, Killed, what_the_disk_has
from tests.harness.operators import add_study, make_home
from tests.harness.refusals import refuses
from tests.harness.studies import deployed_study

STUDY = deployed_study(2)
RANK = {"waiting": 0, "running": 1, "finished": 2, "stopped": 2, "failed": 2}


def labelling(answered: int, reason: str = "pool_exhausted") -> Labelling:
    labels = np.full(60, -1, dtype=np.int64)
    labels[:answered] = 1
    stop = Stop(reason, np.zeros(2, dtype=bool))
    unset, batch = np.full(60, -1, dtype=np.int64), np.zeros(60, dtype=np.int64)
    return Labelling(labels, [(60, answered)], stop, np.zeros(2, dtype=np.int64), unset, batch)


class JobMachine(RuleBasedStateMachine):
    """Jobs of one study: one open at a time, forward only, and labels as soon as one has ended."""

    @initialize()
    def open(self):
        self.folder = Path(tempfile.mkdtemp())
        self.store = Store(CoordinatorHome(self.folder))
        self.store.add_study(STUDY)
        self.states: dict[int, str] = {}
        self.asked: dict[int, int] = {}

    def teardown(self):
        if hasattr(self, "store"):
            self.store.__exit__()
            shutil.rmtree(self.folder)

    def current(self):
        return self.store.job("test")

    @rule()
    def ask(self):
        before = self.current()
        made = self.store.ask_job("test", student=None)
        if before is not None and not before.ended:
            assert made == before
        else:
            assert made.number not in self.states
            assert made.state == "waiting"
            assert made.asked == (before.asked if before else 0)
        self.states.setdefault(made.number, made.state)
        self.asked.setdefault(made.number, made.asked)

    @precondition(lambda self: self.states)
    @rule(pick=st.integers(0, 4))
    def start(self, pick):
        number = self.picked(pick)
        self.move(number, "running", lambda: self.store.start_job(number))

    @precondition(lambda self: self.states)
    @rule(pick=st.integers(0, 4), state=st.sampled_from(["finished", "stopped", "failed"]))
    def end(self, pick, state):
        number = self.picked(pick)
        self.move(number, state, lambda: self.store.end_job(number, state, "because", None))

    @precondition(lambda self: self.states)
    @rule(pick=st.integers(0, 4), asked=st.integers(0, 9))
    def advance(self, pick, asked):
        number = self.picked(pick)
        try:
            self.store.advance_job(number, batches=min(1, asked), asked=asked, answered=asked, message="")
        except StorageFailed:
            assert RANK[self.states[number]] == 2 or asked < self.asked[number]
            return
        assert RANK[self.states[number]] < 2
        assert asked >= self.asked[number]
        self.asked[number] = asked

    @precondition(lambda self: hasattr(self, "store"))
    @rule()
    def restart(self):
        self.store.__exit__()
        self.store = Store(CoordinatorHome(self.folder))

    def picked(self, pick):
        """A job, the newest most often."""
        return sorted(self.states, reverse=True)[min(pick // 2, len(self.states) - 1)]

    def move(self, number, state, step):
        try:
            step()
        except StorageFailed:
            assert RANK[self.states[number]] == 2
            return
        assert RANK[self.states[number]] < 2
        self.states[number] = state

    @invariant()
    def jobs_are_as_they_were_last_moved_and_one_is_open(self):
        if hasattr(self, "store"):
            rows = self.store._database.rows("SELECT number, state, asked FROM job")
            assert {number: state for number, state, _ in rows} == self.states
            assert {number: asked for number, _, asked in rows} == self.asked
            assert len(self.store.open_jobs()) <= 1
            self.store.entries()


TestJobMachine = JobMachine.TestCase
TestJobMachine.settings = settings(max_examples=20, stateful_step_count=30, deadline=None)


def test_labels_and_the_end_of_their_job_are_stored_in_one_step(tmp_path, monkeypatch):
    deaths = Deaths(monkeypatch)

    def run(store):
        store.end_job(1, "finished", "done", labelling(7))

    def ready(folder):
        folder.mkdir()
        store = Store(CoordinatorHome(folder))
        store.add_study(STUDY)
        store.start_job(store.ask_job("test", student=None).number)
        return store

    store = ready(tmp_path / "counted")
    started = deaths.statements
    run(store)
    total = deaths.statements - started
    store.__exit__()
    for at in range(total):
        folder = tmp_path / f"killed-{at}"
        store = ready(folder)
        deaths.arm(at)
        with pytest.raises(Killed):
            run(store)
        deaths.disarm()
        left = what_the_disk_has(folder / "store.sqlite", folder / "left")
        store.__exit__()
        with Store(CoordinatorHome(left.parent)) as found:
            assert [job.state for job in found.open_jobs()] == ["running"]
            assert found._database.rows("SELECT * FROM labelled") == []
            assert found.entries()[-1].event == "job_started"
    assert total >= 5


def test_what_a_labelling_left_is_read_back(tmp_path):
    home = make_home(tmp_path)
    study = add_study(home, tmp_path)
    with Store(home) as store:
        with refuses(DataUnavailable, "label test"):
            store.labelled("test")
        job = store.ask_job("test", student=None)
        store.start_job(job.number)
        store.add_faults("test", 0, {"hospital-1": "absent"}, {"hospital-1": 5})
        store.add_faults("test", 1, {"hospital-1": "storage_failed"}, {"hospital-1": 4, "hospital-0": 1})
        with store.together():
            store.ledger_differences.told("test", {"hospital-0": 0}, open_batch=None)
        store.end_job(job.number, "finished", "done", labelling(7))
        found = store.labelled("test")
        assert found.study == study
        assert (found.labels == labelling(7).labels).all()
        assert found.batches == ((60, 7),)
        assert found.stop == "pool_exhausted"
        assert found.left_out == {0: {"hospital-1": "absent"}, 1: {"hospital-1": "storage_failed"}}
        assert store.withdrawals.add("hospital-1", [study.digest]) == ["test"]
        assert store.withdrawals.add("hospital-1", [study.digest]) == []
        store.add_faults("test", 2, {"hospital-1": "unknown_study"}, {})
        assert store.labelled("test").left_out[2] == {"hospital-1": "withdrawn"}
        assert found.differences == {"hospital-1": 9}
        assert found.pool.exists()
        assert found.ledger == home.study("test") / "ledger.sqlite"


def test_seats_that_a_study_is_done_without_stay_so_for_later_jobs_whatever_their_groups_are_called(tmp_path):
    with Store(CoordinatorHome(tmp_path)) as store:
        store.add_study(STUDY)
        for seats in (("west/high risk",), (), ("east",), ("north/two words", "east")):
            store.end_job(store.ask_job("test", student=None, without=seats).number, "stopped", "", None)
        assert store.job("test").without == ("west/high risk", "east", "north/two words")
        said = [each.fields["seats"] for each in store.entries() if each.event == "job_without"]
    assert said == ["west/high risk", "east", "north/two words,east"]


def test_the_same_fault_again_is_counted(tmp_path):
    home = make_home(tmp_path)
    add_study(home, tmp_path)
    with Store(home) as store:
        for _ in range(3):
            store.add_faults("test", 4, {"hospital-2": "absent"}, {})
        assert [(f.number, f.seat, f.code, f.times) for f in store.faults("test")] == [(4, "hospital-2", "absent", 3)]


def test_a_study_is_its_name_and_its_terms(tmp_path):
    home = make_home(tmp_path)
    add_study(home, tmp_path)
    with Store(home) as store:
        with refuses(InvalidInput, "exists"):
            store.add_study(deployed_study(3))
        with refuses(DataUnavailable, "test"):
            store.study("other")
        file = home.study("test") / "study.toml"
        file.write_text(file.read_text().replace("quorum = 1", "quorum = 2"))
        with pytest.raises(InvalidInput, match="was changed since"):
            store.study("test")


def test_sessions_are_those_that_serve_wrote_last(tmp_path):
    with Store(CoordinatorHome(tmp_path)) as store:
        store.write_sessions([SessionRecord("a", 1.0, 2.0, "x", "s", 1), SessionRecord("b", 1.0, 2.0, "y", "s", 1)],
                             Serving(7, 3.0, 1, 2, 0))  # fmt: skip
        store.write_sessions([SessionRecord("b", 1.0, 4.0, "y", "s", 1)], Serving(7, 5.0, 1, 2, 0))
        assert [(each.party, each.last_seen_s) for each in store.sessions()] == [("b", 4.0)]
        assert store.serving() == Serving(7, 5.0, 1, 2, 0)
        store.clear_sessions()
        assert store.sessions() == []
        assert store.serving() is None


def test_an_altered_audit_log_is_noticed(tmp_path):
    with Store(CoordinatorHome(tmp_path)) as store:
        store.add_study(STUDY)
        store.ask_job("test", student=None)
        store._database.connection.execute("DROP TRIGGER audit_stays")
        store._database.connection.execute("UPDATE audit SET entry = replace(entry, 'job', 'jib') WHERE count = 2")
        with refuses(Exception, "entry 2"):
            store.entries()
