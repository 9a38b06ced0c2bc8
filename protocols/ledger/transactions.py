"""Atomic transactions of one SQLite connection; a nested one is a savepoint."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from protocols.errors import StorageFailed


class Transactions:
    """`with transactions():` is BEGIN IMMEDIATE ... COMMIT, and anything raised inside rolls it back.

    A nested step that fails, and whose failure is caught, leaves no trace. lock: admits one thread at a time; failed:
    makes a StorageFailed for people from an SQLite error.
    """

    def __init__(
        self,
        database: sqlite3.Connection,
        lock: threading.RLock,
        *,
        failed: Callable[[sqlite3.Error], StorageFailed],
    ) -> None:
        self._database = database
        self._lock = lock
        self._failed = failed
        self._depth = 0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """One transaction, or one step of the transaction that is open. Raises StorageFailed."""
        with self._lock:
            depth = self._depth
            try:
                self._database.execute(f"SAVEPOINT step{depth}" if depth else "BEGIN IMMEDIATE")
            except sqlite3.Error as error:
                raise self._failed(error) from error
            self._depth += 1
            try:
                yield
                self._database.execute(f"RELEASE step{depth}" if depth else "COMMIT")
            except BaseException as error:
                if self._database.in_transaction:
                    self._database.execute(f"ROLLBACK TO step{depth}" if depth else "ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    raise self._failed(error) from error
                raise
            finally:
                self._depth -= 1
