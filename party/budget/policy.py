"""What this hospital has allowed: approved studies, and the one lifetime cap of each data set and unit, in SQLite.

Approving a study reserves its whole cap, in the transaction that records the approval. Withdrawing it gives back what
its ledger never spent; only the home that approved it can do so, because it has the ledger. Everything is written to an
audit log like a ledger's. Homes of one hospital that share a data set, each with its own coordinator, share this file.

SQLite keeps no checksums, so every reservation stands twice, in its table and in the log, and must agree. A file
that is lost or older than its ledgers may have forgotten approvals. What it forgot cannot be told from what was
never approved, so the whole cap of each of its data sets counts as spent, for ever. Nobody's word lowers that: a
coordinator's log can prove that more was spent, never that no more was.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum
from pathlib import Path
from types import TracebackType
from typing import Final  # SQLite's values

import numpy as np

from party.budget.known_units import KnownUnits
from party.budget.watermarks import PolicyFile, Watermarks, check_policy
from party.data.mapping import folded
from party.home import PartyHome
from party.lifetime import Forecast, LifetimeCap, LifetimeUse, StudyCost, first_order, study_cost, too_much
from protocols.errors import DataCorrupt, DataUnavailable, InvalidInput, Refused
from protocols.ledger.audit_log import AuditLog
from protocols.ledger.database import Database
from protocols.reading import parse_json
from protocols.refusals.code import Code
from protocols.study.deployed import DeployedStudy

POLICY_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS lifetime (
    data_set TEXT NOT NULL, unit TEXT NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL, currency REAL,
    noise_room REAL NOT NULL CHECK (noise_room >= 0), PRIMARY KEY (data_set, unit)
) STRICT;
CREATE TABLE IF NOT EXISTS approval (
    study BLOB NOT NULL, data_set TEXT NOT NULL, home TEXT NOT NULL, place TEXT NOT NULL, party TEXT NOT NULL,
    name TEXT NOT NULL, approved_ns INTEGER NOT NULL, withdrawn_ns INTEGER,
    told_apart INTEGER NOT NULL, PRIMARY KEY (study, data_set)
) STRICT;
CREATE TABLE IF NOT EXISTS reservation (
    study BLOB NOT NULL, data_set TEXT NOT NULL, unit TEXT NOT NULL, nano INTEGER NOT NULL CHECK (nano >= 0),
    noise_distance REAL NOT NULL CHECK (noise_distance >= 0),
    PRIMARY KEY (study, data_set, unit), FOREIGN KEY (data_set, unit) REFERENCES lifetime,
    FOREIGN KEY (study, data_set) REFERENCES approval
) STRICT;
CREATE TRIGGER IF NOT EXISTS reservation_falls_when_withdrawn BEFORE UPDATE ON reservation
    WHEN NEW.nano > OLD.nano OR NEW.noise_distance != OLD.noise_distance OR NOT EXISTS (
        SELECT 1 FROM approval WHERE study = OLD.study AND data_set = OLD.data_set AND withdrawn_ns IS NOT NULL)
    BEGIN SELECT RAISE(ABORT, 'a reservation only falls, and only when its study was withdrawn'); END;
CREATE TRIGGER IF NOT EXISTS approval_is_withdrawn_once BEFORE UPDATE ON approval
    WHEN OLD.withdrawn_ns IS NOT NULL OR NEW.study != OLD.study OR NEW.data_set != OLD.data_set OR NEW.home != OLD.home
        OR NEW.told_apart != OLD.told_apart
    BEGIN SELECT RAISE(ABORT, 'an approval is withdrawn once, and changes in nothing else'); END;
CREATE TRIGGER IF NOT EXISTS lifetime_stands BEFORE UPDATE ON lifetime
    BEGIN SELECT RAISE(ABORT, 'a lifetime cap stands for ever'); END;
""" + "".join(
    f"CREATE TRIGGER IF NOT EXISTS {table}_is_never_deleted BEFORE DELETE ON {table} "
    f"BEGIN SELECT RAISE(ABORT, 'what was reserved is never deleted'); END;\n"
    for table in ("lifetime", "approval", "reservation")
)


