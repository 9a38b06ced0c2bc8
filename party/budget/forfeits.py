"""Lifetime caps that are charged in full, because nobody can prove any more what was spent of them.

A policy.sqlite that is lost or older than its ledgers may have forgotten approvals. What it forgot cannot be told from
what was never approved, so the whole cap of each of its data sets counts as spent, for ever: nothing more is approved
for them here. Nobody's word lowers that: a coordinator's log can prove that more was spent, never that no more was.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from protocols.errors import Refused
from protocols.ledger.audit_log import AuditLog
from protocols.refusals.code import Code

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS forfeit (
    data_set TEXT PRIMARY KEY, since_ns INTEGER NOT NULL, reason TEXT NOT NULL
) STRICT;
CREATE TRIGGER IF NOT EXISTS forfeit_stands BEFORE UPDATE ON forfeit
    BEGIN SELECT RAISE(ABORT, 'what was forfeited stands for ever'); END;
CREATE TRIGGER IF NOT EXISTS forfeit_is_never_deleted BEFORE DELETE ON forfeit
    BEGIN SELECT RAISE(ABORT, 'what was forfeited stands for ever'); END;
"""


class Forfeits:
    """The forfeited data sets, in the policy's file. transaction: opens one of the policy, or joins its open one;
    clock: nanoseconds since 1970."""

    def __init__(
        self,
        database: sqlite3.Connection,
        transaction: Callable[[], AbstractContextManager[None]],
        log: AuditLog,
        *,
        clock: Callable[[], int],
    ) -> None:
        self._database = database
        self._transaction = transaction
        self._log = log
        self._clock = clock
        database.executescript(_SCHEMA)

    def add(self, data_set: str, *, reason: str) -> None:
        """Charges the caps of a data set in full; again changes nothing."""
        with self._transaction():
            if self.reason(data_set) is None:
                self._database.execute("INSERT INTO forfeit VALUES (?, ?, ?)", (data_set, self._clock(), reason))
                self._log.append("forfeited", data_set=data_set, reason=reason)

    def reason(self, data_set: str) -> str | None:
        """Why the caps of a data set were charged in full; None where they were not."""
        with self._transaction():
            row = self._database.execute("SELECT reason FROM forfeit WHERE data_set = ?", (data_set,)).fetchone()
        return None if row is None else str(row[0])

    def check(self, data_set: str) -> None:
        """Raises Refused("lifetime_forfeited") for a data set whose caps were charged in full."""
        reason = self.reason(data_set)
        if reason is not None:
            raise Refused(
                Code.LIFETIME_FORFEITED,
                f"the lifetime caps of data set {data_set!r} are charged in full: {reason}; allowed: records of other "
                f'patients, under a data.name of their own (--other-people "{data_set}" if nobody can compare them)',
            )
