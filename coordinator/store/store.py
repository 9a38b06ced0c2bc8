"""The coordinator's store: members, studies, jobs and their results, in one SQLite file with an audit log.

Budgets are not here: each study has its own ledger. A labelling's result is written in the transaction that
ends its job, so a finished job always has its labels.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal  # Any: columns of a database

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from coordinator.home import ASKED_ABOUT, CoordinatorHome
from coordinator.store.members import SCHEMA as MEMBERS
from coordinator.store.members import Members
from protocols.errors import DataUnavailable, InvalidInput
from protocols.labelling.coordinator import Labelling
from protocols.ledger.audit_log import AuditLog, Entry
from protocols.ledger.database import Database
from protocols.reading import parse_json
from protocols.refusals.code import Code
from protocols.release.sums import QUERIES_FILE
from protocols.study.deployed import DeployedStudy
from protocols.study.file import read_deployed
from protocols.study.study import party_of
from protocols.votes import ABSTAIN
from runtime.steady_clock import SteadyClock

JobState = Literal["waiting", "running", "finished", "stopped", "failed"]
ENDED: tuple[JobState, ...] = ("finished", "stopped", "failed")


@dataclass(frozen=True)
class Job:
    """A requested labelling. student: for an interactive mechanism; message: its progress, in words; without: seats
    that it is to do without, as the operator decided in this job or an earlier one."""

    number: int
    study: str
    student: str | None
    state: JobState
    batches: int
    asked: int
    answered: int
    message: str
    without: tuple[str, ...] = ()

    @property
    def ended(self) -> bool:
        """Whether this job has ended."""
        return self.state in ENDED


@dataclass(frozen=True)
class Fault:
    """A seat that was left out of a batch: why, how often, and when last, in seconds since 1970."""

    number: int
    seat: str
    code: str
    times: int
    last_s: int


@dataclass(frozen=True)
class SessionRecord:
    """A connected party, as serve last wrote it. Times in seconds since 1970; seats: those that it may be asked for,
    each with the study's digest in hexadecimal digits."""

    party: str
    since_s: float
    last_seen_s: float
    address: str
    software: str
    wire_version: int
    seats: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class SilenceRecord:
    """A party that did not answer in time, as serve last wrote it. since_s: seconds since 1970; times: deadlines that
    it missed."""

    party: str
    since_s: float
    times: int


@dataclass(frozen=True)
class Serving:
    """The serve of this home, as last written. process: its number; seen_s: seconds since 1970; metrics_port: 0 for
    none."""

    process: int
    seen_s: float
    port: int
    enrol_port: int
    metrics_port: int


@dataclass(frozen=True, eq=False)
class LabelledStudy:
    """A study whose labelling ended.

    ledger: path of the coordinator's ledger of it, which holds charges, audit log and signed evidence; pool: path of
    the public queries (.npy); labels: a class id, ABSTAIN or NOT_ASKED per query; reinforced: see Labelling; batches:
    size and answered queries of each; stop: the StopReason; left_out: batch to the seats whose votes were left out at
    least once, each with the last reason (a batch may be asked again, so that a seat of it may have voted);
    differences: seat to the nano-units by which its own ledger may be higher; cells: the noisy sums in lattice units,
    where records vote and they were released.
    """

    study: DeployedStudy
    ledger: Path
    pool: Path
    labels: Int64[ndarray, " queries"] = field(repr=False)
    reinforced: Int64[ndarray, " queries"] = field(repr=False)
    batches: tuple[tuple[int, int], ...]
    stop: str
    left_out: Mapping[int, Mapping[str, str]]
    differences: Mapping[str, int]
    cells: Int64[ndarray, "rows classes"] | None = field(default=None, repr=False)

    @property
    def queries(self) -> Path:
        """The file of the queries in which records vote."""
        return self.pool.with_name(QUERIES_FILE)

    @property
    def asked_about(self) -> Path:
        """The file of what a second batch is about."""
        return self.pool.with_name(ASKED_ABOUT)


def check_labelled_here(study: DeployedStudy) -> None:
    """Raises InvalidInput for a study with a querying hospital: its coordinator neither labels nor releases."""
    if querier := study.confidentiality.asked_by:
        raise InvalidInput(
            f"{querier!r} asks in study {study.name!r}, with conclave-party ask, and has its labels; "
            "allowed: a study that is labelled here"
        )


