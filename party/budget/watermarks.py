"""What policy.sqlite and the ledgers of a hospital record about each other, so that a restored file is detected.

Nothing that a ledger charged leaves the node until two commits have followed the ledger's own (party.connection.seat):
policy.sqlite stores the newest entry of the ledger's log and all that it ever reserved, with an entry in its own log;
then the ledger stores the head of that log. So

- a ledger that lacks the entry which policy.sqlite knows was restored from an older copy, or is a copy of one that
  continued without it: it answers nothing more, and everything it ever reserved counts as spent (`Mark.reserved`);
- a policy.sqlite that lacks the entry which a ledger knows was restored;
- a ledger that holds one batch more than policy.sqlite knows was stopped between the commits: nothing of that batch
  ever left.

Ledgers are identified by study, data set and seat, wherever they are stored. A restored file goes unnoticed only if all
files that knew of later answers were restored with it; then the coordinator's heads reveal it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from party.home import PartyHome
from party.lifetime import seats_of
from protocols.errors import Refused, StorageFailed
from protocols.ledger.audit_log import EMPTY, AuditLog, Head
from protocols.ledger.database import step_after
from protocols.ledger.ledger import Ledger
from protocols.refusals.code import Code
from protocols.study.study import Study

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS mark (
    study BLOB NOT NULL, data_set TEXT NOT NULL, seat TEXT NOT NULL, count INTEGER NOT NULL CHECK (count >= 0),
    hash BLOB NOT NULL, reserved INTEGER NOT NULL CHECK (reserved >= 0), PRIMARY KEY (study, data_set, seat),
    FOREIGN KEY (study, data_set) REFERENCES approval
) STRICT;
CREATE TRIGGER IF NOT EXISTS mark_never_falls BEFORE UPDATE ON mark
    WHEN NEW.reserved < OLD.reserved OR NEW.count <= OLD.count
    BEGIN SELECT RAISE(ABORT, 'a mark never falls'); END;
CREATE TRIGGER IF NOT EXISTS mark_stays BEFORE DELETE ON mark
    BEGIN SELECT RAISE(ABORT, 'a mark stays for ever'); END;
"""
_POLICY: Final = "policy"
REPAIR: Final = "put its newest copy back, or run: conclave-party home repair"


@dataclass(frozen=True)
class Mark:
    """What is known about a ledger: an entry of its log, and the summed worst cases (nano-units) of all batches up to
    that entry."""

    head: Head = EMPTY
    reserved: int = 0


@dataclass(frozen=True)
class PolicyFile:
    """The open file of a policy. transaction: opens one, or joins the open one; clock: nanoseconds since 1970."""

    database: sqlite3.Connection
    transaction: Callable[[], AbstractContextManager[None]]
    log: AuditLog
    clock: Callable[[], int]


class Watermarks:
    """The marks of all ledgers, in the policy's file."""

    def __init__(self, file: PolicyFile) -> None:
        self._database, self._transaction, self._log = file.database, file.transaction, file.log
        self._database.executescript(_SCHEMA)

    def of(self, study: bytes, *, data_set: str, seat: str) -> Mark:
        """The mark of a ledger; the empty mark if nothing that it charged ever left."""
        with self._transaction():
            row = self._database.execute(
                "SELECT count, hash, reserved FROM mark WHERE study = ? AND data_set = ? AND seat = ?",
                (study, data_set, seat),
            ).fetchone()
        return Mark(Head(row[0], row[1]), row[2]) if row else Mark()

    def any_of(self, study: bytes, *, data_set: str) -> bool:
        """Whether anything that a study's ledgers charged ever left."""
        with self._transaction():
            query = "SELECT 1 FROM mark WHERE study = ? AND data_set = ?"
            return self._database.execute(query, (study, data_set)).fetchone() is not None

    def move(self, study: bytes, *, data_set: str, seat: str, known: Mark, to: Mark) -> None:
        """Replaces the mark `known` by a later one. Raises Refused("ledger_rolled_back") if another copy moved it."""
        with self._transaction():
            if self.of(study, data_set=data_set, seat=seat) != known:
                raise rolled_back(seat, known)
            self._database.execute(
                "INSERT INTO mark VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (study, data_set, seat) DO UPDATE SET "
                "count = excluded.count, hash = excluded.hash, reserved = excluded.reserved",
                (study, data_set, seat, to.head.count, to.head.hash, to.reserved),
            )
            self._log.append(
                "marked",
                study=study.hex(),
                data_set=data_set,
                seat=seat,
                entry=to.head.count,
                hash=to.head.hash.hex(),
                reserved=to.reserved,
            )


