"""A disk that gives back other bits than were written: a ledger says so, and never believes that less was spent."""

import random
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from protocols.errors import InvalidInput, StorageFailed
from protocols.ledger.ledger import Ledger
from tests.harness.amounts import nano
from tests.harness.changed_database import changed_database
from tests.harness.failing_disk import scratch
from tests.harness.refusals import refuses

STUDY, SEED = b"s" * 32, "noise_seed"
CAPS = {"north": 10**9, "south": 10**9}


def digest(number):
    return bytes([number]) * 32


def charge(ledger):
    """Six batches, of which three are settled, each with a note."""
    for number in range(6):
        ledger.note(digest(number), SEED, bytes([number + 50]) * 32)
        queries = [2 * number, 2 * number + 1]
        amounts = {"north": 10**7 * (number + 1), "south": 10**6}
        ledger.reserve(number, digest(number), amounts, b"reply", queries=queries, limit=100)
        if number % 2:
            ledger.settle(number, digest(number), {name: amount // 2 for name, amount in amounts.items()})


def believed(path):
    """What whoever opens the ledger acts upon: the spend, the notes, and what was asked."""
    with Ledger(path) as ledger:
        ledger.bind(study=STUDY, run=b"")
        ledger.open_accounts(nano(CAPS))
        spent = {name: balance.spent for name, balance in ledger.balances().items()}
        return spent, [(ledger.noted(digest(number), SEED), ledger.queries(number)) for number in range(6)]


@pytest.fixture(scope="module")
def written():
    """The bytes of a ledger, the folder that it is in, and what it says."""
    with scratch() as folder:
        path = f"{folder}/ledger.sqlite"
        with Ledger(path) as ledger:
            ledger.bind(study=STUDY, run=b"")
            ledger.open_accounts(nano(CAPS))
            charge(ledger)
        with sqlite3.connect(path) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        database.close()
        with open(path, "rb") as file:
            yield file.read(), folder, believed(path)


def test_no_flipped_bit_lowers_a_spend_or_changes_a_note_or_a_query(written) -> None:
    """Of every bit near an account, a charge or a note's name, some; a thousand others anywhere."""
    content, folder, good = written
    near = [at + off for name in (b"north", SEED.encode()) for at in places(content, name) for off in range(-12, 44)]
    chosen = random.Random(1)
    flips = [(at, chosen.randrange(8)) for at in near] + [
        (chosen.randrange(len(content)), chosen.randrange(8)) for _ in range(400)
    ]
    found = Counter()
    for number, (at, bit) in enumerate(flips):
        damaged = bytearray(content)
        damaged[at] ^= 1 << bit
        path = f"{folder}/{number}.sqlite"
        with open(path, "wb") as file:
            file.write(damaged)
        try:
            found["the same" if believed(path) == good else "something else"] += 1
        except (StorageFailed, InvalidInput):
            found["refused"] += 1
    assert found["something else"] == 0
    assert found["refused"] > 300


def places(content, name):
    start, found = content.find(name), []
    while start >= 0:
        found.append(start)
        start = content.find(name, start + 1)
    return found


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE account SET reserved = reserved - 1000",
        "UPDATE charge SET reserved = reserved - 1000 WHERE number = 0",
        "UPDATE charge SET settled = settled - 1 WHERE number = 1",
        "UPDATE batch SET settled = 1 WHERE number = 0",
        "DELETE FROM account WHERE name = 'south'",
    ],
)
def test_an_account_that_is_not_the_sum_of_its_charges_is_not_used(written, change) -> None:
    """As after a page of the file that went back, or somebody's hand: the triggers against it are dropped first."""
    content, folder, _ = written
    path = changed_database(content, Path(folder, "changed.sqlite"), change)
    with refuses(StorageFailed, "restore it from a backup"):
        Ledger(path)


def test_a_note_that_was_changed_is_not_used_and_its_name_is_all_that_is_told(written) -> None:
    content, folder, _ = written
    path = f"{folder}/noted.sqlite"
    with open(path, "wb") as file:
        file.write(content.replace(bytes([50]) * 32, bytes([50]) * 31 + b"\0"))
    with Ledger(path) as ledger:
        for read in (lambda: ledger.noted(digest(0), SEED), lambda: ledger.note(digest(0), SEED, b"another")):
            with refuses(StorageFailed, "noise_seed"):
                read()
        assert ledger.noted(digest(1), SEED) == bytes([51]) * 32
