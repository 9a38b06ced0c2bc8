"""The audit log: a chain in which nothing can be changed, and heads by which copies and backups are found out."""

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import BudgetExceeded, DataCorrupt
from protocols.ledger.audit_log import EMPTY, Head
from protocols.ledger.ledger import Ledger
from tests.harness.amounts import nano
from tests.harness.refusals import refused_for


@pytest.fixture
def ledger():
    ticks = iter(range(1000))
    with Ledger(":memory:", clock=lambda: next(ticks)) as made:
        made.open_accounts(nano({"a": 100}))
        yield made


def test_every_charge_and_settlement_is_an_entry_of_the_transaction_that_makes_it(ledger):
    ledger.reserve(0, b"d" * 32, {"a": 60}, b"", queries=[0, 1], limit=2000)
    with pytest.raises(BudgetExceeded):
        ledger.reserve(1, b"e" * 32, {"a": 60}, b"", queries=[2], limit=2000)
    ledger.settle(0, b"d" * 32, {"a": 20})
    ledger.settle(0, b"d" * 32, {"a": 20})
    entries = list(ledger.log.entries())
    assert [(entry.event, entry.fields["total"]) for entry in entries] == [("reserved", 60), ("settled", 20)]
    assert [entry.time_ns for entry in entries] == [0, 1]
    assert ledger.log.head().count == 2
    # What was refused left nothing behind, not even its batch.
    assert ledger.stored(1) is None


@given(st.integers(0, 4), st.sampled_from(["entry", "hash", "delete", "swap"]))
def test_a_changed_or_missing_entry_is_found(at, how):
    ledger = Ledger(":memory:")
    for number in range(5):
        ledger.log.append("happened", number=number)
    database: sqlite3.Connection = ledger._database
    for trigger in ("audit_stays", "audit_is_never_deleted"):
        database.execute(f"DROP TRIGGER {trigger}")
    if how == "entry":
        database.execute("UPDATE audit SET entry = replace(entry, 'happened', 'happenec') WHERE count = ?", (at + 1,))
    elif how == "hash":
        database.execute("UPDATE audit SET hash = zeroblob(32) WHERE count = ?", (at + 1,))
    elif how == "delete":
        database.execute("DELETE FROM audit WHERE count = ?", (at + 1,))
    else:
        database.execute("UPDATE audit SET entry = (SELECT entry FROM audit WHERE count = ?)", ((at + 1) % 5 + 1,))
    if how == "delete" and at == 4:
        # A log whose end is cut off is a log: that it was longer, the other side knows.
        assert len(list(ledger.log.entries())) == 4
    else:
        with pytest.raises(DataCorrupt, match="changed or removed"):
            list(ledger.log.entries())
    ledger.close()


def test_a_log_knows_its_own_heads_and_no_others(ledger):
    log = ledger.log
    assert log.head() == EMPTY
    heads = [EMPTY, *(log.append("happened", number=number) for number in range(3))]
    for head in heads:
        assert log.contains(head)
        log.check_known(head, by="the other side")
    for head in (Head(4, heads[3].hash), Head(2, heads[3].hash), Head(0, heads[3].hash)):
        with refused_for("ledger_rolled_back"):
            log.check_known(head, by="the other side")


def test_the_other_sides_head_only_moves_forward(ledger):
    log = ledger.log
    assert log.peer("h") == EMPTY
    log.remember("h", Head(3, b"x" * 32), proof=b"signed")
    log.remember("h", Head(3, b"x" * 32), proof=b"again")
    for head in (Head(2, b"x" * 32), Head(3, b"y" * 32), EMPTY):
        with refused_for("peer_rolled_back"):
            log.remember("h", head, proof=b"")
    log.remember("h", Head(5, b"z" * 32), proof=b"signed")
    assert log.peer("h") == Head(5, b"z" * 32)


def test_the_first_evidence_of_its_kind_stays(ledger):
    ledger.log.keep(1, "h", "outcome", b"first")
    ledger.log.keep(1, "h", "outcome", b"second")
    ledger.log.keep(0, "h", "settled", b"other")
    assert ledger.log.evidence() == [(0, "h", "settled", b"other"), (1, "h", "outcome", b"first")]


def test_steps_taken_together_are_kept_together_or_not_at_all(ledger):
    def steps():
        with ledger.log.together():
            ledger.log.append("happened")
            ledger.reserve(0, b"d" * 32, {"a": 60}, b"", queries=[0], limit=2000)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        steps()
    assert ledger.log.head() == EMPTY
    assert ledger.balance("a").spent == 0
    with ledger.log.together():
        ledger.log.append("happened")
        with pytest.raises(BudgetExceeded):
            ledger.reserve(0, b"d" * 32, {"a": 600}, b"", queries=[0], limit=2000)
    assert ledger.log.head().count == 1
    assert ledger.stored(0) is None
