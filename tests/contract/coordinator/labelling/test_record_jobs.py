"""A job of a study in which records vote: one batch, asked again unchanged, charged once; a student of soft labels."""

import threading
from dataclasses import replace

import numpy as np
import pytest

from coordinator.commands.group import run_command
from coordinator.connection.open_study import OpenStudy, check_all
from coordinator.labelling.jobs import ServedStudy
from coordinator.labelling.study_creation import create_study, write_pool
from coordinator.status import study_status
from coordinator.store.store import Store, ledger_path
from party.party import Party
from protocols.crypto.identity import Identity
from protocols.ledger.audit_log import EMPTY
from protocols.ledger.ledger import Ledger
from protocols.refusals.code import Code
from protocols.wire.frames import SeatHeads
from runtime.exits import Exit
from tests.harness.clocks import wait_until
from tests.harness.deployed_records import (
    FEATURES,
    HOSPITALS,
    POOL,
    record_study_of,
    record_voter,
    sum_of,
    write_queries,
)
from tests.harness.homes import study_file
from tests.harness.operators import FakeHub, make_home
from tests.harness.studies import NOW


class Records:
    """An operator's home with the study, and its hospitals in this process."""

    def __init__(self, folder, quiet, *, present=None, **how):
        self.study, self.queries = record_study_of(**how)
        self.home = make_home(folder)
        write_pool(folder / "pool.npy", POOL)
        self.store = Store(self.home)
        create_study(
            self.store,
            self.home.settings(),
            file=study_file(folder, self.study),
            pool_file=folder / "pool.npy",
            queries_file=write_queries(folder, self.queries),
            today=NOW.date(),
        )
        self.hub = FakeHub(self.study, present=present)
        self.hub.parties = {
            name: Party(
                name,
                study=self.study,
                ledger=ledger,
                voter=record_voter(self.study, self.queries, name),
                coins_from=None,
            )
            for name, ledger in self.hub.ledgers.items()
        }
        self.stop, self.log = threading.Event(), quiet

    def open(self):
        return ServedStudy(self.store, "test", self.hub, guardians=None, stop=self.stop, on_event=self.log)

    def run(self, *, without=(), patience_s=120.0):
        opened = self.open()
        opened.run(self.store.ask_job("test", student=None, without=without), patience_s=patience_s)
        opened.close()
        return self.store.job("test")


@pytest.fixture
def records(tmp_path, quiet):
    made = []

    def make(**how):
        made.append(Records(tmp_path, quiet, **how))
        return made[-1]

    yield make
    for each in made:
        each.store.__exit__()


def test_the_status_of_a_study_says_that_its_pool_is_unlike_the_records(records, monkeypatch):
    moved = (POOL + 2 * np.eye(len(FEATURES))[1]).astype(np.float32)
    for module in ("tests.harness.deployed_records", __name__):
        monkeypatch.setattr(f"{module}.POOL", moved)
    made = records(kind="graded", epsilon=50.0)
    assert made.run().state == "finished"
    said = study_status(made.store, "test", set())["message"]
    assert f"looks unlike the hospitals' records: in theirs {FEATURES[1].column} is lower" in said


def test_all_queries_are_asked_in_one_batch_and_the_sums_are_kept(records):
    made = records()
    job = made.run()
    assert (job.state, job.asked, job.batches, job.answered) == ("finished", 8, 1, 8)
    found = made.store.labelled("test")
    exact = sum(sum_of(made.study, made.queries, seat) for seat in HOSPITALS)
    noise = (found.cells - exact) / made.study.units
    assert 0 < np.abs(noise).max() < 6 * made.study.mechanism.label_sigma
    shown = study_status(made.store, "test", set())
    assert (shown["asked"], shown["pool"], shown["batches"]) == (8, 8, 1)
    assert {seat["answers_left"] for seat in shown["seats"]} == {0}
    for name in HOSPITALS:
        assert made.hub.ledgers[name].balance(name).spent == made.study.budgets.amount(1, 1)[0]
    assert found.differences == {}


def test_a_job_waits_for_its_quorum_asks_the_very_same_and_charges_nobody_twice(records):
    made = records(quorum=3, present=set(HOSPITALS[:2]))
    opened = made.open()
    thread = threading.Thread(
        target=opened.run,
        args=(made.store.ask_job("test", student=None, without=HOSPITALS[2:]),),
        kwargs={"patience_s": 120.0},
    )
    thread.start()
    wait_until(lambda: len(made.hub.asked) >= 2)
    made.hub.present.add(HOSPITALS[2])
    thread.join()
    opened.close()
    assert made.store.job("test").state == "finished"
    assert len(set(made.hub.asked)) == 1
    for name in HOSPITALS:
        assert made.hub.ledgers[name].balance(name).spent == made.study.budgets.amount(1, 1)[0]