# Table `difference` holds what the seat itself last stated.
_DIFFERENCES = """
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
    """The differences of one store's studies, in nano-units; every change is part of a transaction of the store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, study: str) -> dict[str, int]:
        """Each seat's difference, if it has one; negative if the seat's ledger is known to be lower."""
        # Added in Python, because SQLite's sums overflow at 2**63.
        sums: dict[str, int] = {}
        for seat, nano in self._database.rows(_ALL, (study, study)):
            sums[seat] = sums.get(seat, 0) + nano
        return {seat: nano for seat, nano in sorted(sums.items()) if nano}

    def suspect(self, study: str, number: int, nano: Mapping[str, int]) -> None:
        """Records that, for this batch, each of these seats may have charged itself that many nano-units more than it
        is charged here."""
        for seat, amount in nano.items():
            self._database.execute(
                "INSERT OR REPLACE INTO suspected VALUES (?, ?, ?, ?)", (study, number, seat, amount)
            )

    def told(self, study: str, nano: Mapping[str, int], *, open_batch: int | None) -> None:
        """Records how much higher each of these seats says its ledger is, over all batches except the open one."""
        known = {seat for seat, _ in self._database.rows(_ALL, (study, study))}
        for seat, amount in nano.items():
            if amount or seat in known:
                self._database.execute("INSERT OR REPLACE INTO difference VALUES (?, ?, ?)", (study, seat, amount))
                self._database.execute(
                    "DELETE FROM suspected WHERE study = ? AND seat = ? AND number IS NOT ?", (study, seat, open_batch)
                )

    def drop(self, study: str, number: int) -> None:
        """Records that a batch stays charged here as reserved, so no seat can be higher because of it."""
        self._database.execute("DELETE FROM suspected WHERE study = ? AND number = ?", (study, number))


_WITHDRAWALS: Final = """
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


_SCHEMA = (
    MEMBERS
    + """
CREATE TABLE IF NOT EXISTS study (
    name TEXT PRIMARY KEY, digest BLOB NOT NULL UNIQUE CHECK (length(digest) = 32), created_s INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS job (
    number INTEGER PRIMARY KEY, study TEXT NOT NULL REFERENCES study, student TEXT,
    state TEXT NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'running', 'finished', 'stopped', 'failed')),
    batches INTEGER NOT NULL DEFAULT 0, asked INTEGER NOT NULL DEFAULT 0, answered INTEGER NOT NULL DEFAULT 0,
    message TEXT NOT NULL DEFAULT '', without_seats TEXT NOT NULL DEFAULT '',
    CHECK (0 <= answered AND answered <= asked AND batches <= asked)
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS one_open_job ON job (study) WHERE state IN ('waiting', 'running');
CREATE TRIGGER IF NOT EXISTS job_forward BEFORE UPDATE ON job
    WHEN old.state NOT IN ('waiting', 'running') OR (old.state = 'running' AND new.state = 'waiting')
        OR new.asked < old.asked OR new.study <> old.study
    BEGIN SELECT RAISE(ABORT, 'a job only moves forward'); END;
