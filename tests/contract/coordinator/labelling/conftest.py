"""A home with one study and a hub without sockets, whose jobs wait for hundredths of seconds."""

import threading

import pytest

from coordinator.labelling.jobs import ServedStudy
from coordinator.store.store import Store
from runtime.logs import Log
from tests.harness.operators import FakeHub, add_study, make_home


@pytest.fixture
def quiet():
    import io

    return Log(io.StringIO())


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("coordinator.labelling.late_seats._FIRST_LATE_S", 0.01)
    monkeypatch.setattr("coordinator.labelling.jobs._LOOK_S", 0.01)
    monkeypatch.setattr("coordinator.labelling.jobs._FIRST_WAIT_S", 0.01)


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
