import copy
import sqlite3
import threading
from operator import add, eq, ge, gt, le, lt, ne, sub

import pytest

from protocols.errors import BudgetExceeded, InvalidInput, StorageFailed
from protocols.ledger.amount import Amount
from protocols.ledger.ledger import Balance, Ledger
from tests.harness.amounts import nano
from tests.harness.refusals import refused_for, refuses


def digest(number: int) -> bytes:
    return bytes([number % 256]) * 32


def test_a_ledger_survives_being_closed(tmp_path):
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.open_accounts(nano({"p": 10}))
        ledger.reserve(0, digest(1), {"p": 7}, b"reply", queries=[3, 4], limit=2000)
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.open_accounts(nano({"p": 10}))
        assert ledger.balance("p") == Balance(cap=10, settled=0, reserved=7)
        assert ledger.stored(0).payload == b"reply"
        assert ledger.number_of(digest(1)) == 0
        ledger.settle(0, digest(1), {"p": 3}, payload=b"released")
        assert ledger.balance("p") == Balance(cap=10, settled=3, reserved=0)
        assert ledger.stored(0).payload == b"released"
        assert ledger.stored(0).settled


def test_a_reservation_is_all_or_nothing_over_accounts():
    with Ledger(":memory:") as ledger:
        ledger.open_accounts(nano({"rich": 100, "poor": 5}))
        with refuses(BudgetExceeded, "poor", 6, 0, 5, "RDP"):
            ledger.reserve(0, digest(0), {"rich": 6, "poor": 6}, b"", queries=[3, 4], limit=2000)
        assert ledger.balance("rich").spent == 0
        assert ledger.stored(0) is None


def test_a_settlement_under_another_digest_or_of_other_accounts_is_refused():
    with Ledger(":memory:") as ledger:
        ledger.open_accounts(nano({"a": 10, "b": 10}))
        ledger.reserve(0, digest(0), {"a": 5}, b"", queries=[3, 4], limit=2000)
        with refused_for("digest_mismatch"):
            ledger.settle(0, digest(9), {"a": 1})
        with refused_for("settled_otherwise"):
            ledger.settle(0, digest(0), {"b": 1})
        assert ledger.balance("a").spent == 5


@pytest.mark.parametrize("unit", ["queries", "nano-mu^2"])
def test_an_amount_of_another_unit_is_neither_charged_nor_settled_nor_a_cap(unit):
    other = {"p": Amount(3, unit)}
    with Ledger(":memory:") as ledger:
        ledger.open_accounts(nano({"p": 10}))
        with refuses(InvalidInput, "RDP"):
            ledger.reserve(0, digest(0), other, b"", queries=[0], limit=9)
        assert ledger.balance("p").spent == 0
        ledger.reserve(0, digest(0), {"p": 7}, b"", queries=[0], limit=9)
        for refused in (lambda: ledger.settle(0, digest(0), other), lambda: ledger.open_accounts(other)):
            with pytest.raises(InvalidInput, match=unit.replace("^", ".")):
                refused()
        assert (ledger.balance("p").reserved, ledger.balance("p").cap) == (7, Amount(10, "nano-RDP"))


@pytest.mark.parametrize("operation", [add, sub, lt, le, gt, ge, eq, ne], ids=lambda each: each.__name__)
def test_amounts_of_two_units_are_neither_added_nor_compared(operation):
    with refuses(InvalidInput, 5, 3, "RDP"):
        operation(Amount(3, "nano-RDP"), Amount(5, "queries"))


def test_an_amount_keeps_its_unit_in_sums_copies_and_texts():
    three = Amount(3, "queries")
    for made in (three, copy.deepcopy(three), sum([three, three]) - three, 4 - three + 2):
        assert (int(made), made.unit, f"{made}") == (3, "queries", "3 queries")


def test_a_cap_cannot_be_changed_and_an_unknown_account_is_named():
    with Ledger(":memory:") as ledger:
        ledger.open_accounts(nano({"p": 10}))
        with refuses(InvalidInput, "p", 10):
            ledger.open_accounts(nano({"q": 1, "p": 11}))
        with refuses(InvalidInput, "q"):
            ledger.balance("q")
        for amount in (-1, 2**63):
            with refuses(InvalidInput, 0, 2**63 - 1):
                ledger.open_accounts(nano({"r": amount}))
        with refuses(InvalidInput, 2**63):
            ledger.reserve(0, digest(0), {"p": 2**63}, b"", queries=[0], limit=9)
        assert set(ledger.balances()) == {"p"}


