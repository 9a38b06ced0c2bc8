"""Atomic transactions of one SQLite connection; a nested one is a savepoint.

One SQLite file, written in atomic transactions.

WAL with synchronous FULL: what was committed outlives a crash of the machine. Several processes may have the file
open; each step is one BEGIN IMMEDIATE transaction.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any  # SQLite's values

from protocols.errors import StorageFailed
from protocols.private_files import private_database


class Transactions:
    """`with transactions():` is BEGIN IMMEDIATE ... COMMIT, and anything raised inside rolls it back.

    A nested step that fails, and whose failure is caught, leaves no trace. lock: admits one thread at a time; failed:
    makes a StorageFailed for people from an SQLite error.
    """

    def __init__(
        self, database: sqlite3.Connection, lock: threading.RLock, *, failed: Callable[[sqlite3.Error], StorageFailed]
    ) -> None:
        self._database = database
        self._lock = lock
        self._failed = failed
        self._depth = 0

    @contextmanager
    def __call__(self, *, writes_once: bool = False) -> Iterator[None]:
        """One transaction, or one step of the transaction that is open. Raises StorageFailed.

        writes_once: whether the step writes by one statement and does nothing after it that may fail: SQLite keeps a
        statement whole or not at all, so a nested step needs no savepoint.
        """
        with self._lock:
            depth = self._depth
            if depth and writes_once:
                try:
                    yield
                except sqlite3.Error as error:
                    raise self._failed(error) from error
                return
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


# How long a process waits for another's transaction.
_BUSY_S = 10.0


def open_database(path: Path | str, schema: str) -> sqlite3.Connection:
    """A connection to a file that only its owner can use (or ":memory:"), created with these tables if necessary.

    Several threads may use it, one at a time. Raises StorageFailed as private_database, and sqlite3.Error.
    """
    database = sqlite3.connect(private_database(path), isolation_level=None, check_same_thread=False, timeout=_BUSY_S)
    for pragma in (
        "journal_mode = WAL",
        "synchronous = FULL",
        "foreign_keys = ON",
        "recursive_triggers = ON",  # so that replacing a row fires the triggers against deletion
        "secure_delete = ON",  # what is deleted may have been a secret, so it is overwritten
        "cache_size = -128",  # kB; by itself SQLite keeps up to 2 MB of each ledger, which grows into that for weeks
    ):
        database.execute(f"PRAGMA {pragma}")
    # Within one transaction, so that a crash leaves no table without its triggers.
    database.executescript(f"BEGIN IMMEDIATE;\n{schema}\nCOMMIT;")
    return database


class Database:
    """A connection that several threads may use; each transaction belongs to one of them."""

    def __init__(self, path: Path | str, schema: str, *, undone: str = "nothing was written") -> None:
        """Opens or creates the file, or ":memory:", with these tables. undone: what people are told of a step that
        failed. Raises StorageFailed, with what to do next."""
        self.path = path
        self._lock, self._undone = threading.RLock(), undone
        with self.opening():
            self.connection = open_database(path, schema)
        self.transaction = Transactions(self.connection, self._lock, failed=self._failed)

    @contextmanager
    def opening(self) -> Iterator[None]:
        """While tables are made and checked: what SQLite raises is StorageFailed."""
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:  # the message of some errors quotes damaged text
            raise self._failed(error) from error

    def check_tables(self, tables: Iterable[str]) -> None:
        """Raises sqlite3.DatabaseError unless the indices of these tables agree with their rows."""
        for table in tables:
            ((found, *_), *_) = self.connection.execute(f"PRAGMA integrity_check({table})").fetchall()
            if found != "ok":
                raise sqlite3.DatabaseError(f"table {table} is damaged: restore it from a backup")

    def close(self) -> None:
        """Closes the file; what was committed stays."""
        with self._lock:
            self.connection.close()

    def execute(self, statement: str, values: Sequence[object] = ()) -> int:
        """Runs one statement of a transaction; returns how many rows it changed."""
        return self.connection.execute(statement, tuple(values)).rowcount

    def rows(self, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query. Raises StorageFailed."""
        with self._lock:
            try:
                return self.connection.execute(query, tuple(values)).fetchall()
            except sqlite3.Error as error:
                raise self._failed(error) from error

    def _failed(self, error: sqlite3.Error | UnicodeDecodeError) -> StorageFailed:
        return StorageFailed(f"{self.path}: {error}; {self._undone}: {step_after(error)}")


def step_after(error: sqlite3.Error | UnicodeDecodeError, *, damaged: str = "restore it from a backup") -> str:
    """What to do next. damaged: of a file that is; one that a disk or another process keeps from us may be whole."""
    name = getattr(error, "sqlite_errorname", "") or ""
    step = next((step for start, step in _NEXT if name.startswith(start)), "check the disk and the file")
    return step.format(damaged=damaged)


_NEXT = (
    ("SQLITE_FULL", "free space on its disk, then try again"),
    ("SQLITE_BUSY", "another command holds it; try again in a moment"),
    ("SQLITE_READONLY", "it cannot be written; run as the user who owns it"),
    ("SQLITE_CANTOPEN", "it cannot be opened; check that the folder exists and who owns it"),
    ("SQLITE_IOERR", "free space on its disk, or check that disk, then try again"),
    ("SQLITE_NOTADB", "it is not a database; {damaged}"),
    ("SQLITE_CORRUPT", "it is damaged; {damaged}"),
    ("SQLITE_CONSTRAINT", "it would contradict what is stored; this is a fault of the software, report it"),
)
