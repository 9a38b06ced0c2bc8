"""The ledger: caps, reservations and settlements in SQLite. Each side keeps its own; it is the only state.

Spend, then speak: a batch's worst case is reserved in the transaction that stores what will be sent, before it is sent.
The outcome settles a reservation once, and only downwards; one that is never settled stands; one that no outcome can
lower is settled where it is made. settled + reserved never exceeds an account's cap, in whatever order calls and
crashes come. Each account counts in one unit; an amount of another is refused.

Triggers repeat these rules, so that no later statement lowers a charge or removes a log entry by mistake. Who can write
the file can drop them; `conclave-party verify` then finds sums that differ. SQLite keeps no checksums, so every amount
stands twice, in its charge and in its account's sum, and a note with a digest of itself: a flipped bit, or a page that
went back, is found when the file is opened or the note is read, and the ledger is not used.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from protocols.errors import BudgetExceeded, InvalidInput, Refused, StorageFailed
from protocols.ledger.amount import Amount
from protocols.ledger.audit_log import AuditLog
from protocols.ledger.database import Database
from protocols.refusals.code import Code

LEDGER_SCHEMA = """
CREATE TABLE IF NOT EXISTS account (
    name TEXT PRIMARY KEY, unit TEXT NOT NULL, cap INTEGER NOT NULL CHECK (cap >= 0),
    settled INTEGER NOT NULL DEFAULT 0, reserved INTEGER NOT NULL DEFAULT 0,
    CHECK (settled >= 0 AND reserved >= 0 AND settled + reserved <= cap)
) STRICT;
CREATE TABLE IF NOT EXISTS binding (
    one INTEGER PRIMARY KEY CHECK (one = 1), study BLOB NOT NULL, run BLOB NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS batch (
    number INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, payload BLOB NOT NULL, settled INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE IF NOT EXISTS asked (
    first INTEGER PRIMARY KEY, last INTEGER NOT NULL CHECK (last >= first), number INTEGER NOT NULL REFERENCES batch
) STRICT;
CREATE INDEX IF NOT EXISTS asked_in_batch ON asked (number);
CREATE TABLE IF NOT EXISTS charge (
    number INTEGER NOT NULL REFERENCES batch, account TEXT NOT NULL REFERENCES account,
    reserved INTEGER NOT NULL CHECK (reserved >= 0), settled INTEGER,
    PRIMARY KEY (number, account), CHECK (settled BETWEEN 0 AND reserved)
) STRICT;
CREATE TABLE IF NOT EXISTS note (
    digest BLOB NOT NULL, kind TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (digest, kind)
) STRICT;
CREATE TRIGGER IF NOT EXISTS cap_stays BEFORE UPDATE OF cap, name, unit ON account
    BEGIN SELECT RAISE(ABORT, 'a cap stands for ever'); END;
CREATE TRIGGER IF NOT EXISTS settled_only_grows BEFORE UPDATE ON account WHEN NEW.settled < OLD.settled
    BEGIN SELECT RAISE(ABORT, 'what was settled only grows'); END;
CREATE TRIGGER IF NOT EXISTS charge_settles_once BEFORE UPDATE ON charge
    WHEN OLD.settled IS NOT NULL OR NEW.settled IS NULL OR NEW.reserved != OLD.reserved OR NEW.number != OLD.number
        OR NEW.account != OLD.account
    BEGIN SELECT RAISE(ABORT, 'a charge settles once, and changes in nothing else'); END;
CREATE TRIGGER IF NOT EXISTS batch_stays_charged BEFORE UPDATE ON batch
    WHEN NEW.number != OLD.number OR NEW.digest != OLD.digest OR NEW.settled < OLD.settled
    BEGIN SELECT RAISE(ABORT, 'a batch stays as it was charged'); END;
CREATE TRIGGER IF NOT EXISTS asked_once BEFORE INSERT ON asked
    WHEN NEW.first <= (SELECT last FROM asked WHERE first <= NEW.last ORDER BY first DESC LIMIT 1)
    BEGIN SELECT RAISE(ABORT, 'a query is asked once'); END;
CREATE TRIGGER IF NOT EXISTS asked_stays BEFORE UPDATE ON asked
    BEGIN SELECT RAISE(ABORT, 'a query that was asked stays asked'); END;
CREATE TRIGGER IF NOT EXISTS binding_stays BEFORE UPDATE ON binding
    BEGIN SELECT RAISE(ABORT, 'a ledger stays of its study'); END;
""" + "".join(
    f"CREATE TRIGGER IF NOT EXISTS {table}_is_never_deleted BEFORE DELETE ON {table} "
    f"BEGIN SELECT RAISE(ABORT, 'what was charged is never deleted'); END;\n"
    for table in ("account", "binding", "batch", "asked", "charge")
)


# What an integer of SQLite cannot hold.
_TOO_LARGE = 2**63
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


def _check_sums(file: Database, *, audited: bool) -> None:
    """Raises sqlite3.DatabaseError unless the indices of a ledger's tables agree and, except where it is opened to be
    audited, its accounts and charges add up."""
    try:
        file.check_tables(_TABLES)
        if not audited and any(count for (count,) in file.connection.execute(_DIFFERENT)):
            raise sqlite3.DatabaseError("charges and accounts do not add up: it is damaged; restore it from a backup")
    except UnicodeDecodeError:  # SQLite's own message quotes what is damaged
        raise sqlite3.DatabaseError("its text is damaged: restore it from a backup") from None


def _runs(queries: Sequence[int]) -> list[tuple[int, int]]:
    """The first and the last of each run of consecutive queries; one that is named twice begins two runs."""
    runs: list[tuple[int, int]] = []
    queries = sorted(queries)
    if queries and queries == list(range(queries[0], queries[0] + len(queries))):
        return [(queries[0], queries[-1])]
    for query in queries:
        if runs and query == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], query)
        else:
            runs.append((query, query))
    return runs


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


# The note of a batch that was given up.
_GIVEN_UP = "given_up"


@dataclass(frozen=True)
class Balance:
    """One account: settled + reserved <= cap."""

    cap: Amount
    settled: Amount
    reserved: Amount

    @property
    def spent(self) -> Amount:
        """What counts against the cap: settled charges and reservations that stand."""
        return self.settled + self.reserved


@dataclass(frozen=True, repr=False)
class StoredBatch:
    """A batch that was charged: the digest of the request, what is sent for it, and how many queries it asked."""

    number: int
    digest: bytes
    payload: bytes
    settled: bool
    queries: int


class Ledger:
    """Accounts with caps of ONE study in one SQLite file (or ":memory:"), a context manager. A method is one step."""

    def __init__(self, path: Path | str, *, clock: Callable[[], int] = time.time_ns, audited: bool = False) -> None:
        """Opens or creates the file. Raises StorageFailed when it cannot be opened, is not a ledger, or is damaged.

        clock: nanoseconds since 1970, for `log`, which records charges in the transactions that make them; audited:
        whether one whose amounts do not add up is opened too, for an audit that says which.
        """
        file = Database(path, LEDGER_SCHEMA, undone="nothing was charged")
        self._database, self._transaction, self._rows = file.connection, file.transaction, file.rows
        self.log = AuditLog(file, clock=clock)
        with file.opening():
            _check_sums(file, audited=audited)

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file; what was committed stays."""
        self._database.close()

    def bind(self, *, study: bytes, run: bytes) -> bytes:
        """Binds a new ledger to a study and one run of it; returns the run that it is bound to.

        `run` (any bytes, random if runs must be told apart) is kept only if the ledger is new. Raises InvalidInput for
        a ledger of another study: batches and queries are counted per ledger.
        """
        with self._transaction():
            self._database.execute("INSERT OR IGNORE INTO binding VALUES (1, ?, ?)", (study, run))
            bound, stored_run = self._database.execute("SELECT study, run FROM binding").fetchone()
            if bound != study:
                raise InvalidInput(
                    f"this ledger is of study {bound.hex()[:16]}; allowed: {study.hex()[:16]}, or a new one"
                )
            return bytes(stored_run)

    def open_accounts(self, caps: Mapping[str, Amount]) -> None:
        """Creates accounts; one that exists must have the same cap. Raises InvalidInput, and creates none."""
        with self._transaction():
            before = self.balances()
            for name, cap in caps.items():
                if not 0 <= cap < _TOO_LARGE:
                    raise InvalidInput(f"cap of {name!r} is {cap}; allowed: 0 to {_TOO_LARGE - 1} {cap.unit}")
                kept = before.get(name)
                if kept is not None and kept.cap != cap:
                    raise InvalidInput(f"cap of {name!r} is {kept.cap} in this ledger; {cap} was asked for")
                row = (name, cap.unit, int(cap))
                self._database.execute("INSERT OR IGNORE INTO account (name, unit, cap) VALUES (?, ?, ?)", row)

    def reserve(
        self,
        number: int,
        digest: bytes,
        amounts: Mapping[str, Amount],
        payload: bytes,
        *,
        queries: Sequence[int],
        limit: int,
        final: bool = False,
    ) -> None:
        """Charges every account its amount and stores the payload and the queries, in one transaction or not at all.

        queries: positions in the pool, below `limit`, the study's query limit; each may be asked once in a ledger's
        life, and at most `limit` in total: Refused("query_repeated"), ("query_limit"). final: whether the amounts are
        settled at once, so that nothing can change them. Raises BudgetExceeded if some account cannot pay,
        InvalidInput for an amount of another unit or of 2^63 and more, Refused("batch_reused") if the batch number or
        digest was charged before (a caller that wants idempotence checks `stored` first).
        """
        with self._transaction():
            if self._rows("SELECT 1 FROM batch WHERE number = ? OR digest = ?", (number, digest)):
                raise Refused(Code.BATCH_REUSED, f"batch {number} was charged before; allowed: a new number")
            asked = self.asked()
            if asked + len(queries) > limit or not 0 <= min(queries, default=0) <= max(queries, default=0) < limit:
                raise Refused(
                    Code.QUERY_LIMIT, f"{len(queries)} queries after {asked}; allowed: {limit}, each below it"
                )
            self._database.execute("INSERT INTO batch VALUES (?, ?, ?, 0)", (number, digest, payload))
            try:
                self._database.execute(
                    "INSERT INTO asked SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), ? "
                    "FROM json_each(?)",
                    (number, json.dumps(_runs(queries))),
                )
            except sqlite3.IntegrityError:
                raise Refused(
                    Code.QUERY_REPEATED, f"batch {number} asks a query again; allowed: each query once"
                ) from None
            for name, amount in amounts.items():
                if amount >= _TOO_LARGE:
                    raise InvalidInput(f"batch {number} costs {name!r} {amount}; allowed: below {_TOO_LARGE}")
                paid = self._database.execute(
                    "UPDATE account SET reserved = reserved + ?1 "
                    "WHERE name = ?2 AND unit = coalesce(?3, unit) AND ?1 BETWEEN 0 AND cap - settled - reserved",
                    (int(amount), name, getattr(amount, "unit", None)),
                )
                if paid.rowcount != 1:
                    balance = self.balance(name)
                    left = balance.cap - balance.spent
                    fits = amount >= 0 and amount <= left  # InvalidInput for an amount of another unit
                    assert not fits
                    raise BudgetExceeded(
                        f"batch {number} costs {name!r} {amount}; allowed: 0 to {left} "
                        f"(cap {balance.cap}, spent {balance.spent})"
                    )
                self._database.execute(
                    "INSERT INTO charge (number, account, reserved) VALUES (?, ?, ?)", (number, name, int(amount))
                )
            self._log_amounts("reserved", number, digest, amounts)
            if final:
                self.settle(number, digest, amounts)

    def settle(
        self, number: int, digest: bytes, amounts: Mapping[str, Amount], *, payload: bytes | None = None
    ) -> None:
        """Replaces the batch's reservations by their final amounts, downwards only, once, in one transaction.

        `payload`, if given, replaces what is stored for the batch. Settling again with the same amounts changes
        nothing. Raises Refused: "unknown_batch", "digest_mismatch", "given_up", "settled_otherwise",
        "settles_upwards".
        """
        with self._transaction():
            stored = self._charged_under(number, digest)
            if self.given_up(number):
                raise Refused(Code.GIVEN_UP, f"batch {number} was given up; its reservations stand")
            charges = self.charged(number)
            if set(charges) != set(amounts):
                raise Refused(
                    Code.SETTLED_OTHERWISE, f"batch {number} was charged to other accounts, {len(charges)} in number"
                )
            if stored.settled:
                if self.settled(number) != dict(amounts):
                    raise Refused(Code.SETTLED_OTHERWISE, f"batch {number} was settled before, with other amounts")
                return
            for name, amount in amounts.items():
                if not 0 <= amount <= charges[name]:
                    raise Refused(
                        Code.SETTLES_UPWARDS, f"batch {number} settles at {amount}; allowed: 0 to {charges[name]}"
                    )
                self._database.execute(
                    "UPDATE account SET reserved = reserved - ?, settled = settled + ? WHERE name = ?",
                    (int(charges[name]), int(amount), name),
                )
                self._database.execute(
                    "UPDATE charge SET settled = ? WHERE number = ? AND account = ?", (int(amount), number, name)
                )
            self._database.execute(
                "UPDATE batch SET settled = 1, payload = coalesce(?, payload) WHERE number = ?", (payload, number)
            )
            self._log_amounts("settled", number, digest, amounts)

    def give_up(self, number: int, digest: bytes) -> None:
        """Ends a batch for ever, without an outcome: its reservations stand, and nothing can settle it.

        Calling it again changes nothing. Raises Refused: "unknown_batch", "digest_mismatch", "settled_otherwise" for a
        batch that was settled.
        """
        with self._transaction():
            if self._charged_under(number, digest).settled:
                raise Refused(Code.SETTLED_OTHERWISE, f"batch {number} was settled before")
            if not self.given_up(number):
                self.note(digest, _GIVEN_UP, b"")
                self._log_amounts("given_up", number, digest, self.charged(number))

    def given_up(self, number: int) -> bool:
        """Whether a batch was given up."""
        query = "SELECT 1 FROM batch JOIN note USING (digest) WHERE number = ? AND kind = ?"
        return bool(self._rows(query, (number, _GIVEN_UP)))

    def note(self, digest: bytes, kind: str, value: bytes) -> bytes:
        """Stores a value of that kind under a request's digest unless there is one; returns the stored one.

        For what a step must find again after a crash, such as a fresh secret. It is on disk when this returns.
        """
        with self._transaction(writes_once=True):
            row = (digest, kind, marked(digest, kind, value))
            self._database.execute("INSERT OR IGNORE INTO note VALUES (?, ?, ?)", row)
            rows = self._database.execute("SELECT value FROM note WHERE digest = ? AND kind = ?", (digest, kind))
            return unmarked(digest, kind, rows.fetchone()[0])

    def noted(self, digest: bytes, kind: str) -> bytes | None:
        """The value that is stored under a request's digest, or None."""
        rows = self._rows("SELECT value FROM note WHERE digest = ? AND kind = ?", (digest, kind))
        return unmarked(digest, kind, rows[0][0]) if rows else None

    def forget(self, digest: bytes, kind: str) -> None:
        """Deletes what is stored, if anything: a secret that is never needed again."""
        with self._transaction():
            self._database.execute("DELETE FROM note WHERE digest = ? AND kind = ?", (digest, kind))

    def forget_uncharged(self, kind: str, *others: str, keep: int) -> None:
        """Deletes the values of a kind under digests that were never charged, except the newest `keep`.

        Those of `others` go with the one of `kind`, never before it. So steps of batches that never come fill no disk.
        """
        with self._transaction():
            self._database.execute(
                "DELETE FROM note WHERE kind IN (SELECT value FROM json_each(?)) AND digest NOT IN (SELECT digest FROM "
                "batch UNION ALL SELECT * FROM (SELECT digest FROM note WHERE kind = ? AND digest NOT IN "
                "(SELECT digest FROM batch) ORDER BY rowid DESC LIMIT ?))",
                (json.dumps([kind, *others]), kind, keep),
            )

    def stored(self, number: int) -> StoredBatch | None:
        """What was charged under this batch number, or None."""
        return self._stored("number", number)

    def stored_under(self, digest: bytes) -> StoredBatch | None:
        """What was charged under this digest of a request, or None."""
        return self._stored("digest", digest)

    def _stored(self, column: str, value: int | bytes) -> StoredBatch | None:
        rows = self._rows(
            "SELECT number, digest, payload, settled, (SELECT total(last - first + 1) FROM asked "
            f"WHERE asked.number = batch.number) FROM batch WHERE {column} = ?",
            (value,),
        )
        for number, digest, payload, settled, asked in rows:
            return StoredBatch(number, digest, payload, bool(settled), int(asked))
        return None

    def number_of(self, digest: bytes) -> int | None:
        """The number of the batch that was charged under this digest, or None."""
        rows = self._rows("SELECT number FROM batch WHERE digest = ?", (digest,))
        return int(rows[0][0]) if rows else None

    def charged_number(self, digest: bytes) -> int:
        """The number of the batch that was charged under this digest. Raises Refused("unknown_batch") if none was."""
        number = self.number_of(digest)
        if number is None:
            raise Refused(Code.UNKNOWN_BATCH, f"no batch was charged under {digest.hex()[:16]}")
        return number

    def queries(self, number: int) -> list[int]:
        """The positions in the pool that a batch asked, in ascending order; empty if it was never charged."""
        runs = self._rows("SELECT first, last FROM asked WHERE number = ? ORDER BY first", (number,))
        return [query for first, last in runs for query in range(first, last + 1)]

    def asked(self) -> int:
        """How many queries all batches asked."""
        return int(self._rows("SELECT total(last - first + 1) FROM asked", ())[0][0])

    def charged(self, number: int) -> dict[str, Amount]:
        """What each account was reserved for a batch; empty for a batch that was never charged."""
        return self._amounts("reserved", number)

    def settled(self, number: int) -> dict[str, Amount]:
        """What each account settled for a batch; empty for a batch that is not settled."""
        return self._amounts("settled", number)

    def last_settled(self, name: str) -> StoredBatch | None:
        """The newest batch for which an account settled more than nothing, or None."""
        rows = self._rows("SELECT max(number) FROM charge WHERE account = ? AND settled > 0", (name,))
        return None if rows[0][0] is None else self.stored(rows[0][0])

    def balance(self, name: str) -> Balance:
        """One account. Raises InvalidInput for a name that has none."""
        found = self.balances("WHERE name = ?", name).get(name)
        if found is None:
            raise InvalidInput(f"no account {name!r} in this ledger")
        return found

    def balances(self, chosen: str = "", *of: str) -> dict[str, Balance]:
        """All accounts, or those that a condition chooses."""
        rows = self._rows(f"SELECT name, unit, cap, settled, reserved FROM account {chosen}", of)
        return {name: Balance(*(Amount(each, unit) for each in counts)) for name, unit, *counts in rows}

    def ever_reserved(self, name: str) -> int:
        """The sum of the worst cases of all batches ever charged to an account, settled or not: it only grows."""
        return int(self._rows("SELECT coalesce(sum(reserved), 0) FROM charge WHERE account = ?", (name,))[0][0])

    def without_evidence(self, name: str, kind: str) -> list[bytes]:
        """The digests of the batches about which no evidence of this kind is kept, in the order of their numbers."""
        known = "SELECT number FROM evidence WHERE name = ? AND kind = ?"
        rows = self._rows(f"SELECT digest FROM batch WHERE number NOT IN ({known}) ORDER BY number", (name, kind))
        return [bytes(row[0]) for row in rows]

    def unsettled(self) -> list[int]:
        """The numbers of the batches whose reservations stand, in ascending order."""
        return [int(row[0]) for row in self._rows("SELECT number FROM batch WHERE NOT settled ORDER BY number", ())]

    def _charged_under(self, number: int, digest: bytes) -> StoredBatch:
        stored = self.stored(number)
        if stored is None:
            raise Refused(Code.UNKNOWN_BATCH, f"batch {number} was never charged")
        if stored.digest != digest:
            raise Refused(Code.DIGEST_MISMATCH, f"batch {number} was charged under another digest")
        return stored

    def _log_amounts(self, event: str, number: int, digest: bytes, amounts: Mapping[str, Amount]) -> None:
        """One entry for all accounts: their number, sum and a digest of the amounts in order of names."""
        listed = json.dumps(amounts, sort_keys=True).encode()
        self.log.append(
            event,
            batch=number,
            request=digest.hex(),
            accounts=len(amounts),
            total=int(sum(amounts.values())),
            amounts=hashlib.sha256(listed).hexdigest(),
        )

    def _amounts(self, column: str, number: int) -> dict[str, Amount]:
        rows = self._rows(
            f"SELECT account, charge.{column}, unit FROM charge JOIN account ON account.name = charge.account "
            f"WHERE number = ? AND charge.{column} IS NOT NULL",
            (number,),
        )
        return {account: Amount(count, unit) for account, count, unit in rows}