_TABLES = ("lifetime", "approval", "reservation")
_KEPT = """
SELECT hex(study), data_set, unit, nano, noise_distance FROM reservation JOIN approval USING (study, data_set)
"""
_LOGGED = 'SELECT entry FROM audit WHERE entry LIKE \'%"event": "approved"%\' OR entry LIKE \'%"event": "released"%\''
_ROWS = "SELECT count(*) FROM reservation"


def check_reservations(file: Database) -> None:
    """Raises sqlite3.DatabaseError unless each reservation is what the log says: as approved, or as released."""
    try:
        file.check_tables(_TABLES)
        logged: dict[tuple[str, str, str], tuple[int, float]] = {}
        for (text,) in file.connection.execute(_LOGGED):
            entry = parse_json(text, where="an entry")
            key = str(entry["study"]), str(entry["data_set"]), str(entry["unit"])
            nano, noise = int(entry["nano"]), float(entry["noise_distance"])
            logged[key] = min(nano, logged[key][0]) if key in logged else nano, noise
        kept = {
            (study.lower(), data_set, unit): (nano, noise)
            for study, data_set, unit, nano, noise in file.connection.execute(_KEPT)
        }
        ((rows,),) = file.connection.execute(_ROWS).fetchall()
    except (DataCorrupt, ValueError, TypeError, KeyError):  # SQLite's and JSON's own messages quote what is damaged
        raise sqlite3.DatabaseError("its text is damaged: restore it from a backup") from None
    if kept != logged or rows != len(kept):
        raise sqlite3.DatabaseError("reservations are not what the log says: it is damaged; restore it from a backup")


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
    """The forfeited data sets, in the policy's file."""

    def __init__(self, file: PolicyFile) -> None:
        self._database, self._transaction, self._log = file.database, file.transaction, file.log
        self._clock = file.clock
        self._database.executescript(_SCHEMA)

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


@dataclass(frozen=True)
class Approval:
    """A study approved for a data set: by which home, and whether it has been withdrawn since.

    home: the identity of the home; place: its path at that time; told_apart: whether its units had names, so that one
    speaks in one seat alone (party.lifetime.study_cost).
    """

    study: bytes
    data_set: str
    home: str
    place: str
    party: str
    name: str
    withdrawn: bool
    told_apart: bool


