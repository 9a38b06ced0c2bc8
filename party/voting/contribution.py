"""A hospital's votes in a study in which records vote: counted when it approves, and kept until it is asked.

Everything that can be wrong is said before the study is approved, and so before anything is charged. What is kept is
the sum of the contributions of one seat, which is private: it lies in the study's folder, which only its owner reads,
until it is charged (the ledger repeats the reply from then on) or the study is withdrawn.
"""

from __future__ import annotations

import io
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from jaxtyping import Bool, Int64
from numpy import ndarray

from party.budget.known_units import KnownUnits
from party.data.records import Records
from party.home import PartyHome
from party.lifetime import seats_of
from party.voting.judges import Judges, KeptJudges, KeptResiduals, SaidAgain, judges_of, runs_for
from protocols.array_files import read_arrays
from protocols.errors import DataCorrupt, DataUnavailable, InvalidInput, Refused
from protocols.ledger.ledger import Ledger
from protocols.refusals.code import Code
from protocols.study.deployed import DeployedStudy
from protocols.study.purposes import ForCounts, ForLabels, Purpose
from protocols.study.queries import QueryBatch
from protocols.study.queries_file import check_shape
from protocols.study.votes import unit_sums
from protocols.sums.blocks import Blocks
from protocols.sums.contributions import FEWEST_UNITS, contribution_sum, most_hospitals, said
from runtime.files import write_atomically


def rows_of_seats(records: Records, study: DeployedStudy, party: str) -> list[tuple[str, Int64[ndarray, " rows"]]]:
    """Each seat of a party with the positions of its records.

    Raises InvalidInput for unknown groups, groups without seats (or the reverse), and a unit in two groups.
    """
    seats = seats_of(study, party)
    grouped = seats != (party,)
    if grouped != (records.groups is not None):
        raise InvalidInput(
            f"the study has {'privacy groups' if grouped else 'one seat'} for {party!r} and data.group is "
            f"{'not set' if grouped else 'set'}; allowed: data.group if and only if there are privacy groups"
        )
    known = [seat.partition("/")[2] for seat in seats]
    for row, name in enumerate(records.groups or ()):
        if name not in known:
            raise InvalidInput(f"data.group, row {row + 1}: no privacy group of the study; allowed: {', '.join(known)}")
    if records.groups is None:
        return [(party, np.arange(len(records.labels)))]
    names = np.array(records.groups)
    found = [(seat, np.flatnonzero(names == group)) for seat, group in zip(seats, known, strict=True)]
    holders = [set(records.units[rows].tolist()) for _, rows in found]
    if sum(map(len, holders)) != len(set().union(*holders)):
        raise InvalidInput("a patient is in two privacy groups; allowed: one, as each has its own budget")
    return found


# Whether a unit says the mean of what its records say, so that it counts once in each column.
_MEAN: Final[dict[type[Purpose], bool]] = {ForLabels: False, ForCounts: True}
_Sums = Int64[ndarray, "queries classes"]
People = Int64[ndarray, " people"]
_FILE_BYTES: Final = 2**32
PAIR_BYTES: Final = 16
_COUNT_AGAIN: Final = "approve the study again, with --queries: its votes are counted anew"


@dataclass(frozen=True, eq=False)
class SeatVotes:
    """One seat's votes. records, units: how many vote or judge; sums: in lattice units, private; people: the digests of
    the patients who speak in it, where a party has several seats and patients have names; again: what is kept for a
    second batch, None without one."""

    seat: str
    records: int = field(repr=False)
    units: int = field(repr=False)
    sums: _Sums = field(repr=False)
    people: People = field(repr=False)
    again: Judges | SaidAgain | None = field(default=None, repr=False)


def units_in(records: Records, study: DeployedStudy) -> Int64[ndarray, " records"]:
    """The protected unit of each record: itself (or the one that it equals, if the mapping says that equal rows are
    one), or its patient if the study says so.

    Raises InvalidInput where the study protects patients and the hospital's settings do not name them.
    """
    if study.unit == "patient" and records.patients is None:
        raise InvalidInput(
            f"study {study.name!r} protects patients, and data.patient is ''; allowed: what identifies each "
            "record's patient, even if no patient has two records"
        )
    return records.units if study.unit == "patient" else records.rows