def test_the_database_itself_refuses_to_pass_a_cap(tmp_path):
    """The CHECK of the schema holds even for a program that bypasses this class."""
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as ledger:
        ledger.open_accounts(nano({"p": 10}))
    raw = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError):
        raw.execute("UPDATE account SET reserved = 11 WHERE name = 'p'")
    raw.close()


def test_a_file_that_is_no_ledger_or_cannot_be_written_is_named(tmp_path):
    path = tmp_path / "ledger.sqlite"
    path.write_bytes(b"not a database, at some length" * 10)
    with refuses(StorageFailed, "backup"):
        Ledger(path)
    with pytest.raises(StorageFailed):
        Ledger(tmp_path / "missing" / "ledger.sqlite")


def test_a_query_is_asked_once_in_a_ledgers_life():
    with Ledger(":memory:") as ledger:
        ledger.open_accounts(nano({"p": 100}))
        ledger.reserve(0, digest(0), {"p": 1}, b"", queries=[0, 1, 2], limit=2000)
        before = ledger.balance("p")
        with refused_for("query_repeated"):
            ledger.reserve(1, digest(1), {"p": 1}, b"", queries=[3, 2], limit=2000)
        assert ledger.balance("p") == before
        assert ledger.stored(1) is None
        ledger.reserve(1, digest(1), {"p": 1}, b"", queries=[3], limit=2000)
        assert (ledger.stored(0).queries, ledger.stored(1).queries) == (3, 1)
        assert ledger.charged(1) == {"p": 1}


def test_a_ledger_belongs_to_one_study_and_one_run(tmp_path):
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        assert ledger.bind(study=digest(1), run=b"first") == b"first"
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        assert ledger.bind(study=digest(1), run=b"second") == b"first"
        with refuses(InvalidInput, "0101" * 4):
            ledger.bind(study=digest(2), run=b"first")


def test_threads_leave_the_ledger_whole(tmp_path):
    """Four threads reserve and settle on one ledger; every charge has its batch and the balance adds up."""
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.open_accounts(nano({"p": 500}))

        def work(thread: int) -> None:
            for step in range(30):
                number = thread * 100 + step
                name = number.to_bytes(4, "big") * 8
                try:
                    ledger.reserve(number, name, {"p": 7}, b"", queries=[number], limit=2000)
                    ledger.settle(number, name, {"p": 5})
                except BudgetExceeded:
                    continue

        threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        settled = [n for n in range(400) if ledger.stored(n) is not None and ledger.stored(n).settled]
        assert ledger.balance("p") == Balance(cap=500, settled=5 * len(settled), reserved=0)
        assert len(settled) == sum(ledger.stored(i) is not None for i in range(1000)) == 99


def test_a_closed_ledger_is_a_storage_fault():
    ledger = Ledger(":memory:")
    ledger.close()
    with refuses(StorageFailed, "closed"):
        ledger.balances()
    with pytest.raises(StorageFailed, match="nothing was charged"):
        ledger.open_accounts(nano({"p": 1}))


def test_the_first_note_of_a_kind_stands_until_it_is_forgotten(tmp_path):
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        assert ledger.noted(b"a", "seed") is None
        assert ledger.note(b"a", "seed", b"first") == b"first"
        assert ledger.note(b"a", "seed", b"second") == b"first"
        assert ledger.note(b"a", "other", b"second") == b"second"
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        assert ledger.noted(b"a", "seed") == b"first"
        ledger.forget(b"a", "seed")
        assert ledger.noted(b"a", "seed") is None
        assert ledger.noted(b"a", "other") == b"second"


def test_notes_of_batches_that_never_come_are_forgotten_but_for_the_newest():
    with Ledger(":memory:") as ledger:
        ledger.open_accounts(nano({"p": 100}))
        for digest in (b"a", b"b", b"c", b"d"):
            ledger.note(digest, "seed", digest)
        ledger.reserve(0, b"a", {"p": 1}, b"", queries=[0], limit=2000)
        ledger.forget_uncharged("seed", keep=1)
        assert [ledger.noted(digest, "seed") for digest in (b"a", b"b", b"c", b"d")] == [b"a", None, None, b"d"]