class Policy:
    """The approvals and lifetime caps of a hospital. Use as a context manager, from any thread."""

    def __init__(self, path: Path | str, *, clock: Callable[[], int] = time.time_ns) -> None:
        """Opens or creates the file. Raises StorageFailed. clock: nanoseconds since 1970."""
        self._clock = clock
        database = Database(path, POLICY_SCHEMA, undone="nothing was changed")
        self._database, self._transaction, self._rows = database.connection, database.transaction, database.rows
        self.log = AuditLog(database, clock=clock)
        file = PolicyFile(self._database, self._transaction, self.log, clock)
        with database.opening():
            self.marks = Watermarks(file)
            check_reservations(database)
            self.forfeits, self.known = Forfeits(file), KnownUnits(file)

    def __enter__(self) -> Policy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.close()

    def forecast(
        self, study: DeployedStudy, *, party: str, data_set: str, caps: Mapping[str, LifetimeCap], told_apart: bool
    ) -> list[Forecast]:
        """What approving `study` would do to the caps of this data set; nothing is written.

        caps: by unit, from the settings; the study's own unit must have one. A cap for a unit that had none counts the
        earlier studies of the data set, too, each at its whole cap. Raises Refused("no_lifetime_cap"),
        ("lifetime_cap_changed"), ("lifetime_currency"), or ("lifetime_cap") where even alone it passes a cap.
        """
        data_set = folded(data_set)
        if study.unit not in caps:
            raise Refused(
                Code.NO_LIFETIME_CAP,
                f"the study protects the unit {study.unit!r}, for which no lifetime cap is set; allowed: set "
                f"[lifetime.{study.unit}] in node.toml first",
            )
        self.forfeits.check(data_set)
        self._check_units(data_set, caps)
        return [
            self._forecast(data_set, unit, cap, study_cost(study, party, unit=unit, spent=None, told_apart=told_apart))
            for unit, cap in caps.items()
        ]

    def approve(
        self,
        study: DeployedStudy,
        *,
        party: str,
        data_set: str,
        caps: Mapping[str, LifetimeCap],
        home: PartyHome,
        told_apart: bool,
    ) -> list[Forecast]:
        """Approves a study and reserves its whole cap, as `forecast` says, or does nothing.

        Raises as `forecast` and `check_newest` do; Refused("lifetime_cap") where the reservation would pass a cap,
        ("withdrawn") for a study that was withdrawn, ("approved_elsewhere") for one that another home approved.
        Approving again changes nothing.
        """
        data_set = folded(data_set)
        with self._transaction():
            PartyHome(home.path).check_not_moved()
            self.check_newest(home.path)
            if self.check_approvable(study, data_set=data_set, home=home):
                return []
            forecasts = self.forecast(study, party=party, data_set=data_set, caps=caps, told_apart=told_apart)
            for each in forecasts:
                if not each.fits:
                    raise Refused(Code.LIFETIME_CAP, too_much(each))
            self._database.execute(
                "INSERT INTO approval VALUES (?, ?, ?, ?, ?, ?, ?, NULL, ?)",
                (study.digest, data_set, home.identity, str(home.path), party, study.name, self._clock(), told_apart),
            )
            for each in forecasts:
                after, order = each.after, each.after.currency
                made = self._database.execute(
                    "INSERT OR IGNORE INTO lifetime VALUES (?, ?, ?, ?, ?, ?)",
                    (data_set, after.unit, after.cap.epsilon, after.cap.delta, _column(order), after.noise_room),
                )
                if made.rowcount:
                    for earlier, cost in self._earlier_costs(data_set, after.unit, but=study.digest):
                        self._reserve(earlier, data_set, after.unit, cost, order)
                cost = study_cost(study, party, unit=after.unit, spent=None, told_apart=told_apart)
                self._reserve(study.digest, data_set, after.unit, cost, order)
            return forecasts

    def _reserve(self, study: bytes, data_set: str, unit: str, cost: StudyCost, order: float) -> None:
        self._database.execute(
            "INSERT INTO reservation (study, data_set, unit, nano, noise_distance) VALUES (?, ?, ?, ?, ?)",
            (study, data_set, unit, cost.at(order), cost.noise_distance),
        )
        self.log.append(
            "approved",
            study=study.hex(),
            data_set=data_set,
            unit=unit,
            nano=cost.at(order),
            noise_distance=repr(cost.noise_distance),
        )

    def _earlier_costs(self, data_set: str, unit: str, *, but: bytes) -> list[tuple[bytes, StudyCost]]:
        """What each study that was approved for a data set may have cost a unit: its whole cap, also of a withdrawn
        one, as what it spent was counted for other units. Raises Refused("lifetime_cap_changed") where a study's file
        cannot be read."""
        found = []
        for each in self.approvals():
            if each.data_set != data_set or each.study == but:
                continue
            try:
                study = PartyHome(Path(each.place)).study(each.study)
            except (DataUnavailable, InvalidInput) as error:
                raise Refused(
                    Code.LIFETIME_CAP_CHANGED,
                    f"a cap for unit {unit!r} must count study {each.name!r}, which the home then at {each.place} "
                    f"approved, but cannot read that study's file ({error}); allowed: the units as they were",
                ) from error
            cost = study_cost(study, each.party, unit=unit, spent=None, told_apart=each.told_apart)
            found.append((each.study, cost))
        return found

    def check_approvable(self, study: DeployedStudy, *, data_set: str, home: PartyHome) -> bool:
        """Whether this home has approved a study already. Raises Refused as `approve` does, lifetime caps aside."""
        data_set = folded(data_set)
        known = self.approval(study.digest, data_set)
        if known is None:
            self._check_one_name(study, data_set, home)
            return False
        self._check_own(known, home)
        if known.withdrawn:
            raise Refused(Code.WITHDRAWN, f"study {study.name!r} was withdrawn here; a withdrawal is final")
        return True

    def check_newest(self, home: Path) -> None:
        """Raises Refused("policy_rolled_back") if a ledger of this home refers to an entry that this file lacks."""
        approved = {each.study for each in self.approvals()}
        check_policy(home, approved=approved, log=self.log)

    def forfeit(
        self, home: PartyHome, *, data_set: str, caps: Mapping[str, LifetimeCap], party: str,
        studies: Sequence[DeployedStudy], reason: str,
    ) -> None:  # fmt: skip
        """Charges every cap of this file, and those of `data_set`, in full, and ends this home's studies for ever.

        studies: those with files in the home, which are ended too if they were approved in a copy that is lost.
        """
        data_set = folded(data_set)
        with self._transaction():
            for unit, cap in caps.items():
                self._database.execute(
                    "INSERT OR IGNORE INTO lifetime VALUES (?, ?, ?, ?, NULL, 0)",
                    (data_set, unit, cap.epsilon, cap.delta),
                )
            for each in [*dict.fromkeys(row[0] for row in self._rows("SELECT data_set FROM lifetime", ())), data_set]:
                self.forfeits.add(each, reason=reason)
            known = self.own_approvals(home)
            for approval in known:
                if not approval.withdrawn:
                    self._end(approval.study, approval.data_set)
            for study in studies:
                if study.digest not in {each.study for each in known}:
                    self._database.execute(
                        "INSERT OR IGNORE INTO approval VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)",
                        (study.digest, data_set, home.identity, str(home.path), party, study.name)
                        + (self._clock(), self._clock()),
                    )
                    self.log.append("withdrawn", study=study.digest.hex(), data_set=data_set)

    def erase(self, data_set: str) -> None:
        """Deletes the digests of a data set's people; its caps are charged in full then, as nobody can be compared.

        Raises Refused("not_withdrawn") while a study of it stands.
        """
        name = folded(data_set)
        with self._transaction():
            own = [each for each in self.approvals() if each.data_set == name]
            standing = next((each for each in own if not each.withdrawn), None)
            if standing is not None:
                raise Refused(Code.NOT_WITHDRAWN, f"study {standing.name!r} still runs; withdraw it first")
            if name not in {each.data_set for each in self.lifetime_uses()}:
                raise InvalidInput(f"data set {name!r} has no cap here; allowed: see conclave-party budget show")
            self.forfeits.add(name, reason="the digests of its people were erased")
            self.known.erase(name, [each.study for each in own])

    def withdraw(self, study: DeployedStudy, *, data_set: str, home: PartyHome) -> None:
        """Ends a study here for ever; its reservation stands until `release`.

        Raises Refused("home_moved"), ("unknown_study"), or ("approved_elsewhere") for one that another home approved.
        """
        data_set = folded(data_set)
        with self._transaction():
            PartyHome(home.path).check_not_moved()
            known = self.own_approval(study.digest, data_set, home)
            if not known.withdrawn:
                self._end(study.digest, data_set)

    def end_lost(self, approval: Approval) -> bool:
        """Ends a study whose terms are lost; returns whether its reservation is given back: where nothing ever left.

        What it spent of the cap cannot be computed without its terms, so otherwise all of it stays reserved.
        """
        with self._transaction():
            self._end(approval.study, approval.data_set)
            if self.marks.any_of(approval.study, data_set=approval.data_set):
                return False
            for unit, noise in self._rows(
                "SELECT unit, noise_distance FROM reservation WHERE study = ? AND data_set = ?",
                (approval.study, approval.data_set),
            ):
                self._lower(approval.study, approval.data_set, unit, 0, noise)
        return True

    def _end(self, study: bytes, data_set: str) -> None:
        self._database.execute(
            "UPDATE approval SET withdrawn_ns = ? WHERE study = ? AND data_set = ?", (self._clock(), study, data_set)
        )
        self.log.append("withdrawn", study=study.hex(), data_set=data_set)

    def release(self, study: DeployedStudy, *, data_set: str, home: PartyHome, spent: Mapping[str, int]) -> None:
        """Replaces the reservations of a withdrawn study by what its ledgers spent, downwards only.

        spent: nano-units, settled and reserved, of each of the party's seats, when nothing can be charged any more.
        This is valid because the filter's currency was fixed earlier, and realised spends may be summed in it. Raises
        as `withdraw` does, and Refused("not_withdrawn").
        """
        data_set = folded(data_set)
        with self._transaction():
            known = self.own_approval(study.digest, data_set, home)
            if not known.withdrawn:
                raise Refused(Code.NOT_WITHDRAWN, f"study {study.name!r} still runs; withdraw it first")
            for unit, currency, noise in self._database.execute(
                "SELECT unit, currency, noise_distance FROM reservation JOIN lifetime USING (data_set, unit) "
                "WHERE study = ? AND data_set = ?",
                (study.digest, data_set),
            ).fetchall():
                cost = study_cost(study, known.party, unit=unit, spent=spent, told_apart=known.told_apart)
                nano = cost.at(_order(currency))
                self._lower(study.digest, data_set, unit, nano, noise)

    def _lower(self, study: bytes, data_set: str, unit: str, nano: int, noise: float) -> None:
        self._database.execute(
            "UPDATE reservation SET nano = min(nano, ?) WHERE study = ? AND data_set = ? AND unit = ?",
            (nano, study, data_set, unit),
        )
        about = {"study": study.hex(), "data_set": data_set, "unit": unit}
        self.log.append("released", **about, nano=nano, noise_distance=repr(noise))

    def approval(self, digest: bytes, data_set: str) -> Approval | None:
        """The approval of one study for a data set, if there is one."""
        name = folded(data_set)
        found = [each for each in self.approvals() if each.study == digest and each.data_set == name]
        return found[0] if found else None

    def approvals(self) -> list[Approval]:
        """All approvals, including withdrawn ones, oldest first."""
        rows = self._rows(
            "SELECT study, data_set, home, place, party, name, withdrawn_ns IS NOT NULL, told_apart FROM approval "
            "ORDER BY approved_ns",
            (),
        )
        return [
            Approval(row[0], row[1], row[2], row[3], row[4], row[5], withdrawn=bool(row[6]), told_apart=bool(row[7]))
            for row in rows
        ]

    def own_approvals(self, home: PartyHome) -> list[Approval]:
        """The approvals of one home, including withdrawn ones, oldest first: it has ledgers for these only."""
        return [each for each in self.approvals() if each.home == home.identity]

    def lifetime_uses(self) -> list[LifetimeUse]:
        """How full each lifetime cap is, for every cap that a study was approved under."""
        rows = self._rows(
            "SELECT data_set, unit, epsilon, delta, currency, noise_room FROM lifetime ORDER BY data_set, unit", ()
        )
        return [
            LifetimeUse(
                data_set, unit, LifetimeCap(*cap), _order(currency), *self._reserved(data_set, unit), room,
                forfeited=self.forfeits.reason(data_set) is not None,
            )
            for data_set, unit, *cap, currency, room in rows
        ]  # fmt: skip

    def _check_units(self, data_set: str, caps: Mapping[str, LifetimeCap]) -> None:
        """A removed cap would not be enforced; one that is added counts earlier studies, see `forecast`."""
        rows = self._rows("SELECT unit FROM lifetime WHERE data_set = ? ORDER BY unit", (data_set,))
        units = [str(row[0]) for row in rows]
        if not set(units) <= set(caps):
            raise Refused(
                Code.LIFETIME_CAP_CHANGED,
                f"node.toml sets lifetime caps for {', '.join(sorted(caps))}; allowed: to keep those for "
                f"{', '.join(units)}, under which studies of {data_set!r} were approved; others may be added",
            )

    def own_approval(self, digest: bytes, data_set: str, home: PartyHome) -> Approval:
        """This home's approval. Raises Refused("unknown_study"), or ("approved_elsewhere") for another home's."""
        known = self.approval(digest, data_set)
        if known is None:
            raise Refused(Code.UNKNOWN_STUDY, f"study {digest.hex()[:16]} was not approved here for {data_set!r}")
        self._check_own(known, home)
        return known

    def _check_own(self, known: Approval, home: PartyHome) -> None:
        if known.home != home.identity:
            raise Refused(
                Code.APPROVED_ELSEWHERE,
                f"study {known.name!r} was approved by home {known.home}, then at {known.place}; this is home "
                f"{home.identity}; allowed: that home, which has its ledger (if it is this one and home.id was lost, "
                "write the first identity into home.id)",
            )

    def _check_one_name(self, study: DeployedStudy, data_set: str, home: PartyHome) -> None:
        """A home has one ledger per study: with two data set names, two marks would refer to the same ledger."""
        for each in self.own_approvals(home):
            if each.study == study.digest and each.data_set != data_set:
                raise Refused(
                    Code.APPROVED_ELSEWHERE,
                    f"study {study.name!r} was approved here for data set {each.data_set!r}, not {data_set!r}; "
                    "allowed: that name in node.toml",
                )

    def _forecast(self, data_set: str, unit: str, cap: LifetimeCap, cost: StudyCost) -> Forecast:
        before = self._lifetime_use(data_set, unit, cap)
        if before is None:  # of the first study under this cap, or of the first since it was set
            earlier = [each for _, each in self._earlier_costs(data_set, unit, but=b"")]
            currency, room = first_order(cap, earlier[0] if earlier else cost)
            nano, distance = sum(each.at(currency) for each in earlier), fsum(each.noise_distance for each in earlier)
            before = LifetimeUse(data_set, unit, cap, currency, nano, distance, room)
        nano, distance = before.reserved, before.noise_used
        added = cost.at(before.currency)
        after = replace(before, reserved=nano + added, noise_used=distance + cost.noise_distance)
        fits = after.reserved <= after.allowed and after.noise_used <= after.noise_room
        return Forecast(before, after, fits=fits)

    def _lifetime_use(self, data_set: str, unit: str, cap: LifetimeCap) -> LifetimeUse | None:
        """How full a cap is; None before the first study under it."""
        rows = self._rows(
            "SELECT epsilon, delta, currency, noise_room FROM lifetime WHERE data_set = ? AND unit = ?",
            (data_set, unit),
        )
        if not rows:
            return None
        epsilon, delta, currency, room = rows[0]
        if (epsilon, delta) != (cap.epsilon, cap.delta):
            raise Refused(
                Code.LIFETIME_CAP_CHANGED,
                f"node.toml sets epsilon {cap.epsilon:g}, delta {cap.delta:g} for unit {unit!r} of {data_set!r}; "
                f"allowed: epsilon {epsilon:g}, delta {delta:g}, fixed at its first study, as a promise to patients",
            )
        return LifetimeUse(data_set, unit, cap, _order(currency), *self._reserved(data_set, unit), room)

    def _reserved(self, data_set: str, unit: str) -> tuple[int, float]:
        query = "SELECT nano, noise_distance FROM reservation WHERE data_set = ? AND unit = ? ORDER BY rowid"
        rows = self._rows(query, (data_set, unit))
        return sum(int(row[0]) for row in rows), fsum(float(row[1]) for row in rows)


def _column(currency: float) -> float | None:
    return None if np.isnan(currency) else currency


def _order(column: float | None) -> float:
    return float("nan") if column is None else column