def count_votes_of(
    records: Records, study: DeployedStudy, queries: Blocks, party: str, *, known: KnownUnits, but: Collection[str] = ()
) -> list[SeatVotes]:
    """Counts the votes of this hospital's records, for each of the party's seats `but` those that were asked.

    A patient who voted in another seat of the study (known) does not vote again, and one declared to be known at more
    hospitals than the study allows for does not vote, as no charge covers it. Raises InvalidInput: fewer than
    two units, more than the study's population, a patient in two seats. Judges do not vote; nothing that is refused or
    said depends on how many they are.
    """
    check_shape(queries, study.terms.input_shape)
    votes, units = unit_sums(study), units_in(records, study)
    if votes.declared and records.known_at is None:
        raise InvalidInput(
            f"study {study.name!r} has declared overlaps, and data.hospitals names no column; allowed: a column of a "
            "table that says at how many hospitals of the study each patient is known"
        )
    spoken = said(queries, records.inputs, records.labels, classes=study.classes)
    known_at = records.known_at if votes.declared else None
    covered = _covered(units, known_at, most=votes.hospitals_per_patient)
    counted, seats = [], rows_of_seats(records, study, party)
    judging, digests = judges_of(records, study, units, known)
    if records.patients is not None and len(seats) > 1:
        known.check_same_names(study.digest, known.of_names(records.patients))
    for seat, held in seats:
        if seat in but:
            continue
        rows, people = held[records.usable[held] & covered[held]], np.zeros(0, np.int64)
        if records.patients is not None and len(seats) > 1:
            people = known.of_names([records.patients[row] for row in rows.tolist()])
            first = ~known.spoken_elsewhere(study.digest, seat, people)
            rows, people = rows[first], np.unique(people[first])
        found = len(np.unique(units[rows]))
        if found < FEWEST_UNITS:
            raise InvalidInput(
                f"seat {seat}: {found} protected unit ({study.unit}); allowed: at least {FEWEST_UNITS}, because a "
                "sum of one unit's votes shows them"
            )
        if found > votes.population:
            raise InvalidInput(
                f"seat {seat}: {found} protected units ({study.unit}s); allowed: at most the study's population, "
                f"{votes.population}, of all hospitals together"
            )
        voting, kept = rows[~judging[rows]], rows[judging[rows]]
        total = contribution_sum(
            queries,
            spoken[voting],
            units[voting] if found < len(rows) else None,
            weight_units=round(study.roster[study.seats[seat]].weight * study.units),
            classes=study.classes,
            known_at=None if known_at is None else known_at[voting],
            mean=_MEAN[type(votes.use)],
            fewest=0 if votes.evaluation is not None else FEWEST_UNITS,
        )
        at = np.ones(len(units), np.int64) if known_at is None else known_at
        again: Judges | SaidAgain | None = None
        if votes.evaluation is not None:
            runs = runs_for(units[rows], votes.evaluation.share)
            again = Judges(records.inputs[kept], records.labels[kept], units[kept], at[kept], digests[kept], runs)
        elif votes.residuals:
            again = SaidAgain(spoken[voting], units[voting], at[voting])
        counted.append(SeatVotes(seat, len(rows), found, total, people, again))
    return counted


def _covered(
    units: Int64[ndarray, " records"], known_at: Int64[ndarray, " records"] | None, *, most: int
) -> Bool[ndarray, " records"]:
    """Whether each record's unit is known at `most` hospitals at most, by the most that any of its records says."""
    if known_at is None:
        return np.ones(len(units), dtype=bool)
    _, member = np.unique(units, return_inverse=True)
    return np.asarray(most_hospitals(known_at, member)[member] <= most)


def list_judges(known: KnownUnits, study: DeployedStudy, counted: list[SeatVotes]) -> dict[str, bytes]:
    """Writes down who judges in each seat, with the name of the pair of votes and judges that is kept; returns
    these."""
    pairs = {each.seat: secrets.token_bytes(PAIR_BYTES) for each in counted}
    for each in counted:
        if each.again is not None:
            known.list_judges(study.digest, each.seat, pairs[each.seat], each.again.digests)
    return pairs


def keep_votes(home: PartyHome, study: DeployedStudy, counted: list[SeatVotes], pairs: Mapping[str, bytes]) -> None:
    """Writes each seat's sums, and what is kept for a second batch, into the study's folder, readable by its owner
    only. Raises StorageFailed."""
    for each in counted:
        content, pair = io.BytesIO(), pairs[each.seat]
        digest, named = (np.frombuffer(one, dtype=np.uint8) for one in (study.digest, pair))
        np.savez(content, study=digest, pair=named, sums=each.sums.astype("<i8"), people=each.people.astype("<i8"))
        if each.again is not None:
            write_atomically(home.judges(study.digest, each.seat), each.again.to_bytes(study, pair))
        write_atomically(home.contribution(study.digest, each.seat), content.getvalue())


