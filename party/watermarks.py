"""What policy.sqlite and the ledgers of a home know of each other, so that either one that went back is found.

Before a charge is written, a watermark in policy.sqlite says how many batches the ledger holds, which one comes, and
what it costs at most; it is committed before the vote leaves. So a ledger may be ahead of its mark by that one batch
and by no other, and never behind it. In turn a ledger remembers the head of the policy's log. Only if all of them are
taken back to one moment does nothing here find it; the coordinator's heads then do.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from party.home import Home
from party.lifetime import seats_of
from protocols.accounting.ledger import Ledger
from protocols.audit_log import EMPTY, AuditLog, Head
from protocols.errors import BudgetExceeded, Refused, StorageFailed
from protocols.study import Study

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS mark (
    ledger TEXT PRIMARY KEY, batches INTEGER NOT NULL, number INTEGER NOT NULL, nano INTEGER NOT NULL,
    lost INTEGER NOT NULL
) STRICT;
"""
_POLICY: Final = "policy"


@dataclass(frozen=True)
class Mark:
    """What is known of a ledger: that it held `batches`, and was then to be charged `nano` at most for batch `number`.

    lost: nano-units of earlier batches that may have been answered and are not in the ledger.
    """

    batches: int
    number: int
    nano: int
    lost: int


@dataclass(frozen=True)
class Kept:
    """What a ledger's file holds, as committed: batches, whether one of them is `number`, and the policy's head."""

    batches: int = 0
    has_number: bool = False
    entries: int = 0
    policy: Head = EMPTY


class Watermarks:
    """The marks of all ledgers, in the policy's file. transaction: opens the policy's, or joins the open one."""

    def __init__(self, database: sqlite3.Connection, transaction: Callable[[], AbstractContextManager[None]]) -> None:
        self._database = database
        self._transaction = transaction
        database.executescript(_SCHEMA)

    def of(self, path: Path) -> Mark | None:
        """The mark of a ledger; None if nothing was ever charged to it."""
        with self._transaction():
            row = self._database.execute(
                "SELECT batches, number, nano, lost FROM mark WHERE ledger = ?", (str(path),)
            ).fetchone()
        return Mark(*row) if row else None

    def raise_to(self, path: Path, *, number: int, nano: int, left: int, failed: int | None) -> None:
        """Marks a charge that comes, within the transaction of its ledger and before it is written.

        nano: its worst case; left: what the ledger's cap still bears; failed: a batch that the caller itself marked
        while it held this ledger open, and which was not charged if it is not there. Raises
        Refused("ledger_rolled_back"), ("policy_rolled_back"), or BudgetExceeded, also where only what was lost does
        not fit beside it.
        """
        with self._transaction():
            known = self.of(path)
            kept = check_ledger(path, known)
            check_ahead(known, kept)
            lost = 0 if known is None else known.lost
            if known is not None and not _written(known, kept) and known.number not in (number, failed):
                lost += known.nano
            if nano > left - lost:
                raise BudgetExceeded(
                    f"batch {number} costs {nano} nano-units; allowed: 0 to {max(left - lost, 0)}, of which {lost} "
                    "were marked before and are not in the ledger"
                )
            self._database.execute(
                "INSERT INTO mark VALUES (?, ?, ?, ?, ?) ON CONFLICT (ledger) DO UPDATE SET batches = "
                "excluded.batches, number = excluded.number, nano = excluded.nano, lost = excluded.lost",
                (str(path), kept.batches, number, nano, lost),
            )

    def missing(self, path: Path) -> int:
        """Nano-units that may have been spent beside what a ledger says, once nothing is charged to it any more.

        Raises Refused("ledger_rolled_back").
        """
        known = self.of(path)
        kept = check_ledger(path, known)
        if known is None:
            return 0
        return known.lost + (0 if _written(known, kept) else known.nano)


