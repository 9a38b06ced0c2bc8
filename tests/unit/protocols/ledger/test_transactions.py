"""A transaction is kept whole or not at all, and so is a step of it."""

import sqlite3
import threading

import pytest

from protocols.errors import StorageFailed
from protocols.ledger.database import Transactions
from tests.harness.refusals import refuses


@pytest.fixture
def made():
    database = sqlite3.connect(":memory:", isolation_level=None)
    database.execute("CREATE TABLE t (x INTEGER PRIMARY KEY)")
    yield database, Transactions(database, threading.RLock(), failed=lambda error: StorageFailed(f"t: {error}"))
    database.close()


def rows(database):
    return [row[0] for row in database.execute("SELECT x FROM t ORDER BY x")]


def failing(database, transaction, *values, inner=None):
    """A step that writes these values, runs `inner`, and fails."""
    with transaction():
        for value in values:
            database.execute("INSERT INTO t VALUES (?)", (value,))
        if inner is not None:
            inner()
        raise KeyError


def test_what_is_raised_rolls_all_of_it_back(made):
    database, transaction = made
    with pytest.raises(KeyError):
        failing(database, transaction, 1)
    assert rows(database) == []
    with transaction():
        database.execute("INSERT INTO t VALUES (2)")
    assert rows(database) == [2]


def test_a_step_that_fails_and_is_caught_leaves_nothing_and_the_rest_stays(made):
    database, transaction = made
    with transaction():
        database.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(KeyError):
            failing(database, transaction, 2)
        with pytest.raises(KeyError):
            failing(database, transaction, 2, inner=lambda: failing(database, transaction, 3))
        with transaction():
            database.execute("INSERT INTO t VALUES (4)")
    assert rows(database) == [1, 4]


def test_a_step_that_writes_once_is_kept_or_not_with_what_is_around_it(made):
    database, transaction = made

    def one(value):
        with transaction(writes_once=True):
            database.execute("INSERT INTO t VALUES (?)", (value,))

    with transaction():
        one(1)
        with refuses(StorageFailed, "UNIQUE"):
            one(1)
        one(2)
        with pytest.raises(KeyError):
            failing(database, transaction, inner=lambda: one(3))
    with pytest.raises(KeyError):
        failing(database, transaction, inner=lambda: one(4))
    assert rows(database) == [1, 2]


def test_an_error_of_sqlite_is_one_of_storage(made):
    database, transaction = made
    with refuses(StorageFailed, "UNIQUE"):
        failing(database, transaction, 1, 1)
    assert rows(database) == []
