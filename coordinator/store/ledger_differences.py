"""By how much seats' own ledgers are, or may be, higher than the coordinator's: never understated.

A seat's own figure, sent with its settlement, is exact. To it is added, batch by batch, what the seat may have charged
itself since then without the coordinator knowing. Batches are independent.
"""

from __future__ import annotations

from collections.abc import Mapping

from protocols.ledger.database import Database

# Table `difference` holds what the seat itself last stated.
SCHEMA = """
CREATE TABLE IF NOT EXISTS difference (
    study TEXT NOT NULL REFERENCES study, seat TEXT NOT NULL, nano INTEGER NOT NULL, PRIMARY KEY (study, seat)
) STRICT;
CREATE TABLE IF NOT EXISTS suspected (
    study TEXT NOT NULL REFERENCES study, number INTEGER NOT NULL, seat TEXT NOT NULL, nano INTEGER NOT NULL,
    PRIMARY KEY (study, number, seat)
) STRICT;
"""
_ALL = "SELECT seat, nano FROM difference WHERE study = ? UNION ALL SELECT seat, nano FROM suspected WHERE study = ?"


class LedgerDifferences:
    """The differences of one store's studies, in nano-units; every change is part of a transaction of the store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, study: str) -> dict[str, int]:
        """Each seat's difference, if it has one; negative if the seat's ledger is known to be lower."""
        # Added in Python, because SQLite's sums overflow at 2**63.
        sums: dict[str, int] = {}
        for seat, nano in self._database.rows(_ALL, (study, study)):
            sums[seat] = sums.get(seat, 0) + nano
        return {seat: nano for seat, nano in sorted(sums.items()) if nano}

    def suspect(self, study: str, number: int, nano: Mapping[str, int]) -> None:
        """Records that, for this batch, each of these seats may have charged itself that many nano-units more than it
        is charged here."""
        for seat, amount in nano.items():
            self._database.execute(
                "INSERT OR REPLACE INTO suspected VALUES (?, ?, ?, ?)", (study, number, seat, amount)
            )

    def told(self, study: str, nano: Mapping[str, int], *, open_batch: int | None) -> None:
        """Records how much higher each of these seats says its ledger is, over all batches except the open one."""
        known = {seat for seat, _ in self._database.rows(_ALL, (study, study))}
        for seat, amount in nano.items():
            if amount or seat in known:
                self._database.execute("INSERT OR REPLACE INTO difference VALUES (?, ?, ?)", (study, seat, amount))
                self._database.execute(
                    "DELETE FROM suspected WHERE study = ? AND seat = ? AND number IS NOT ?", (study, seat, open_batch)
                )

    def drop(self, study: str, number: int) -> None:
        """Records that a batch stays charged here as reserved, so no seat can be higher because of it."""
        self._database.execute("DELETE FROM suspected WHERE study = ? AND number = ?", (study, number))