def test_a_serve_that_ends_and_begins_again_releases_the_same_sums_and_asks_nobody(records):
    made = records()
    made.run()
    first, asked = made.store.labelled("test").cells, list(made.hub.asked)
    made.run()
    np.testing.assert_array_equal(made.store.labelled("test").cells, first)
    assert made.hub.asked == asked


def test_a_hospital_that_is_absent_is_left_out_and_the_others_records_count(records):
    made = records(present=set(HOSPITALS[:2]))
    assert made.run(without=HOSPITALS[2:]).state == "finished"
    found = made.store.labelled("test")
    assert found.left_out == {0: {HOSPITALS[2]: "absent"}}
    exact = sum(sum_of(made.study, made.queries, seat) for seat in HOSPITALS[:2])
    assert np.abs(found.cells - exact).max() / made.study.units < 6 * made.study.mechanism.label_sigma


def test_a_study_that_is_asked_once_waits_for_every_hospital_or_for_the_operator_to_decide(records, capsys):
    made = records(present=set(HOSPITALS[:2]))
    job = made.run(patience_s=0.0)
    assert (job.state, job.asked, made.hub.asked) == ("stopped", 0, [])
    assert f"resume test --without {HOSPITALS[2]}" in job.message
    at = ["--home", str(made.home.folder)]
    assert run_command(["resume", "test", "--without", "nobody", *at]) == Exit.INVALID_INPUT
    # While it waits, the operator decides: the job that is open goes on.
    opened = made.open()
    thread = threading.Thread(
        target=opened.run, args=(made.store.ask_job("test", student=None),), kwargs={"patience_s": 120.0}
    )
    thread.start()
    wait_until(lambda: HOSPITALS[2] in made.store.job("test").message)
    assert made.hub.asked == []
    assert run_command(["label", "test", "--without", HOSPITALS[2], *at]) == 0
    thread.join()
    opened.close()
    assert made.store.job("test").state == "finished"
    # A hospital that was not there is told when it comes back, and one that was is served.
    with Ledger(ledger_path(made.home, "test")) as ledger:
        place = OpenStudy(made.study, ledger, None)
        own = Identity("coordinator", "coordinator", None)
        seats = [SeatHeads(made.study.digest, name, EMPTY, EMPTY, ()) for name in HOSPITALS]
        assert [
            refused.code
            for each in seats
            for refused in check_all({made.study.digest: place}, each.seat, [each], own=own)[1]
        ] == [Code.ASKED_WITHOUT]
        assert check_all({made.study.digest: place}, HOSPITALS[2], [replace(seats[2], untold=(b"1" * 32,))],
                         own=own)[1] == ()  # fmt: skip


def test_a_hospital_whose_line_is_lost_while_it_is_asked_is_waited_for_and_not_left_out(records):
    made = records(quorum=2)
    made.hub.refusing = {HOSPITALS[2]: "absent"}
    job = made.run(patience_s=0.0)
    assert (job.state, job.asked) == ("stopped", 0)
    assert f"resume test --without {HOSPITALS[2]}" in job.message
    made.hub.refusing = {}
    assert made.run().state == "finished"
    found = made.store.labelled("test")
    assert (found.left_out, len(set(made.hub.asked))) == ({}, 1)
    exact = sum(sum_of(made.study, made.queries, seat) for seat in HOSPITALS)
    assert np.abs(found.cells - exact).max() / made.study.units < 6 * made.study.mechanism.label_sigma


def test_the_commands_train_a_student_on_soft_labels_and_release_it(records, tmp_path, capsys):
    made = records(epsilon=20.0)
    made.run()
    at = ["--home", str(made.home.folder)]
    assert run_command(["train", "test", "--student", "logistic_regression", *at]) == 0
    assert "trained on 40 soft labels of the public pool" in capsys.readouterr().out
    unproven = [part for name in HOSPITALS for part in ("--unproven", name)]
    out = tmp_path / "release"
    assert run_command(["release", "test", "--out", str(out), *unproven, *at]) == 0
    given = ["--pool", str(made.home.study("test") / "pool.npy"), "--authority", str(made.home.authority_file)]
    assert run_command(["verify", str(out), *given]) == Exit.PARTLY  # no receipts
    assert "the soft labels of 40 public records follow from the sums" in capsys.readouterr().out
    assert (out / "student.onnx").is_file()
