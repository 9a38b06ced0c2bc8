"""The audit log: what a ledger did and refused, as a chain of hashes that the other side countersigns.

Each entry's hash covers the entry and the hash before it, so a hash commits to all entries up to it. The head (number
of entries, last hash) travels with every message, signed. If the other side knows a head that a side's own log does not
contain, that side was restored from a backup or runs twice, and it stops.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from protocols.errors import DataCorrupt, Refused
from protocols.ledger.database import Database
from protocols.reading import parse_json
from protocols.refusals.code import Code

_SCHEMA = """
CREATE TABLE IF NOT EXISTS audit (count INTEGER PRIMARY KEY, entry TEXT NOT NULL, hash BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS peer (
    name TEXT PRIMARY KEY, count INTEGER NOT NULL, hash BLOB NOT NULL, proof BLOB NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS evidence (
    number INTEGER NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL, signed BLOB NOT NULL,
    PRIMARY KEY (number, name, kind)
) STRICT;
CREATE TRIGGER IF NOT EXISTS audit_stays BEFORE UPDATE ON audit
    BEGIN SELECT RAISE(ABORT, 'an entry stays as it is'); END;
CREATE TRIGGER IF NOT EXISTS audit_is_never_deleted BEFORE DELETE ON audit
    BEGIN SELECT RAISE(ABORT, 'an entry is never deleted'); END;
CREATE TRIGGER IF NOT EXISTS peer_goes_on BEFORE UPDATE ON peer WHEN NEW.count < OLD.count OR NEW.name != OLD.name
    BEGIN SELECT RAISE(ABORT, 'what is known of another log only grows'); END;
CREATE TRIGGER IF NOT EXISTS peer_is_never_deleted BEFORE DELETE ON peer
    BEGIN SELECT RAISE(ABORT, 'what is known of another log is never deleted'); END;
"""


@dataclass(frozen=True)
class Head:
    """How many entries a log has, and the hash of the last one: 32 bytes that commit to all of them."""

    count: int
    hash: bytes


# The head of every log that has no entry yet.
EMPTY = Head(0, hashlib.sha256(b"conclave audit 1\n").digest())


@dataclass(frozen=True)
class Entry:
    """One entry: its position from 1, when (nanoseconds since 1970), what happened, and plain fields."""

    count: int
    time_ns: int
    event: str
    fields: Mapping[str, str | int]


class AuditLog:
    """The log of one ledger, in the ledger's file. Fields hold names, codes and amounts; never votes or inputs.

    A step joins the transaction that is open. clock: nanoseconds since 1970.
    """

    def __init__(self, file: Database, *, clock: Callable[[], int]) -> None:
        self._database, self._transaction, self._rows = file.connection, file.transaction, file.rows
        self._clock = clock
        with file.opening():
            self._database.executescript(_SCHEMA)

    def together(self) -> AbstractContextManager[None]:
        """One transaction around several steps of the ledger and its log: all of them are kept, or none."""
        return self._transaction()

    def append(self, event: str, **fields: str | int) -> Head:
        """Writes one entry, within the caller's transaction if there is one; returns the new head."""
        with self._transaction(writes_once=True):
            before = self.head()
            entry = json.dumps({"time_ns": self._clock(), "event": event, **fields}, sort_keys=True)
            head = Head(before.count + 1, _next_hash(before.hash, entry))
            self._database.execute("INSERT INTO audit VALUES (?, ?, ?)", (head.count, entry, head.hash))
            return head

    def head(self) -> Head:
        """The head; EMPTY if nothing is logged."""
        rows = self._rows("SELECT count, hash FROM audit ORDER BY count DESC LIMIT 1", ())
        return Head(*rows[0]) if rows else EMPTY

    def heads(self, name: str) -> tuple[Head, Head]:
        """The head, and the newest that is known of another side's log; EMPTY where there is none."""
        found = dict.fromkeys((0, 1), EMPTY)
        for which, *head in self._rows(
            "SELECT 0, * FROM (SELECT count, hash FROM audit ORDER BY count DESC LIMIT 1) "
            "UNION ALL SELECT 1, count, hash FROM peer WHERE name = ?",
            (name,),
        ):
            found[which] = Head(*head)
        return found[0], found[1]

    def contains(self, head: Head) -> bool:
        """Whether `head` is, or once was, the head of this log."""
        if head.count == 0:
            return head == EMPTY
        return self._rows("SELECT hash FROM audit WHERE count = ?", (head.count,)) == [(head.hash,)]

    def check_known(self, head: Head, *, by: str) -> None:
        """Raises Refused("ledger_rolled_back") if `by` knows a head of this log that this log does not contain."""
        if not self.contains(head):
            raise Refused(
                Code.LEDGER_ROLLED_BACK,
                f"{by} knows entry {head.count} of this ledger's log, which is missing or different here "
                f"(there are {self.head().count}): the ledger was restored from a backup, or a copy of it is in use; "
                "use only the newest copy",
            )

    def remember(self, name: str, head: Head, *, proof: bytes) -> None:
        """Keeps the newest head of another side's log, with that side's signature of it, if there is one.

        Raises Refused as check_newer does.
        """
        with self._transaction(writes_once=True):
            known = self.check_newer(name, head)
            if head != known:
                self._database.execute(
                    "INSERT INTO peer VALUES (?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET "
                    "count = excluded.count, hash = excluded.hash, proof = excluded.proof",
                    (name, head.count, head.hash, proof),
                )

    def check_newer(self, name: str, head: Head) -> Head:
        """The newest head that is known of another side's log.

        Raises Refused("peer_rolled_back") if `head` is older than it, or different at the same number of entries.
        """
        known = self.peer(name)
        if head.count < known.count or (head.count == known.count and head.hash != known.hash):
            raise Refused(
                Code.PEER_ROLLED_BACK,
                f"the log of {name!r} has {head.count} entries, but {known.count} were seen before: it was restored "
                "from a backup, or a copy of it is in use; use only the newest copy",
            )
        return known

    def peer(self, name: str) -> Head:
        """The newest head that is known of another side's log; EMPTY if there is none."""
        rows = self._rows("SELECT count, hash FROM peer WHERE name = ?", (name,))
        return Head(*rows[0]) if rows else EMPTY

    def proof_of_peer(self, name: str) -> bytes:
        """What was kept with the newest head of another side's log; empty if there is none."""
        rows = self._rows("SELECT proof FROM peer WHERE name = ?", (name,))
        return bytes(rows[0][0]) if rows else b""

    def keep(self, number: int, name: str, kind: str, signed: bytes) -> None:
        """Keeps a signed message about a batch as evidence; the first of its kind stays."""
        self._rows("INSERT OR IGNORE INTO evidence VALUES (?, ?, ?, ?)", (number, name, kind, signed))

    def kept(self, number: int, name: str, kind: str) -> bool:
        """Whether there is evidence of this kind about a batch."""
        query = "SELECT 1 FROM evidence WHERE number = ? AND name = ? AND kind = ?"
        return bool(self._rows(query, (number, name, kind)))

    def evidence(self) -> list[tuple[int, str, str, bytes]]:
        """All evidence: batch number, name of the other side, kind, the signed bytes; in this order."""
        return self._rows("SELECT * FROM evidence ORDER BY number, name, kind", ())

    def entries(self) -> Iterator[Entry]:
        """All entries from the first, with the chain checked. Raises DataCorrupt at the first that does not fit."""
        rows = self._rows("SELECT count, entry, hash FROM audit ORDER BY count", ())
        last = EMPTY.hash
        for position, (count, entry, stored) in enumerate(rows, start=1):
            last = _next_hash(last, entry)
            if count != position or stored != last:
                raise DataCorrupt(f"audit log: entry {position} was changed or removed; the chain ends before it")
            fields = parse_json(entry, where=f"audit log: entry {position}")
            yield Entry(count, fields.pop("time_ns"), fields.pop("event"), fields)


def _next_hash(last: bytes, entry: str) -> bytes:
    return hashlib.sha256(b"conclave audit entry 1\n" + last + entry.encode()).digest()