def read_contribution(path: Path, study: DeployedStudy, *, pair: bytes | None = None) -> tuple[_Sums, People]:
    """What keep_votes wrote; pair: with which judges, None for any. Raises DataUnavailable, DataCorrupt."""
    try:
        arrays = read_arrays(path, ["study", "pair", "sums", "people"], most=_FILE_BYTES)
    except DataUnavailable:
        raise DataUnavailable(f"{path} does not exist; {_COUNT_AGAIN}") from None
    sums, shape = arrays["sums"], (unit_sums(study).queries, study.classes)
    people = arrays["people"]
    whole = sums.dtype.str == people.dtype.str == "<i8" and people.ndim == 1
    if arrays["study"].tobytes() != study.digest or not whole or sums.shape != shape:
        raise DataCorrupt(f"{path} does not hold this study's sums, {shape}; {_COUNT_AGAIN}")
    if pair not in (None, arrays["pair"].tobytes()):
        raise DataCorrupt(f"{path} does not hold the votes that were counted beside the listed judges; {_COUNT_AGAIN}")
    return sums.astype(np.int64), people.astype(np.int64)


def votes_given(home: PartyHome, study: DeployedStudy, seat: str) -> bool:
    """Whether a seat's votes were charged: its ledger repeats them, and they are never counted or given again."""
    path = home.ledger(study.digest, seat)
    if not path.exists():
        return False
    with Ledger(path) as ledger:
        return ledger.ever_reserved(seat) > 0


class KeptVotes:
    """A Voter: gives the sums that were kept, whatever the batch shows, as the study fixes the queries; in a second
    batch it asks the judges about its model, or gives residuals of its scores.

    judges: whom the policy lists, with the name of the pair; given that of votes that leave, it keeps the list. speak:
    records whose votes they are, or raises Refused("spoke_elsewhere"). Raises Refused("no_record_votes"), and nothing
    is charged then; on_event is told why, the coordinator is not.
    """

    def __init__(
        self,
        path: Path,
        *,
        study: DeployedStudy,
        kept_judges: Path,
        seat: str,
        judges: Callable[..., tuple[bytes, frozenset[int]] | None],
        speak: Callable[[People], None],
        on_event: Callable[[str, dict[str, str | int]], None],
    ):
        self._path, self._study, self._speak, self._on_event = path, study, speak, on_event
        self._kept_judges, self._seat, self._judges = kept_judges, seat, judges
        self._closed = False

    def __call__(self, batch: QueryBatch) -> _Sums:
        """The sums."""
        try:
            if not self._closed:
                listed = self._judges()
                if self._study.votes.again(batch.ids):
                    kind = KeptResiduals if self._study.votes.residuals else KeptJudges
                    kept = kind(self._kept_judges, study=self._study, seat=self._seat, listed=listed)
                    return kept.answer(batch.model)
                if self._study.votes.rows_again and listed is None:
                    raise DataCorrupt(f"the policy lists nothing that is kept with the votes; {_COUNT_AGAIN}")
                sums, people = read_contribution(self._path, self._study, pair=None if listed is None else listed[0])
                if listed is not None and self._judges(listed[0]) != listed:
                    raise DataCorrupt(f"the study was approved anew meanwhile; {_COUNT_AGAIN}")
                self._speak(people)
                return sums
        except (DataUnavailable, DataCorrupt, Refused) as error:
            self._on_event("record_votes_failed", {"code": Code.NO_RECORD_VOTES, "reason": str(error)[:500]})
        raise Refused(Code.NO_RECORD_VOTES, "the votes of the records are not counted")

    def forget(self, *, judged: bool) -> None:
        """Deletes the sums, which the ledger holds by now, and the judges if they have judged; on_event is told if that
        fails."""
        try:
            self._path.unlink(missing_ok=True)
            if judged:
                self._kept_judges.unlink(missing_ok=True)
        except OSError as error:
            self._on_event("record_votes_left", {"reason": str(error)[:500]})

    def close(self) -> None:
        """Refuses all further votes."""
        self._closed = True