CREATE TABLE IF NOT EXISTS labelled (
    study TEXT PRIMARY KEY REFERENCES study, labels BLOB NOT NULL, reinforced BLOB NOT NULL, batches TEXT NOT NULL,
    stop TEXT NOT NULL, cells BLOB
) STRICT;
CREATE TABLE IF NOT EXISTS fault (
    study TEXT NOT NULL REFERENCES study, number INTEGER NOT NULL, seat TEXT NOT NULL, code TEXT NOT NULL,
    times INTEGER NOT NULL DEFAULT 1, last_s INTEGER NOT NULL, PRIMARY KEY (study, number, seat, code)
) STRICT;
CREATE TABLE IF NOT EXISTS session (
    party TEXT PRIMARY KEY, since_s REAL NOT NULL, last_seen_s REAL NOT NULL, address TEXT NOT NULL,
    software TEXT NOT NULL, wire_version INTEGER NOT NULL, seats TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS silence (party TEXT PRIMARY KEY, since_s REAL NOT NULL, times INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS serving (
    one INTEGER PRIMARY KEY CHECK (one = 1), pid INTEGER NOT NULL, seen_s REAL NOT NULL,
    port INTEGER NOT NULL, enrol_port INTEGER NOT NULL, metrics_port INTEGER NOT NULL
) STRICT;
"""
    + _DIFFERENCES
    + _WITHDRAWALS
)


class Store:
    """The store of one home. Use as a context manager; methods may be called from several threads and processes."""

    def __init__(
        self,
        home: CoordinatorHome,
        *,
        clock: Callable[[], int] = time.time_ns,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """Opens or creates it. clock: nanoseconds since 1970; steady: seconds of a monotonic clock.

        Raises StorageFailed.
        """
        self.home = home
        self._clock = clock
        self.steady_clock = SteadyClock(wall=lambda: clock() / 1e9, monotonic=steady)
        self._database = Database(home.store_file, _SCHEMA)
        self.trail = AuditLog(self._database, clock=clock)
        self.members = Members(self._database, self.trail)
        self.ledger_differences = LedgerDifferences(self._database)
        self.withdrawals = Withdrawals(self._database, self.trail, now_s=lambda: self.now_s)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    @property
    def now_s(self) -> int:
        """Seconds since 1970."""
        return self._clock() // 10**9

    def together(self) -> AbstractContextManager[None]:
        """A single transaction around several steps."""
        return self._database.transaction()

    def entries(self) -> list[Entry]:
        """The audit log, checked. Raises DataCorrupt at the first entry that does not fit."""
        return list(self.trail.entries())

    def add_study(self, study: DeployedStudy) -> None:
        """Records a study whose files are in place. Raises InvalidInput if the name or its terms are taken."""
        with self._database.transaction():
            rows = self._database.rows(
                "SELECT name FROM study WHERE name = ? OR digest = ?", (study.name, study.digest)
            )
            if rows:
                raise InvalidInput(f"study {rows[0][0]!r} exists, or has the same terms; allowed: a new name and terms")
            self._database.execute("INSERT INTO study VALUES (?, ?, ?)", (study.name, study.digest, self.now_s))
            self.trail.append("study_created", study=study.name, digest=study.digest.hex())

    def studies(self) -> dict[str, bytes]:
        """Name to digest of all studies."""
        return dict(self._database.rows("SELECT name, digest FROM study ORDER BY created_s, name"))

    def study(self, name: str) -> DeployedStudy:
        """A study from its file, whose digest must be the recorded one. Raises InvalidInput, DataUnavailable."""
        digest = self.studies().get(name)
        if digest is None:
            known = ", ".join(self.studies()) or "none yet; see study create"
            raise DataUnavailable(f"there is no study {name[:80]!r}; allowed: {known}")
        path = self.home.study(name) / "study.toml"
        study = read_deployed(path)
        if study.digest != digest:
            raise InvalidInput(f"{path} was changed since the study was created; allowed: the file as it was")
        return study

    def ask_job(self, study: str, *, student: str | None, without: Sequence[str] = ()) -> Job:
        """The open job of a study, or a new one. without: see Job; added to those of the last one."""
        with self._database.transaction():
            made = self.job(study)
            kept = made.without if made else ()
            if made is None or made.ended:
                done = (made.batches, made.asked, made.answered) if made else (0, 0, 0)
                self._database.execute(
                    "INSERT INTO job (study, student, batches, asked, answered, message, without_seats) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (study, student, *done, "waiting for serve", "\n".join(kept)),
                )
                (made,) = self._newest_job(study)
                self.trail.append("job_asked", study=study, job=made.number)
            if not without:
                return made
            made = replace(made, without=tuple(dict.fromkeys((*kept, *without))))
            query = "UPDATE job SET without_seats = ? WHERE number = ?"
            self._database.execute(query, ("\n".join(made.without), made.number))
            self.trail.append("job_without", study=study, job=made.number, seats=",".join(without))
            return made

    def job(self, study: str) -> Job | None:
        """The newest job of a study, or None."""
        return next(iter(self._newest_job(study)), None)

    def _newest_job(self, study: str) -> list[Job]:
        rows = self._database.rows(f"{_JOBS} WHERE study = ? ORDER BY number DESC LIMIT 1", (study,))
        return [_job(*row) for row in rows]

    def open_jobs(self) -> list[Job]:
        """The jobs that are waiting or under way."""
        return [_job(*row) for row in self._database.rows(f"{_JOBS} WHERE state IN ('waiting', 'running')")]

    def start_job(self, number: int) -> None:
        """Marks the job as running (again, after serve was stopped)."""
        with self._database.transaction():
            self._database.execute("UPDATE job SET state = 'running', message = '' WHERE number = ?", (number,))
            self.trail.append("job_started", job=number)

    def advance_job(self, number: int, *, batches: int, asked: int, answered: int, message: str) -> None:
        """Records how much is released, and what is to be said of it."""
        with self._database.transaction():
            self._database.execute(
                "UPDATE job SET batches = ?, asked = ?, answered = ?, message = ? WHERE number = ?",
                (batches, asked, answered, message, number),
            )

    def say_job(self, number: int, message: str) -> None:
        """Records in words what the job waits for."""
        with self._database.transaction():
            self._database.execute("UPDATE job SET message = ? WHERE number = ?", (message, number))

    def end_job(self, number: int, state: JobState, message: str, labelling: Labelling | None) -> None:
        """Ends a job and stores what was released, in one transaction.

        If the labelling does not say which labels a student reinforced, those stored for the same batches are kept.
        """
        with self._database.transaction():
            ((study,),) = self._database.rows("SELECT study FROM job WHERE number = ?", (number,))
            if labelling is not None:
                rows = self._database.rows("SELECT reinforced, batches FROM labelled WHERE study = ?", (study,))
                reinforced = labelling.reinforced.astype("<i8").tobytes()
                if not reinforced:
                    same = bool(rows) and rows[0][1] == json.dumps(labelling.batches)
                    reinforced = rows[0][0] if same else np.full(len(labelling.labels), ABSTAIN, "<i8").tobytes()
                self._database.execute(
                    "INSERT OR REPLACE INTO labelled VALUES (?, ?, ?, ?, ?, ?)",
                    (
                        study,
                        labelling.labels.astype("<i8").tobytes(),
                        reinforced,
                        json.dumps(labelling.batches),
                        labelling.stop.reason,
                        None if labelling.cells is None else labelling.cells.astype("<i8").tobytes(),
                    ),
                )
            self._database.execute("UPDATE job SET state = ?, message = ? WHERE number = ?", (state, message, number))
            self.trail.append("job_ended", study=study, job=number, state=state, message=message)

    def started_s(self, job: int) -> int:
        """When a job last started, in seconds since 1970; 0 if never."""
        begun = (each for each in self.trail.entries() if each.event == "job_started")
        return max((each.time_ns // 10**9 for each in begun if each.fields["job"] == job), default=0)

    def left_out_since_asked(self, study: str, codes: Collection[str]) -> set[tuple[int, str]]:
        """Batches, and seats that were left out of them for one of these reasons since the study's last job was asked
        for: by the trail, as faults have only whole seconds."""
        found = set[tuple[int, str]]()
        for entry in self.trail.entries():
            if entry.event == "job_asked" and entry.fields["study"] == study:
                found.clear()
            elif entry.event == "left_out" and entry.fields["study"] == study and entry.fields["code"] in codes:
                found |= {(int(entry.fields["batch"]), seat) for seat in str(entry.fields["seats"]).split("\n")}
        return found

    def add_faults(self, study: str, number: int, faults: Mapping[str, str], suspected: Mapping[str, int]) -> None:
        """Records which seats were left out of a batch, why, and what they may have charged themselves for it."""
        if not faults and not suspected:
            return
        with self._database.transaction():
            for seat, code in faults.items():
                self._database.execute(
                    "INSERT INTO fault (study, number, seat, code, last_s) VALUES (?, ?, ?, ?, ?) "
                    "ON CONFLICT DO UPDATE SET times = times + 1, last_s = excluded.last_s",
                    (study, number, seat, code, self.now_s),
                )
            self.ledger_differences.suspect(study, number, suspected)
            for code in sorted(set(faults.values())):
                seats = sorted(seat for seat, each in faults.items() if each == code)
                self.trail.append("left_out", study=study, batch=number, code=code, seats="\n".join(seats))

    def faults(self, study: str) -> list[Fault]:
        """All faults of a study, by batch."""
        query = "SELECT number, seat, code, times, last_s FROM fault WHERE study = ? ORDER BY number, seat, last_s"
        return [Fault(*row) for row in self._database.rows(query, (study,))]

    def left_out(self, study: str) -> dict[int, dict[str, str]]:
        """Batch to the seats that were left out of an attempt at it, each with the last reason."""
        last: dict[int, dict[str, str]] = {}
        withdrawn = self.withdrawals.of(study)
        for fault in self.faults(study):  # the latest of a seat comes last
            ended_s = withdrawn.get(party_of(fault.seat))
            gone = ended_s is not None and fault.last_s >= ended_s
            last.setdefault(fault.number, {})[fault.seat] = Code.WITHDRAWN if gone else fault.code
        return last

    def differences(self, study: str) -> dict[str, int]:
        """Seats whose own ledger is, or may be, higher than the coordinator's, and by how many nano-units."""
        return self.ledger_differences.of(study)

    def labelled(self, name: str) -> LabelledStudy:
        """The result of a study's labelling. Raises DataUnavailable if it has not ended."""
        study = self.study(name)
        query = "SELECT labels, reinforced, batches, stop, cells FROM labelled WHERE study = ?"
        rows = self._database.rows(query, (name,))
        if not rows:
            raise DataUnavailable(f"study {name!r} is not labelled; run conclave-coordinator label {name}")
        labels, reinforced, batches, stop, cells = rows[0]
        folder = self.home.study(name)
        return LabelledStudy(
            study=study,
            ledger=folder / "ledger.sqlite",
            pool=folder / "pool.npy",
            labels=np.frombuffer(labels, dtype="<i8").astype(np.int64),
            reinforced=np.frombuffer(reinforced, dtype="<i8").astype(np.int64),
            batches=tuple(
                (size, answered) for size, answered in parse_json(batches, where="store.sqlite: a labelling")
            ),
            stop=stop,
            cells=None if cells is None else np.frombuffer(cells, "<i8").astype(np.int64).reshape(-1, study.classes),
            left_out=self.left_out(name),
            differences=self.differences(name),
        )

    def write_sessions(
        self, sessions: list[SessionRecord], serving: Serving, silent: Iterable[SilenceRecord] = ()
    ) -> None:
        """Records who is connected now, whom rounds do not wait for, and that serve is alive."""
        with self._database.transaction():
            self._database.execute("DELETE FROM silence")
            for one in silent:
                self._database.execute("INSERT INTO silence VALUES (?, ?, ?)", (one.party, one.since_s, one.times))
            self._database.execute("DELETE FROM session")
            for each in sessions:
                self._database.execute(
                    "INSERT INTO session VALUES (?, ?, ?, ?, ?, ?, ?)", (*astuple(each)[:-1], json.dumps(each.seats))
                )
            self._database.execute(
                "INSERT OR REPLACE INTO serving VALUES (1, ?, ?, ?, ?, ?)",
                (serving.process, serving.seen_s, serving.port, serving.enrol_port, serving.metrics_port),
            )

    def clear_sessions(self) -> None:
        """Records that nobody is connected, as serve starts or has ended."""
        with self._database.transaction():
            self._database.execute("DELETE FROM session")
            self._database.execute("DELETE FROM silence")
            self._database.execute("DELETE FROM serving")

    def sessions(self) -> list[SessionRecord]:
        """Who was connected when serve last wrote."""
        query = "SELECT party, since_s, last_seen_s, address, software, wire_version, seats FROM session ORDER BY party"
        return [
            replace(SessionRecord(*row[:-1]), seats=tuple(map(tuple, parse_json(row[-1], where="store.sqlite"))))
            for row in self._database.rows(query)
        ]

    def silent(self) -> list[SilenceRecord]:
        """The parties for which rounds did not wait when serve last wrote."""
        return [SilenceRecord(*row) for row in self._database.rows("SELECT * FROM silence ORDER BY party")]

    def serving(self) -> Serving | None:
        """The serve that last wrote and has not ended cleanly, or None."""
        rows = self._database.rows("SELECT pid, seen_s, port, enrol_port, metrics_port FROM serving")
        return Serving(*rows[0]) if rows else None


_JOBS = "SELECT number, study, student, state, batches, asked, answered, message, without_seats FROM job"


def _job(*row: Any) -> Job:  # the columns of _JOBS
    return replace(Job(*row[:-1]), without=tuple(row[-1].splitlines()))


def ledger_path(home: CoordinatorHome, study: str) -> Path:
    """The path of the coordinator's ledger of a study."""
    return home.study(study) / "ledger.sqlite"
