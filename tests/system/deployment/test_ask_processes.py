"""`conclave-party ask` among real processes: killed and interrupted at every kind of point, it goes on and ends."""

import csv
import json
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks.asked_processes import ASKER, AskedProcesses
from protocols.ledger.ledger import Ledger
from protocols.study.file import read_study
from tests.harness.clocks import wait_until

pytestmark = pytest.mark.usefixtures("forked")
ROOT = Path(__file__).parents[3]
HOST = ROOT / "tests" / "harness" / "ask_host.py"
TIME_S, BATCH, QUERIES, MORE = 600.0, 2, 10, 12


@pytest.fixture(scope="module")
def consortium(tmp_path_factory):
    made = AskedProcesses(tmp_path_factory.mktemp("asked"), queries=MORE, batch=BATCH, quorum=3, deadline_s=300.0)
    table = made.folder / "new.csv"
    rows = table.read_text().splitlines(keepends=True)
    table.write_text("".join(rows[: 1 + QUERIES]))
    (made.folder / "more.csv").write_text("".join(rows))
    try:
        made.start_all()
        yield made
    finally:
        made.stop()


def started(consortium, *host):
    """`ask` as a process, of the host that gets a signal, or of people's own program."""
    program = [sys.executable, str(HOST), *host] if host else [sys.executable, "-m", "party"]
    return subprocess.Popen(
        [*program, *consortium.words()], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )


def own_ledger(consortium):
    found = list((consortium.folder / ASKER / "studies").glob("*/asked.sqlite"))
    return found[0] if found else None


def released(consortium):
    """The labels that were stored, by batch."""
    path = own_ledger(consortium)
    if path is None:
        return {}
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=300) as database:
        return dict(database.execute("SELECT number, payload FROM batch WHERE settled").fetchall())


def has_asked(consortium):
    """Whether a batch is reserved."""
    path = own_ledger(consortium)
    if path is None:
        return False
    with Ledger(path) as own:
        return bool(own.unsettled())


def spent(consortium):
    """What each hospital's own ledger says."""
    found = []
    for name in consortium.names:
        (path,) = (consortium.folder / name / "studies").glob("*/ledger*.sqlite")
        with Ledger(path) as ledger:
            found.append(ledger.balance(name).spent)
    return found


@pytest.mark.slow
def test_wherever_it_is_stopped_the_same_command_ends_it_with_the_same_labels_and_nothing_charged_twice(consortium):
    study, seen = read_study(consortium.study_file), {}
    a_batch = np.array(study.budgets.amount(np.full(3, BATCH), np.full(3, BATCH)))
    batches, deadline = QUERIES // BATCH, time.monotonic() + TIME_S

    def stopped(point, name, *, charged):
        """charged: the batches that every hospital has charged by then. Labels that were known stay as they are."""
        process = started(consortium, point, name)
        _, said = process.communicate(timeout=deadline - time.monotonic())
        if name == "SIGINT":
            assert process.returncode == 130, said
            assert said.rstrip().endswith("interrupted; run the same command again")
        else:
            assert process.returncode == -signal.SIGKILL, said
        assert "Traceback" not in said
        for number, payload in released(consortium).items():
            assert seen.setdefault(number, payload) == payload, "released otherwise"
        assert spent(consortium) == (charged * a_batch).tolist(), f"{name}, {point}"

    stopped("reserved", "SIGINT", charged=0)
    stopped("voted", "SIGKILL", charged=1)
    stopped("counting", "SIGINT", charged=1)
    assert not seen
    # The votes of the first batch are noted, so it is the second's that come next.
    stopped("voted", "SIGINT", charged=2)
    stopped("told", "SIGKILL", charged=2)
    stopped("reserved", "SIGKILL", charged=2)
    stopped("counting", "SIGKILL", charged=3)
    stopped("told", "SIGINT", charged=3)
    assert len(seen) == 3
    stopped("writing", "SIGKILL", charged=batches)
    assert not (consortium.folder / "labels.csv").exists()
    assert len(seen) == batches
    stopped("training", "SIGINT", charged=batches)
    labels = (consortium.folder / "labels.csv").read_text()
    process = started(consortium)
    _, said = process.communicate(timeout=deadline - time.monotonic())
    assert process.returncode == 0, said
    assert (consortium.folder / "labels.csv").read_text() == labels
    assert spent(consortium) == (batches * a_batch).tolist()
    names = read_study(consortium.study_file).terms.class_names
    with (consortium.folder / "labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    stored = np.concatenate([np.frombuffer(seen[number], dtype="<i8") for number in sorted(seen)])
    assert [row["label"] for row in rows] == [names[label] for label in stored]
    figures = json.loads((consortium.folder / "labels.report.json").read_text())
    assert figures["answered"] == QUERIES
    assert figures["left_out"] == {}
    (at_guardian,) = (consortium.folder / "notary" / "studies").glob("*/ledger.sqlite")
    with Ledger(at_guardian) as guardians, Ledger(own_ledger(consortium)) as own:
        assert [guardians.balance(name).spent for name in consortium.names] == spent(consortium)
        assert [own.balance(name).spent for name in consortium.names] == spent(consortium)
        assert own.unsettled() == guardians.unsettled() == []
    ends_while_a_hospital_is_silent(consortium)


def ends_while_a_hospital_is_silent(consortium):
    """Ctrl-C ends it without the answer of a hospital whose node is frozen; then it asks about records added since."""
    seen, deadline = released(consortium), time.monotonic() + TIME_S
    frozen = consortium.processes[consortium.names[0]]
    (consortium.folder / "new.csv").write_text((consortium.folder / "more.csv").read_text())
    frozen.send_signal(signal.SIGSTOP)
    try:
        process = started(consortium)
        assert f"hospitals about {MORE} records" in process.stderr.readline()
        wait_until(lambda: has_asked(consortium), timeout_s=TIME_S)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=deadline - time.monotonic())
        assert process.returncode == 130, said
    finally:
        frozen.send_signal(signal.SIGCONT)
    # A line that was silent may be cut in the middle of a batch: the same command goes on.
    while True:
        process = started(consortium)
        _, said = process.communicate(timeout=deadline - time.monotonic())
        if "[quorum_lost]" not in said:
            break
    assert process.returncode == 0, said
    assert {number: payload for number, payload in released(consortium).items() if number in seen} == seen
    assert len(released(consortium)) == MORE // BATCH
