"""give-up as people run it: what it says, what it refuses, and what it leaves."""

import io
import json
import shutil
import threading
import time

import pytest

from coordinator.commands.group import run_command
from coordinator.home import CoordinatorHome
from coordinator.labelling.giving_up import give_up
from coordinator.labelling.jobs import ServedStudy
from coordinator.labelling.study_creation import create_study
from coordinator.store.store import Serving, SessionRecord, Store, ledger_path
from protocols.ledger.ledger import Ledger
from protocols.study.file import write_study
from runtime.logs import Log
from tests.harness.askers import asked_study
from tests.harness.dying import Deaths, Killed
from tests.harness.operators import SETTINGS, FakeHub, add_study, make_home
from tests.harness.studies import NOW


class Bench:
    """A home with one study of three hospitals, all of whom are needed; one of them is away."""

    def __init__(self, folder, monkeypatch, capsys):
        monkeypatch.setenv("CONCLAVE_COORDINATOR_HOME", str(folder / "home"))
        self.home = make_home(folder)
        self.study = add_study(self.home, folder, quorum=3)
        self.now_ns = time.time_ns()
        self.store = Store(self.home, clock=lambda: self.now_ns)
        self.hub = FakeHub(self.study, present={"hospital-0", "hospital-1"})
        self._capsys = capsys

    def label(self):
        self.now_ns += 10 * 10**9
        opened = ServedStudy(
            self.store, "test", self.hub, guardians=None, stop=threading.Event(), on_event=Log(io.StringIO())
        )
        opened.run(self.store.ask_job("test", student=None), patience_s=0.0)
        opened.close()
        return self.store.job("test")

    def connect(self, *parties):
        sessions = [SessionRecord(party, 1.0, 2.0, "x", "s", 1) for party in parties]
        self.store.write_sessions(sessions, Serving(7, time.time(), 1, 2, 0))

    def run(self, *arguments):
        code = run_command([str(each) for each in arguments])
        out, err = self._capsys.readouterr()
        return code, out, err

    def balances(self):
        with Ledger(ledger_path(self.home, "test")) as ledger:
            return ledger.balances()


