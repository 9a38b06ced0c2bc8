"""A ledger whose disk is full, or whose process ends, at a chosen statement."""

import os
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

from protocols.ledger.ledger import Ledger


def scratch() -> tempfile.TemporaryDirectory[str]:
    """A folder in memory, where the system has one: crashes are simulated, and nothing need reach a platter."""
    memory = Path("/dev/shm")
    return tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None)


class Crash(BaseException):
    """The process was killed: nothing after this point ran."""


class Disk:
    """A database connection that fails at a chosen statement: "crash" before it, "crash after" it, or "full"."""

    def __init__(self, database: sqlite3.Connection, happened: Callable[[], int]) -> None:
        self._database = database
        self.left: int | None = None
        self.how = ""
        self.statements = 0
        # Those that made what was written last: after any other, a crash leaves what a crash before it leaves.
        self.commits: list[int] = []
        # Those before which more was written or has happened elsewhere than before the one that precedes it.
        self.moments: list[int] = []
        # Those that a full disk can refuse.
        self.writes: list[int] = []
        # Those that charge an account for a batch.
        self.charges: list[int] = []
        # The statement that failed, without its values.
        self.broke = ""
        # Whether statements are looked at one by one, for the four lists above.
        self.noting = True
        self._happened = happened
        self._before: tuple[int, int] | None = None
        self.dead = False

    def fail(self, how: str, statement: int) -> None:
        self.how, self.left = how, statement

    def _note(self, statement: str) -> None:
        if (now := (len(self.commits), self._happened())) != self._before:
            self.moments.append(self.statements)
            self._before = now
        if not statement.startswith("SELECT"):
            self.writes.append(self.statements)
        if statement.startswith("INSERT INTO charge"):
            self.charges.append(self.statements)

    def _step(self, statement, work):
        self.statements += 1
        if self.dead:
            raise Crash
        if self.left is None:
            return work()
        self.left -= 1
        if self.left >= 0:
            return work()
        self.left, self.broke = None, statement
        if self.how == "full":
            raise sqlite3.OperationalError("database or disk is full")
        if self.how == "crash after":
            work()
        self.dead = True
        raise Crash

    def execute(self, *arguments):
        if self.noting:
            self._look(arguments[0])
        return self._step(arguments[0], lambda: self._database.execute(*arguments))

    def _look(self, statement: str) -> None:
        self._note(statement)
        alone = not self._database.in_transaction and statement.startswith(("INSERT", "UPDATE", "DELETE"))
        if alone or statement == "COMMIT":
            self.commits.append(self.statements)

    def executemany(self, *arguments):
        if self.noting:
            self._note(arguments[0])
        return self._step(arguments[0], lambda: self._database.executemany(*arguments))

    @property
    def in_transaction(self) -> bool:
        return self._database.in_transaction

    def close(self) -> None:
        self._database.close()


def open_ledger(path: Path, happened: Callable[[], int]) -> Ledger:
    """The ledger, on a disk that fails as it is told; `happened` counts what happens outside of the ledger."""
    ledger = Ledger(path)
    # A test need not wait for the platter: what a killed process wrote is in the system's cache.
    ledger._database.execute("PRAGMA synchronous = OFF")
    disk = Disk(ledger._database, happened)
    ledger._database = ledger.log._database = ledger._transaction._database = disk
    ledger._rows.__self__.connection = disk
    return ledger