def test_a_batch_that_is_given_up_keeps_its_reservations_and_is_settled_by_nobody(tmp_path):
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.open_accounts(nano({"p": 100, "q": 100}))
        ledger.reserve(0, b"a", {"p": 7, "q": 5}, b"", queries=[0, 1], limit=2000)
        assert not ledger.given_up(0)
        ledger.give_up(0, b"a")
        ledger.give_up(0, b"a")
        with refused_for("given_up", 0):
            ledger.settle(0, b"a", {"p": 0, "q": 0})
        with refused_for("batch_reused"):
            ledger.reserve(0, b"b", {"p": 1}, b"", queries=[2], limit=2000)
        with refused_for("query_repeated"):
            ledger.reserve(1, b"b", {"p": 1}, b"", queries=[1], limit=2000)
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        assert ledger.given_up(0)
        assert ledger.unsettled() == [0]
        assert ledger.balances() == {"p": Balance(100, 0, 7), "q": Balance(100, 0, 5)}
        (entry,) = [each for each in ledger.log.entries() if each.event == "given_up"]
        assert (entry.fields["batch"], entry.fields["total"], entry.fields["accounts"]) == (0, 12, 2)


def test_only_what_was_charged_and_never_settled_is_given_up():
    with Ledger(":memory:") as ledger:
        ledger.open_accounts(nano({"p": 100}))
        with refused_for("unknown_batch"):
            ledger.give_up(0, b"a")
        ledger.reserve(0, b"a", {"p": 7}, b"", queries=[0], limit=2000)
        with refused_for("digest_mismatch"):
            ledger.give_up(0, b"b")
        ledger.settle(0, b"a", {"p": 3})
        with refused_for("settled_otherwise"):
            ledger.give_up(0, b"a")
        assert not ledger.given_up(0)
        assert ledger.balance("p") == Balance(100, 3, 0)


def test_notes_that_belong_to_another_go_with_it_and_never_before():
    with Ledger(":memory:") as ledger:
        ledger.open_accounts(nano({"p": 100}))
        for digest in (b"a", b"b", b"c", b"d"):
            ledger.note(digest, "seed", digest)
        # In another order than the seeds, and one without a seed.
        for digest in (b"d", b"c", b"b", b"a", b"orphan"):
            ledger.note(digest, "choice", digest)
        ledger.note(b"a", "kept", b"a")
        ledger.reserve(0, b"a", {"p": 1}, b"", queries=[0], limit=2000)
        ledger.forget_uncharged("seed", "choice", keep=2)
        for digest in (b"a", b"c", b"d"):
            assert (ledger.noted(digest, "seed"), ledger.noted(digest, "choice")) == (digest, digest)
        for digest in (b"b", b"orphan"):
            assert (ledger.noted(digest, "seed"), ledger.noted(digest, "choice")) == (None, None)
        assert ledger.noted(b"a", "kept") == b"a"
        ledger.forget_uncharged("seed", "choice", keep=0)
        assert ledger.noted(b"a", "choice") == b"a"
        assert ledger.noted(b"d", "choice") is None


def test_queries_are_kept_as_runs_and_each_is_asked_once():
    with Ledger(":memory:") as ledger:
        ledger.open_accounts(nano({"p": 100}))
        ledger.reserve(0, b"a", {"p": 1}, b"", queries=[7, 3, 5, 4], limit=10)
        assert (ledger.queries(0), ledger.asked(), ledger.stored(0).queries) == ([3, 4, 5, 7], 4, 4)
        for again in ([5, 6], [2, 3], [2, 8, 7], [1, 1], list(range(2, 9))[:6]):
            with refused_for("query_repeated"):
                ledger.reserve(1, b"b", {"p": 1}, b"", queries=again, limit=10)
        ledger.reserve(1, b"b", {"p": 1}, b"", queries=[6, 8, 2], limit=10)
        assert (ledger.queries(1), ledger.asked()) == ([2, 6, 8], 7)


def test_a_batch_is_found_without_reading_the_queries_of_all_others():
    with Ledger(":memory:") as ledger:
        ((*_, how),) = ledger._rows("EXPLAIN QUERY PLAN SELECT first FROM asked WHERE number = ?", (0,))
    assert "asked_in_batch" in how