@pytest.fixture
def bench(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("coordinator.labelling.jobs._FIRST_WAIT_S", 0.01)
    monkeypatch.setattr("coordinator.labelling.jobs._LOOK_S", 0.01)
    made = Bench(tmp_path, monkeypatch, capsys)
    yield made
    made.store.__exit__()


def test_it_says_what_it_costs_and_the_study_goes_on(bench):
    assert bench.label().state == "stopped"
    charged = bench.balances()
    code, out, err = bench.run("give-up", "test", "--yes")
    assert (code, err) == (0, "")
    assert "batch 0 of test: " in out
    assert "asked of 3 seats, not released" in out
    assert "stays charged" in out
    assert "its charges are not refunded" in out
    assert "next: conclave-coordinator resume test, or release test as it is" in out
    assert bench.balances() == charged
    assert bench.hub.ledgers["hospital-0"].unsettled() == [0]
    bench.hub.present.add("hospital-2")
    first = bench.store.job("test").number
    assert bench.label().state == "finished"
    assert bench.store.job("test").number == first + 1
    assert {number for number, _ in bench.hub.asked[1:]} == set(range(1, bench.store.job("test").batches))
    for seat, balance in bench.balances().items():
        assert bench.hub.ledgers[seat].balance(seat).spent <= balance.spent
    assert [each.event for each in bench.store.entries()].count("batch_given_up") == 1


def test_the_status_names_the_batches_that_were_given_up(bench):
    bench.label()
    assert json.loads(bench.run("status", "--json")[1])["studies"][0]["given_up"] == []
    bench.run("give-up", "test", "--yes")
    assert json.loads(bench.run("status", "--json")[1])["studies"][0]["given_up"] == [0]
    assert "given up without labels, charged as reserved: batch 0" in bench.run("status")[1]


def test_in_json_it_gives_the_figures_alone_on_standard_output_and_again_is_the_same(bench):
    bench.label()
    code, out, err = bench.run("give-up", "test", "--yes", "--json")
    figures = json.loads(out)
    assert code == 0
    assert "This cannot be undone." in err
    assert (figures["study"], figures["batch"], figures["new"]) == ("test", 0, True)
    assert figures["stays_charged"] == {seat: each.reserved for seat, each in bench.balances().items()}
    code, out, err = bench.run("give-up", "test", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {**figures, "new": False}
    assert [each.event for each in bench.store.entries()].count("batch_given_up") == 1


def test_it_asks_first_and_a_no_changes_nothing(bench, monkeypatch):
    bench.label()
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    code, _, err = bench.run("give-up", "test")
    assert code == 4
    assert "error [not_confirmed]: batch 0 of 'test' stays open" in err
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert bench.run("give-up", "test")[0] == 0


def test_without_an_open_batch_it_is_refused(bench):
    code, _, err = bench.run("give-up", "test", "--yes")
    assert code == 3
    assert "study 'test' was never labelled" in err
    assert bench.run("give-up", "other", "--yes")[0] == 3
    bench.hub.present.add("hospital-2")
    assert bench.label().state == "finished"
    code, _, err = bench.run("give-up", "test", "--yes")
    assert code == 4
    assert err.startswith("error [no_open_batch]: every batch of 'test' that was asked was released or given up\n")
    assert "next: nothing" in err


@pytest.mark.parametrize(("serves", "how"), [(True, "wait until it stops"), (False, "start serve, which continues it")])
def test_while_a_labelling_runs_it_is_refused(bench, serves, how):
    bench.label()
    bench.store.ask_job("test", student=None)
    if serves:
        bench.connect()
    code, _, err = bench.run("give-up", "test", "--yes")
    assert code == 4
    assert err.startswith("error [labelling_runs]: ")
    assert how in err
    assert "next: see conclave-coordinator status; a lower patience_s" in err


def test_a_hospital_that_was_late_for_all_the_patience_is_not_back_because_it_is_connected(bench):
    bench.hub.present.add("hospital-2")
    bench.hub.refusing["hospital-2"] = "teachers_late"
    assert "hospital-2 (late) did not answer" in bench.label().message
    bench.connect("hospital-0", "hospital-1", "hospital-2")
    code, _, err = bench.run("give-up", "test", "--yes")
    assert (code, err) == (0, "")


def test_when_those_that_were_missing_are_back_it_is_refused_and_says_to_resume(bench):
    bench.label()
    bench.connect("hospital-0", "hospital-1", "hospital-2")
    code, _, err = bench.run("give-up", "test", "--yes")
    assert code == 4
    assert err.startswith("error [can_be_finished]: batch 0 waited for hospital-2, connected again; ")
    assert "next: run conclave-coordinator resume" in err
    # Whoever is connected and refuses does not help.
    bench.hub.present.add("hospital-2")
    bench.hub.refusing = {"hospital-2": "storage_failed"}
    bench.label()
    assert bench.run("give-up", "test", "--yes")[0] == 0


def test_one_that_answered_is_no_longer_missed(bench):
    bench.label()
    bench.connect("hospital-0", "hospital-1")
    assert bench.run("give-up", "test", "--yes")[0] == 0


def test_one_that_cannot_open_the_batch_is_not_waited_for(bench, monkeypatch):
    bench.label()
    monkeypatch.setattr("coordinator.labelling.giving_up.openers", lambda ledger, digest: [0, 1])
    bench.connect("hospital-0", "hospital-1", "hospital-2")
    assert bench.run("give-up", "test", "--yes")[0] == 0


@pytest.mark.parametrize("words", [("label",), ("resume",), ("release",), ("give-up", "--yes")], ids=" ".join)
def test_a_study_that_a_hospital_asks_in_is_not_the_operators_to_label(bench, tmp_path, words):
    study = asked_study()
    (tmp_path / "asked.toml").write_text(write_study(study))
    create_study(bench.store, SETTINGS, file=tmp_path / "asked.toml", pool_file=None, today=NOW.date())
    code, _, err = bench.run(words[0], "heart", *words[1:])
    assert code == 3
    assert "'asker' asks in study 'heart'" in err
    assert "allowed: a study that is labelled here" in err
    assert bench.store.job("heart") is None


@pytest.mark.parametrize("share", [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99])
def test_killed_at_any_write_it_can_be_run_again(bench, tmp_path, monkeypatch, share):
    bench.label()
    charged, suspected = bench.balances(), bench.store.differences("test")
    deaths = Deaths(monkeypatch)
    whole = _statements(bench, tmp_path / "copy", deaths)
    with Store(bench.home, clock=lambda: bench.now_ns) as store:
        deaths.arm(int(share * whole))
        with pytest.raises(Killed):
            give_up(store, "test", 0)
        deaths.disarm()
    assert bench.balances() == charged
    assert bench.store.differences("test") in ({}, suspected)
    assert bench.run("give-up", "test", "--yes")[0] == 0
    assert bench.balances() == charged
    with Ledger(ledger_path(bench.home, "test")) as ledger:
        assert ledger.given_up(0)
        assert [entry.event for entry in ledger.log.entries()].count("given_up") == 1
    assert [each.event for each in bench.store.entries()].count("batch_given_up") == 1
    bench.hub.present.add("hospital-2")
    assert bench.label().state == "finished"


def _statements(bench, folder, deaths):
    """How many statements it takes, on a copy of the home."""
    shutil.copytree(bench.home.folder, folder)
    with Store(CoordinatorHome(folder), clock=lambda: bench.now_ns) as store:
        before = deaths.statements
        give_up(store, "test", 0)
        return deaths.statements - before
