"""By how much seats' own ledgers stand, or may stand, higher than the coordinator's: never said too low.

A seat's own figure, told with what it settled, is exact; on top of it comes, batch by batch, what the seat may have
charged itself since without the coordinator knowing. One batch says nothing of another.
"""

from __future__ import annotations

from collections.abc import Mapping

from protocols.ledger.database import Database

# difference: as the seat itself told it last.
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
    """The differences of the studies of one store, in nano-units; every change is part of a transaction of it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, study: str) -> dict[str, int]:
        """Seat to difference, where there is one; negative where the seat's ledger is known to stand lower."""
        # Added here and not by SQLite, whose sums end at 2**63.
        sums: dict[str, int] = {}
        for seat, nano in self._database.rows(_ALL, (study, study)):
            sums[seat] = sums.get(seat, 0) + nano
        return {seat: nano for seat, nano in sorted(sums.items()) if nano}

    def suspect(self, study: str, number: int, nano: Mapping[str, int]) -> None:
        """For this batch each of these seats may have charged itself so much more than it was charged here."""
        for seat, amount in nano.items():
            self._database.execute(
                "INSERT OR REPLACE INTO suspected VALUES (?, ?, ?, ?)", (study, number, seat, amount)
            )

    def told(self, study: str, nano: Mapping[str, int], *, open_batch: int | None) -> None:
        """So much higher each of these seats said that it stands, over all batches but the one that is still open."""
        known = {seat for seat, _ in self._database.rows(_ALL, (study, study))}
        for seat, amount in nano.items():
            if amount or seat in known:
                self._database.execute("INSERT OR REPLACE INTO difference VALUES (?, ?, ?)", (study, seat, amount))
                self._database.execute(
                    "DELETE FROM suspected WHERE study = ? AND seat = ? AND number IS NOT ?", (study, seat, open_batch)
                )

    def drop(self, study: str, number: int) -> None:
        """A batch stays charged here as it was reserved: for it, no seat stands higher."""
        self._database.execute("DELETE FROM suspected WHERE study = ? AND number = ?", (study, number))
