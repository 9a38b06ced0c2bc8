"""Damage to a ledger's file that SQLite itself does not see: it keeps no checksums, so a flipped bit is another number.

Every amount stands twice, in its charge and in its account's sum, and a note with a digest of itself. So one bit, or
one page that went back, is found where the file is opened, or where the note is read, and the ledger is not used: an
amount that reads lower would be spent again, and from another seed other noise would be drawn.
"""

from __future__ import annotations

import hashlib
import sqlite3

from protocols.errors import StorageFailed

# Tables whose indices must agree with their rows: the log has a chain, and evidence has signatures.
_TABLES = ("account", "charge", "asked", "binding", "batch", "note")
_DIFFERENT = """
WITH summed AS (
    SELECT account AS name, sum(coalesce(settled, 0)) AS settled,
        sum(CASE WHEN settled IS NULL THEN reserved ELSE 0 END) AS reserved
    FROM charge GROUP BY account
)
SELECT count(*) FROM account LEFT JOIN summed USING (name)
    WHERE account.settled IS NOT coalesce(summed.settled, 0) OR account.reserved IS NOT coalesce(summed.reserved, 0)
UNION ALL SELECT count(*) FROM summed LEFT JOIN account USING (name) WHERE account.name IS NULL
UNION ALL SELECT count(*) FROM charge JOIN batch USING (number) WHERE (charge.settled IS NULL) != (batch.settled = 0)
"""


def check_sums(database: sqlite3.Connection, *, audited: bool) -> None:
    """Raises sqlite3.DatabaseError unless the indices of a ledger's tables agree and, except where it is opened to be
    audited, its accounts and charges add up."""
    try:
        for table in _TABLES:
            ((found, *_), *_) = database.execute(f"PRAGMA integrity_check({table})").fetchall()
            if found != "ok":
                raise sqlite3.DatabaseError(f"table {table} is damaged: restore it from a backup")
        if not audited and any(count for (count,) in database.execute(_DIFFERENT)):
            raise sqlite3.DatabaseError("charges and accounts do not add up: it is damaged; restore it from a backup")
    except UnicodeDecodeError:  # SQLite's own message quotes what is damaged
        raise sqlite3.DatabaseError("its text is damaged: restore it from a backup") from None


def marked(digest: bytes, kind: str, value: bytes) -> bytes:
    """A note with the mark by which damage is found."""
    return _mark(digest, kind, value) + value


def unmarked(digest: bytes, kind: str, stored: bytes) -> bytes:
    """The note. Raises StorageFailed if it is not what was stored."""
    value = stored[_BYTES:]
    if stored[:_BYTES] != _mark(digest, kind, value):
        raise StorageFailed(f"ledger: the note {kind.split()[0]!r} is damaged: restore it from a backup")
    return value


_BYTES = 8


def _mark(digest: bytes, kind: str, value: bytes) -> bytes:
    return hashlib.sha256(b"conclave note 1\n" + digest + kind.encode() + b"\n" + value).digest()[:_BYTES]
