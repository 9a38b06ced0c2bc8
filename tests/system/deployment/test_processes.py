"""Real processes on loopback that are killed again and again: the study ends by itself and every promise holds."""

import json
import signal
import sqlite3
import time
from dataclasses import replace

import numpy as np
import pytest

from party.demo.demo_data import HOSPITALS, demo_data, demo_study
from protocols.ledger.ledger import Ledger
from tests.harness.clocks import wait_until
from tests.harness.local_consortium import ConsortiumHere

pytestmark = pytest.mark.usefixtures("forked")
KILLS, TIME_S = 8, 600.0
_MADE = "SELECT name FROM sqlite_master WHERE name = 'batch'"


def rows(path, query):
    """Read-only, beside the process that writes."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=300) as database:
        return database.execute(query).fetchall()


@pytest.fixture(scope="module")
def consortium(tmp_path_factory):
    data = replace(whole := demo_data(None), pool=whole.pool[:60])
    study = replace(demo_study(data).voting(batch_limit=1), quorum=3)
    made = ConsortiumHere(tmp_path_factory.mktemp("consortium"), data, study, say=lambda line: None)
    try:
        made.set_up()
        for name in HOSPITALS:
            made.start(name)
        yield made
    finally:
        made.stop()


def ledger_of(consortium, name):
    """Once it is there: a coordinator makes its ledger when it begins to label."""
    found = (consortium.folder / name / "studies").glob
    wait_until(lambda: [rows(path, _MADE) for path in found("*/ledger*.sqlite")] == [[("batch",)]])
    (path,) = found("*/ledger*.sqlite")
    return path


@pytest.mark.slow
def test_processes_that_are_killed_at_any_moment_lose_nothing_and_the_study_ends_by_itself(consortium):
    rng = np.random.default_rng()
    consortium.coordinator("label", "demo")
    central = ledger_of(consortium, "centre")
    deadline, seen = time.monotonic() + TIME_S, {}
    for kill in range(KILLS):
        before = len(rows(central, "SELECT number FROM batch WHERE settled"))
        while len(rows(central, "SELECT number FROM batch WHERE settled")) <= before:
            assert time.monotonic() < deadline, "the study did not go on"
            if json.loads(consortium.coordinator("status", "--json"))["studies"][0]["state"] in (
                "finished",
                "labelled",
            ):
                break
            time.sleep(0.05)
        time.sleep(float(rng.uniform(0, 0.05)))
        # What was released before a kill is what is released after it.
        for number, payload in rows(central, "SELECT number, payload FROM batch WHERE settled"):
            assert seen.setdefault(number, payload) == payload
        victim = "centre" if kill % 2 == 0 else HOSPITALS[int(rng.integers(4))]
        consortium.processes[victim].send_signal(signal.SIGKILL)
        consortium.processes[victim].wait()
        consortium.start(victim)
    figures = consortium.finish()
    study = consortium.study
    for number, payload in rows(central, "SELECT number, payload FROM batch WHERE settled"):
        assert seen.setdefault(number, payload) == payload
    with Ledger(central) as ledger:
        charged = ledger.balances()
        list(ledger.log.entries())
    for name in HOSPITALS:
        with Ledger(ledger_of(consortium, name)) as ledger:
            own = ledger.balance(name)
            list(ledger.log.entries())
        assert charged[name].settled <= own.spent <= own.cap == study.budgets.cap[study.seats[name]]
    assert figures["student_accuracy"] is not None
