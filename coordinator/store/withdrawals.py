"""Which hospitals ended a study at their node, as they said when they connected: they answer nothing more in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from protocols.ledger.audit_log import AuditLog
from protocols.ledger.database import Database

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS withdrawal (
    study TEXT NOT NULL REFERENCES study, party TEXT NOT NULL, told_s INTEGER NOT NULL, PRIMARY KEY (study, party)
) STRICT;
"""


class Withdrawals:
    """The withdrawals that hospitals told. now_s: seconds since 1970."""

    def __init__(self, database: Database, trail: AuditLog, *, now_s: Callable[[], int]) -> None:
        self._database = database
        self._trail = trail
        self._now_s = now_s

    def add(self, party: str, studies: Sequence[bytes]) -> list[str]:
        """Records that a party ended the studies of these digests; returns the names of those that are new.

        Digests of other consortiums' studies are passed over.
        """
        new = []
        with self._database.transaction():
            for digest in studies:
                for (name,) in self._database.rows("SELECT name FROM study WHERE digest = ?", (digest,)):
                    row = (name, party, self._now_s())
                    if self._database.execute("INSERT OR IGNORE INTO withdrawal VALUES (?, ?, ?)", row):
                        self._trail.append("withdrawn", study=name, party=party)
                        new.append(name)
        return new

    def of(self, study: str) -> dict[str, int]:
        """The parties that ended a study, with when they told it, in seconds since 1970."""
        return dict(
            self._database.rows("SELECT party, told_s FROM withdrawal WHERE study = ? ORDER BY party", (study,))
        )
