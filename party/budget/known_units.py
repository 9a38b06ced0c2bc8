"""Whose records a lifetime cap counts: keyed digests of the units' names, and of the rows, in the policy's file.

A cap belongs to people, not to the name of a data set, so records of people who are known under one cap are not counted
under another. Names are folded first (party.data.mapping), and the key lies beside the digests, so all homes that share
the policy compare alike. Digests are pseudonymous personal data: whoever has the file and a name can look it up. A
hospital that gives its patients new codes, and changes their rows, is not found out (docs/decisions/0058).

The same digests say in which seat of a study a unit has spoken.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from party.budget.watermarks import PolicyFile
from party.data.mapping import folded, folded_number
from party.data.records import DataSettings, Records
from protocols.errors import InvalidInput, Refused
from protocols.refusals.code import Code

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS digest_key (one INTEGER PRIMARY KEY CHECK (one = 1), key BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS known (
    data_set TEXT NOT NULL, kind TEXT NOT NULL CHECK (kind IN ('name', 'row')), digest INTEGER NOT NULL,
    PRIMARY KEY (data_set, kind, digest)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS other_people (
    data_set TEXT NOT NULL, other TEXT NOT NULL, PRIMARY KEY (data_set, other)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS spoken (
    study BLOB NOT NULL, digest INTEGER NOT NULL, seat TEXT NOT NULL, PRIMARY KEY (study, digest)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS judges (
    study BLOB NOT NULL, seat TEXT NOT NULL, pair BLOB NOT NULL, digests BLOB NOT NULL, used INTEGER NOT NULL,
    PRIMARY KEY (study, seat)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS spoken_stands BEFORE UPDATE ON spoken
    BEGIN SELECT RAISE(ABORT, 'a unit speaks in one seat'); END;
"""
# The share of a data set's units, or rows, from which on they are taken to be those that another cap counts.
_MOST: Final = 0.05


@dataclass(frozen=True)
class UnitDigests:
    """names: of the named units, None where they have none; rows: of all rows."""

    names: frozenset[int] | None = field(repr=False)
    rows: frozenset[int] = field(repr=False)


