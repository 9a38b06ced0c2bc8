"""A database connection that dies before its n-th statement, as a process that is killed does."""

import shutil
import sqlite3
from pathlib import Path


class Killed(BaseException):
    """The process ended here; nothing of it runs afterwards."""


class Deaths:
    """Counts statements of all connections that it made, and kills at one."""

    def __init__(self, monkeypatch) -> None:
        self.statements = 0
        self.dies_before: int | None = None
        deaths = self

        class Dying(sqlite3.Connection):
            def execute(self, *args):
                deaths.step()
                return super().execute(*args)

        connect = sqlite3.connect
        monkeypatch.setattr(
            "protocols.ledger.database.sqlite3.connect", lambda *args, **how: connect(*args, **how, factory=Dying)
        )

    def step(self) -> None:
        """One statement begins."""
        self.statements += 1
        if self.dies_before is not None and self.statements >= self.dies_before:
            raise Killed

    def arm(self, after: int) -> None:
        """Dies before the statement that comes after so many more."""
        self.dies_before = self.statements + after + 1

    def disarm(self) -> None:
        """Lives on."""
        self.dies_before = None


def what_the_disk_has(file: Path, folder: Path) -> Path:
    """A copy of the database's files as they are now: what a killed process leaves."""
    folder.mkdir(parents=True)
    for part in file.parent.glob(f"{file.name}*"):
        shutil.copy(part, folder / part.name)
    return folder / file.name
