"""Every statement that could lower what is recorded, with its guard: docs/explanation/ledgers.md has the same table."""

import ast
import re
import sqlite3
from pathlib import Path

import pytest

from party.budget.policy import Policy
from party.budget.watermarks import Mark
from party.lifetime import LifetimeCap
from protocols.ledger.audit_log import Head
from protocols.ledger.ledger import Ledger
from tests.contract.party.budget.test_policy import HOME
from tests.harness.amounts import nano
from tests.harness.studies import deployed_study

ROOT = Path(__file__).parents[4]
# Where what was spent, or may have been, is recorded.
TABLES = (
    "account", "asked", "batch", "binding", "charge", "note", "lifetime", "approval", "reservation", "mark",
    "difference", "suspected",
)  # fmt: skip
# (file, table, verb) -> what lowers, and what guards it.
STATEMENTS = {
    ("protocols/ledger/ledger.py", "account", "UPDATE"): "reserve adds; settle subtracts, with the charge's",
    ("protocols/ledger/ledger.py", "charge", "UPDATE"): "settle: a signed outcome, once, downwards, not given up",
    ("protocols/ledger/ledger.py", "batch", "UPDATE"): "settle: the same",
    ("protocols/ledger/ledger.py", "note", "DELETE"): "no amounts but a relay's bound, which is written anew",
    ("party/budget/policy.py", "approval", "UPDATE"): "withdraw: by the home that approved it, once",
    (
        "party/budget/policy.py",
        "reservation",
        "UPDATE",
    ): "release: withdrawn, by its home, at what a believed ledger shows",
    ("party/budget/watermarks.py", "mark", "UPSERT"): "move: upwards only",
    ("coordinator/store/store.py", "difference", "REPLACE"): "told: a seat's own signed figure",
    ("coordinator/store/store.py", "suspected", "REPLACE"): "suspect: one batch's worst case",
    ("coordinator/store/store.py", "suspected", "DELETE"): "told, drop: the seat's figure holds it; or given up",
}
_VERBS = {
    "UPDATE": re.compile(r"^\s*UPDATE\s+(\w+)"),
    "DELETE": re.compile(r"^\s*DELETE\s+FROM\s+(\w+)"),
    "REPLACE": re.compile(r"^\s*(?:INSERT\s+OR\s+)?REPLACE\s+INTO\s+(\w+)"),
    "UPSERT": re.compile(r"^\s*INSERT\s+INTO\s+(\w+)[^;]*ON\s+CONFLICT[^;]*DO\s+UPDATE", re.DOTALL),
}


def statements():
    """(file, table, verb) of every SQL text in the programs that changes or deletes rows of such a table."""
    for folder in ("protocols", "party", "coordinator"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    for verb, pattern in _VERBS.items():
                        if (found := pattern.match(node.value)) and found[1] in TABLES:
                            yield str(path.relative_to(ROOT)), found[1], verb


def test_every_statement_that_could_lower_a_charge_is_in_the_table_with_its_guard():
    assert set(statements()) == set(STATEMENTS)


def test_the_page_on_ledgers_names_every_way_in_which_a_charge_falls():
    page = " ".join((ROOT / "docs/explanation/ledgers.md").read_text(encoding="utf-8").split())
    for named in ("`Ledger.settle`", "`Policy.release`", "`LedgerDifferences`", "`count_receipt`", "`Watermarks.move`"):
        assert named in page


def refused(database, statement):
    with pytest.raises(sqlite3.IntegrityError):
        database.execute(statement)


def test_a_ledgers_file_itself_lets_nobody_lower_or_delete_a_charge():
    with Ledger(":memory:") as ledger:
        ledger.bind(study=b"s", run=b"")
        ledger.open_accounts(nano({"a": 100}))
        ledger.reserve(0, b"d", {"a": 40}, b"", queries=[1, 2], limit=9)
        ledger.settle(0, b"d", {"a": 30})
        ledger.reserve(1, b"e", {"a": 40}, b"", queries=[3], limit=9)
        for statement in (
            "UPDATE charge SET reserved = 1 WHERE number = 1",
            "UPDATE charge SET settled = 0 WHERE number = 0",
            "UPDATE charge SET settled = NULL WHERE number = 0",
            "UPDATE account SET settled = 0",
            "UPDATE account SET cap = 1000",
            "UPDATE account SET reserved = 200",
            "UPDATE batch SET digest = x'00' WHERE number = 1",
            "UPDATE batch SET settled = 0 WHERE number = 0",
            "UPDATE asked SET number = 0",
            "UPDATE binding SET study = x'00'",
            "INSERT OR REPLACE INTO charge VALUES (1, 'a', 1, 0)",
            "INSERT OR REPLACE INTO account VALUES ('a', 'nano-RDP', 1000, 0, 0)",
            "UPDATE audit SET entry = ''",
            "DELETE FROM audit",
            *(f"DELETE FROM {table}" for table in ("charge", "asked", "batch", "account", "binding")),
        ):
            refused(ledger._database, statement)
        assert ledger.balance("a").spent == 70
        assert ledger.ever_reserved("a") == 80


def test_a_policys_file_itself_lets_nobody_lower_or_delete_a_reservation_or_a_mark():
    study = deployed_study(1)
    with Policy(":memory:") as policy:
        caps = {"record": LifetimeCap(13.0, 1e-5)}
        policy.approve(study, party="hospital-0", data_set="ward", caps=caps, home=HOME, told_apart=False)
        at = {"data_set": "ward", "seat": "hospital-0"}
        to = Mark(Head(5, b"h"), 10)
        policy.marks.move(study.digest, **at, known=Mark(), to=to)
        for statement in (
            "UPDATE reservation SET nano = 0",
            "UPDATE reservation SET nano = nano + 1",
            "UPDATE reservation SET noise_distance = 0",
            "UPDATE approval SET home = 'b'",
            "UPDATE lifetime SET epsilon = 99",
            "UPDATE mark SET reserved = 0",
            "UPDATE mark SET count = 5",
            "INSERT OR REPLACE INTO mark SELECT study, data_set, seat, 6, hash, 0 FROM mark",
            "INSERT OR REPLACE INTO reservation SELECT study, data_set, unit, 0, 0.0 FROM reservation",
            "DELETE FROM audit",
            *(f"DELETE FROM {table}" for table in ("reservation", "mark", "approval", "lifetime")),
        ):
            refused(policy._database, statement)
        policy.withdraw(study, data_set="ward", home=HOME)
        refused(policy._database, "UPDATE approval SET withdrawn_ns = NULL")
        refused(policy._database, "UPDATE reservation SET nano = nano + 1")
        before = policy.lifetime_uses()[0].reserved
        policy.release(study, data_set="ward", home=HOME, spent={"hospital-0": 7})
        assert 0 < policy.lifetime_uses()[0].reserved < before