class KnownUnits:
    """The digests of a hospital's data sets, in the policy's file."""

    def __init__(self, file: PolicyFile) -> None:
        self._database, self._transaction, self._log = file.database, file.transaction, file.log
        self._database.executescript(_SCHEMA)
        with self._transaction():
            self._database.execute("INSERT OR IGNORE INTO digest_key VALUES (1, ?)", (secrets.token_bytes(32),))
            self._key = bytes(self._database.execute("SELECT key FROM digest_key").fetchone()[0])

    def digests(self, settings: DataSettings, records: Records) -> UnitDigests:
        """The digests of a data set: of patients where they have names, and of its rows as they are written.

        A table's rows are all of its columns (but those of which two have one name), whatever a study uses of them;
        elsewhere they are the inputs alone, as studies number classes each in its own way. Raises as reading does.
        """
        names = None if records.patients is None else frozenset(self.of_names(records.patients).tolist())
        if settings.source.is_table:
            form = settings.mapping.form
            header = settings.source.header(form)
            once = sorted(name for name in header if header.count(name) == 1)
            table = settings.source.columns(once, form)
            columns = [table[name] for name in once]
            texts = ("\x1f".join(map(str.strip, cells)).encode() for cells in zip(*columns, strict=True))
            return UnitDigests(names, frozenset(map(self._digest, texts)))
        return UnitDigests(names, frozenset(self._digest(row.tobytes()) for row in records.inputs))

    def of_names(self, names: Iterable[str]) -> Int64[ndarray, " names"]:
        """The digest of each name, folded as far as can be: one person written in two ways is one."""
        found: dict[str, int] = {}
        for name in names:
            if name not in found:
                found[name] = self._digest(folded_number(name).encode("utf-8", "surrogatepass"))
        return np.array([found[name] for name in names], np.int64)

    def check(self, data_set: str, units: UnitDigests, *, other_people: Collection[str]) -> dict[str, int]:
        """How many of these rows other caps count, by data set, where a person must say whose they are.

        other_people: data sets of which a person says that theirs are other people. What was said earlier holds for the
        names and rows that this data set had then. Raises Refused("known_records") where 5 % or more of the names, or
        all rows, are counted under other caps, or a cap has no digests any more.
        """
        own = folded(data_set)
        with self._transaction():
            caps = "SELECT data_set FROM lifetime UNION SELECT data_set FROM forfeit"
            said = self._database.execute("SELECT other FROM other_people WHERE data_set = ?", (own,))
            earlier = {str(row[0]) for row in said}
            others = sorted({str(row[0]) for row in self._database.execute(caps)} - {own, *map(folded, other_people)})
            names, rows = (
                {
                    other: self._known(other, kind) & (of - self._known(own, kind) if other in earlier else of)
                    for other in others
                }
                for kind, of in (("name", units.names or frozenset()), ("row", units.rows))
            )
            for other in sorted({*others} - earlier):
                if not self._database.execute("SELECT 1 FROM known WHERE data_set = ?", (other,)).fetchone():
                    raise refused(data_set, other, f"no digests of {other!r} are kept to compare it with")
        seen = frozenset().union(*names.values())
        if units.names and len(seen) >= _MOST * len(units.names):
            most = max(others, key=lambda other: len(names[other]))
            counted = f"{len(seen)} of its {len(units.names)} patients are counted under the cap of {most!r}"
            raise refused(data_set, most, counted)
        alike = frozenset().union(*rows.values())
        if alike and alike == units.rows:
            most = max(others, key=lambda other: len(rows[other]))
            raise refused(data_set, most, f"each of its rows is counted under the cap of {most!r}")
        if len(alike) < _MOST * len(units.rows):
            return {}
        return {other: len(of) for other, of in rows.items() if of}

    def remember(self, data_set: str, units: UnitDigests, *, other_people: Collection[str]) -> None:
        """Keeps the digests of a data set, and that others are of other people, as a person said."""
        name = folded(data_set)
        with self._transaction():
            for kind, of in (("name", units.names or frozenset()), ("row", units.rows)):
                new = [(name, kind, digest) for digest in of - self._known(name, kind)]
                self._database.executemany("INSERT INTO known VALUES (?, ?, ?)", new)
                if new:
                    self._log.append("known", data_set=name, kind=kind, added=len(new))
            for other in sorted({folded(each) for each in other_people} - {name}):
                changed = self._database.execute("INSERT OR IGNORE INTO other_people VALUES (?, ?)", (name, other))
                if changed.rowcount:
                    self._log.append("other_people", data_set=name, other=other)

    def erase(self, data_set: str, studies: Collection[bytes]) -> None:
        """Deletes what is kept of a data set's people, and of the seats in which they spoke in `studies`."""
        with self._transaction():
            self._database.execute("DELETE FROM known WHERE data_set = ?", (folded(data_set),))
            for study in studies:
                for table in ("spoken", "judges"):
                    self._database.execute(f"DELETE FROM {table} WHERE study = ?", (study,))
            self._log.append("erased", data_set=folded(data_set))

    def speak(self, study: bytes, seat: str, units: Int64[ndarray, " units"]) -> None:
        """Records that units speak in a seat, before they do. Raises Refused("spoke_elsewhere"), and records nothing,
        where one has spoken in another."""
        with self._transaction():
            moved = self.spoken_elsewhere(study, seat, units)
            if moved.any():
                raise Refused(
                    Code.SPOKE_ELSEWHERE,
                    f"seat {seat}: {int(moved.sum())} units voted in another seat of the study; allowed: the "
                    "privacy group that they had then",
                )
            rows = [(study, int(unit), seat) for unit in units]
            self._database.executemany("INSERT OR IGNORE INTO spoken VALUES (?, ?, ?)", rows)

    def list_judges(self, study: bytes, seat: str, pair: bytes, units: Int64[ndarray, " records"]) -> None:
        """Writes down who judges in a seat, in the place of an earlier list. pair: names what is kept with it. Raises
        InvalidInput where votes were given beside the earlier one."""
        digests, where = np.unique(units).astype("<i8").tobytes(), (study, seat)
        with self._transaction():
            used = "SELECT 1 FROM judges WHERE study = ? AND seat = ? AND used = 1"
            if self._database.execute(used, where).fetchone() is not None:
                raise InvalidInput(f"seat {seat}: its votes were asked; allowed: the judges that were listed with them")
            self._database.execute("INSERT OR REPLACE INTO judges VALUES (?, ?, ?, ?, 0)", (*where, pair, digests))
            self._log.append("judges_listed", study=study.hex(), seat=seat)

    def judges(self, study: bytes, seat: str, pair: bytes | None = None) -> tuple[bytes, frozenset[int]] | None:
        """The name of the pair, and the digests of the units that judge in a seat; None where none are listed. pair: of
        votes that are about to leave: the list that names it then stands for ever."""
        query = "SELECT pair, digests FROM judges WHERE study = ? AND seat = ?"
        with self._transaction():
            row = self._database.execute(query, (study, seat)).fetchone()
            used = "UPDATE judges SET used = 1 WHERE study = ? AND seat = ? AND pair = ?"
            self._database.execute(used, (study, seat, pair))
        return None if row is None else (bytes(row[0]), frozenset(np.frombuffer(row[1], "<i8").tolist()))

    def spoken_elsewhere(self, study: bytes, seat: str, units: Int64[ndarray, " units"]) -> ndarray:
        """Which of the units have spoken in another seat of the study."""
        with self._transaction():
            found = self._database.execute("SELECT digest FROM spoken WHERE study = ? AND seat != ?", (study, seat))
            elsewhere = [int(row[0]) for row in found]
        return np.isin(units, np.array(elsewhere, np.int64))

    def check_same_names(self, study: bytes, units: Int64[ndarray, " records"]) -> None:
        """Raises InvalidInput where most of the units that have spoken in a study are not among these: names are given
        otherwise now, and nobody knows in which seat each has spoken."""
        with self._transaction():
            found = self._database.execute("SELECT digest FROM spoken WHERE study = ?", (study,))
            spoken = np.array([int(row[0]) for row in found], np.int64)
        gone = int((~np.isin(spoken, units)).sum())
        if 2 * gone > len(spoken):
            raise InvalidInput(
                f"{gone} of the {len(spoken)} patients who voted in the study are not in the records now; allowed: the "
                "same data.patient and the same names, which show in which privacy group each patient votes"
            )

    def _known(self, data_set: str, kind: str) -> frozenset[int]:
        found = self._database.execute("SELECT digest FROM known WHERE data_set = ? AND kind = ?", (data_set, kind))
        return frozenset(int(row[0]) for row in found)

    def _digest(self, text: bytes) -> int:
        return int.from_bytes(hmac.digest(self._key, text, "sha256")[:8], "big", signed=True)


def refused(data_set: str, other: str, why: str) -> Refused:
    """The refusal of records that may be those of another cap."""
    return Refused(
        Code.KNOWN_RECORDS,
        f"data set {data_set!r} cannot have a cap of its own: {why}; allowed: data.name = {other!r} in node.toml for "
        f'the same people; for other people, approve with --other-people "{other}", which is recorded',
    )


def check_known(known: KnownUnits, data_set: str, units: UnitDigests) -> None:
    """Raises Refused("known_records") unless these records are those of the data set, where nobody can be asked."""
    for other, rows in known.check(data_set, units, other_people=()).items():
        raise refused(data_set, other, f"{rows} of its rows are counted under the cap of {other!r}")


def check_told_apart(named: bool, told_apart: bool) -> None:
    """Raises InvalidInput where a study was approved with names of patients, and now there are none."""
    if told_apart and not named:
        raise InvalidInput(
            "data.patient is '', but the study was approved with patients' names, which show in which seat each votes; "
            "allowed: data.patient as it was"
        )