def check_believed(ledger: Ledger, known: Mark, *, seat: str) -> None:
    """Raises Refused("ledger_rolled_back") for a ledger that lacks the log entry that its mark names."""
    if not ledger.log.contains(known.head):
        raise rolled_back(seat, known)


def rolled_back(seat: str, known: Mark) -> Refused:
    """The refusal of a ledger that is not the newest copy, or is missing."""
    whose = f"the ledger of seat {seat!r}"
    entry = f"policy.sqlite knows entry {known.head.count} of {whose}, which is missing or different"
    made = f"{whose}, which was made before its study was approved, is missing"
    return Refused(
        Code.LEDGER_ROLLED_BACK,
        f"{entry if known != Mark() else made} here: the ledger was restored from a backup or removed, or another copy "
        "of it answered; use only the newest copy, or withdraw the study",
    )


def check_policy(home: Path, *, approved: Collection[bytes], log: AuditLog) -> None:
    """Raises Refused("policy_rolled_back") if a ledger of this home refers to an entry that the policy lacks.

    approved: the digests of all studies that were ever approved.
    """
    known_folders = {digest.hex()[:16] for digest in approved}
    for path in sorted((home / "studies").glob("*/ledger*.sqlite")):
        used, known = _read_kept(path)
        folder = path.parent.name
        if (used or known != EMPTY) and folder not in known_folders:
            raise _went_back(f"study {folder} has a ledger here, but policy.sqlite has no approval of it")
        _check_head(known, log)


def check_remembered(ledger: Ledger, log: AuditLog) -> None:
    """Raises Refused("policy_rolled_back") if a ledger knows an entry of the policy's log that is missing there."""
    _check_head(ledger.log.peer(_POLICY), log)


def remember_policy(ledger: Ledger, log: AuditLog) -> None:
    """Stores the newest head of the policy's log in a ledger. Raises Refused("policy_rolled_back")."""
    with ledger.log.together():
        check_remembered(ledger, log)
        ledger.log.remember(_POLICY, log.head(), proof=b"")


def make_ledgers(home: PartyHome, study: Study, party: str) -> None:
    """Creates the ledgers of a study, before it is approved: whatever stops this in between, none is missing then."""
    for seat in seats_of(study, party):
        Ledger(home.ledger(study.digest, seat)).close()


def remember_approval(home: PartyHome, study: Study, party: str, log: AuditLog) -> None:
    """Has the ledgers of a newly approved study record the approval."""
    for seat in seats_of(study, party):
        with Ledger(home.ledger(study.digest, seat)) as ledger:
            remember_policy(ledger, log)


def _read_kept(path: Path) -> tuple[bool, Head]:
    """Whether a ledger's file holds any entry, and the policy's head that it knows, both as committed.

    Does not wait for a vote in flight. Raises StorageFailed.
    """
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=rw", uri=True, isolation_level=None)) as database:
            database.execute("BEGIN")
            tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if not tables >= {"audit", "peer"}:
                return False, EMPTY
            used = database.execute("SELECT 1 FROM audit LIMIT 1").fetchone() is not None
            head = database.execute("SELECT count, hash FROM peer WHERE name = ?", (_POLICY,)).fetchone()
    except sqlite3.Error as error:
        step = step_after(error, damaged=REPAIR)
        raise StorageFailed(f"{path} cannot be read as a ledger: {error}; {step}") from error
    return used, Head(*head) if head else EMPTY


def _check_head(known: Head, log: AuditLog) -> None:
    if not log.contains(known):
        raise _went_back(f"a ledger knows entry {known.count} of its log, which is missing or different")


def _went_back(what: str) -> Refused:
    return Refused(
        Code.POLICY_ROLLED_BACK,
        f"{what}: policy.sqlite was lost, restored from a backup, or is another hospital's; allowed: only the newest "
        "copy, because an older one would let studies pass the lifetime cap",
    )