def read_kept(path: Path, *, number: int | None = None) -> Kept:
    """What a ledger's file holds. It waits for no vote in flight. Raises StorageFailed; all zero if there is none."""
    if not path.exists():
        return Kept()
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=rw", uri=True, isolation_level=None)) as database:
            database.execute("BEGIN")
            tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if not tables >= {"batch", "audit", "peer"}:
                return Kept()
            (batches,) = database.execute("SELECT count(*) FROM batch").fetchone()
            (found,) = database.execute("SELECT count(*) FROM batch WHERE number = ?", (number,)).fetchone()
            (entries,) = database.execute("SELECT coalesce(max(count), 0) FROM audit").fetchone()
            head = database.execute("SELECT count, hash FROM peer WHERE name = ?", (_POLICY,)).fetchone()
    except sqlite3.Error as error:
        raise StorageFailed(f"a ledger cannot be read: {error}") from error
    return Kept(batches, bool(found), entries, Head(*head) if head else EMPTY)


def check_ledger(path: Path, known: Mark | None) -> Kept:
    """What a ledger holds. Raises Refused("ledger_rolled_back") if its mark proves that it held more."""
    kept = read_kept(path, number=None if known is None else known.number)
    if known is None:
        return kept
    if not path.exists() or kept.batches < known.batches or (kept.batches > known.batches and not kept.has_number):
        raise Refused(
            "ledger_rolled_back",
            f"policy.sqlite knows {known.batches} batches of this ledger, and then batch {known.number}; here are "
            f"{kept.batches}: the ledger was restored from a backup, or removed; use the newest copy alone",
        )
    return kept


def check_ahead(known: Mark | None, kept: Kept) -> None:
    """Raises Refused("policy_rolled_back") if a ledger holds batches that its mark does not know."""
    marked = 0 if known is None else known.batches + 1
    if kept.batches > marked:
        raise _went_back(f"a ledger holds {kept.batches} batches, and policy.sqlite knows {marked}")


def check_policy(home: Path, *, approved: Collection[bytes], marks: Watermarks, log: AuditLog) -> None:
    """Raises Refused("policy_rolled_back") if a ledger of this home knows more than the policy does.

    approved: the digests of all studies that were ever approved.
    """
    known_folders = {digest.hex()[:16] for digest in approved}
    for path in sorted((home / "studies").glob("*/ledger*.sqlite")):
        kept = read_kept(path)  # before its mark: a vote between the two only raises the mark
        folder = path.parent.name
        if (kept.entries or kept.batches or kept.policy != EMPTY) and folder not in known_folders:
            raise _went_back(f"study {folder} has a ledger here, and was never approved by it")
        check_ahead(marks.of(path), kept)
        _check_head(kept.policy, log)


def remember_policy(ledger: Ledger, log: AuditLog) -> None:
    """Lets a ledger remember the newest head of the policy's log. Raises Refused("policy_rolled_back")."""
    with ledger.log.together():
        _check_head(ledger.log.peer(_POLICY), log)
        ledger.log.remember(_POLICY, log.head(), proof=b"")


def remember_approval(home: Home, study: Study, party: str, log: AuditLog) -> None:
    """Makes the ledgers of a study that was just approved, which remember that it was."""
    for seat in seats_of(study, party):
        with Ledger(home.ledger(study.digest, seat)) as ledger:
            remember_policy(ledger, log)


def _written(known: Mark, kept: Kept) -> bool:
    """Whether the charge of a mark is in its ledger. If not, it failed after the mark, or the ledger lost it."""
    return kept.batches > known.batches


def _check_head(known: Head, log: AuditLog) -> None:
    if not log.contains(known):
        raise _went_back(f"a ledger knows entry {known.count} of its log, which is missing or another")


def _went_back(what: str) -> Refused:
    return Refused(
        "policy_rolled_back",
        f"{what}: policy.sqlite was restored from a backup, or is another hospital's; allowed: the newest copy alone, "
        "as an older one would let studies pass the lifetime cap",
    )
