"""What votes in a study: each party's teachers, query by query, or each protected unit once, in one noisy sum.

Each of the two types answers for itself: its terms and their checks, what one unit moves and so what it costs, what a
party sends, and what is released. `Study` asks it; the tables of the rooms above are keyed by the type.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from math import isqrt
from typing import Any, ClassVar, Literal  # Any: the values of a study file

import numpy as np
from jaxtyping import Bool, Float64, Int64, Integer
from numpy import ndarray

from protocols.budgets.participation import check_pattern, check_rate
from protocols.errors import InvalidInput
from protocols.mechanisms import GNMax, Lattice, Mechanism, check_view
from protocols.noise import Noise
from protocols.ranges import check
from protocols.study.any_study import AnyStudy
from protocols.study.chosen import GIVEN, check_questions
from protocols.study.findings import Labelled
from protocols.study.overlap import DECLARED, UNKNOWN, Overlap, check_declared, check_overlap
from protocols.study.purposes import PURPOSES, ForLabels, Purpose
from protocols.study.several_findings import ONE_CLASS, Asked
from protocols.study.units import COUNTED, UNITS, votes_per_unit
from protocols.sums.bounded import Proven, proof_of
from protocols.sums.contributions import Claim, least_weight
from protocols.sums.judging import Evaluation, cells_of, judge_weight
from protocols.votes import ABSTAIN, check_votes

# When a study ends: what happens to parties whose budget is used up.
StopRule = Literal["first-exhausted", "drop-exhausted"]
STOP_RULES: tuple[StopRule, ...] = ("first-exhausted", "drop-exhausted")
# What one seat sends about a batch, of many seats, histograms or noisy sums, and both in lattice units.
_Sent = Int64[ndarray, "rows columns"]
_Counts = Float64[ndarray, "summed classes"]
# Sums of seats: a row for each query, of each seat where these are apart.
_Cells = Int64[ndarray, "summed classes"]
Seats = Int64[ndarray, " parties"]
Ids = Int64[ndarray, " queries"]
_Weights = Float64[ndarray, " parties"]


@dataclass(frozen=True, kw_only=True)
class TeacherVotes:
    """Each teacher of each party names a class for each query, batch after batch; the mechanism makes labels of them.

    mechanism: with its parameters; its noise is integer if the level requires that; view: what an observer sees;
    teachers: votes per party; pooled_teachers: None in a federation; in a simulation of upsampling, where all data are
    pooled, the number of teachers: seats are then groups of records, and a seat's weight is the number of teachers that
    learn one of its records; query_limit: queries that may be asked in total; batch_limit: queries in one message;
    answer_rate: the public estimate with which each party's order is chosen; stop: see schedule.py; questions: see
    chosen.py; participation_name: see participation.py; asks: what a query asks of each teacher. Raises InvalidInput.
    """

    mechanism: Mechanism
    view: str
    teachers: int
    pooled_teachers: int | None = None
    query_limit: int
    batch_limit: int
    answer_rate: float
    stop: StopRule
    questions: str = GIVEN
    participation_name: str
    asks: Asked = ONE_CLASS
    by: ClassVar[str] = "teacher"
    # How sentences call it (protocols/claims/protection.py), and whether hospitals' sums are released one by one.
    words: ClassVar[str] = "teacher"
    # Whether a public pool is labelled.
    pool: ClassVar[bool] = True
    # At how many hospitals a unit may be known, as each is charged, and into how many parts it is divided among them.
    hospitals_per_patient: ClassVar[int] = 1
    parts: ClassVar[int] = 1
    # Whether all queries are asked, and paid for, in one batch.
    once: ClassVar[bool] = False
    # What the two servers of a level open to each other: labels, or the noisy sum.
    opened: ClassVar[str] = "label"
    # How many queries are paid for, if later ones are paid for with them; and what the terms fix about those.
    paid: ClassVar[None] = None
    rows_again: ClassVar[int] = 0
    evaluation: ClassVar[None] = None
    residuals: ClassVar[bool] = False
    # The option by which a hospital is given what is asked, and what makes a batch smaller.
    given: ClassVar[str] = "--pool"
    smaller: ClassVar[str] = "a smaller batch_limit"

    def __post_init__(self) -> None:
        for what in ("teachers", "query_limit", "batch_limit", "pooled_teachers"):
            if (value := getattr(self, what)) is not None:
                check("study", what, value)
        if not 0 <= self.answer_rate <= 1:
            raise InvalidInput(f"answer_rate is {self.answer_rate}; allowed: in [0, 1]")
        if self.stop not in STOP_RULES:
            raise InvalidInput(f"stop is {self.stop!r}; allowed: {', '.join(STOP_RULES)}")
        self.mechanism.check_view(check_view(self.view))
        for what in ("query_limit", "batch_limit"):
            if getattr(self, what) % self.asks.rows:
                raise InvalidInput(f"{what} is {getattr(self, what)}; allowed: whole queries, of {self.asks.rows} rows")
        first = self.mechanism.round_one
        if first is not None and first > self.query_limit:
            raise InvalidInput(f"round_one is {first}; allowed: from 1 to the {self.query_limit} queries")

    def mechanism_on(self, lattice: Lattice | None) -> Mechanism:
        """The mechanism, with integer noise where there is a lattice."""
        return self.mechanism.on_lattice(lattice)

    def check_declared(self, seat: str, population: int | None) -> None:
        """Raises InvalidInput unless a seat may say that it has so many protected units."""
        if population is not None:
            raise InvalidInput(f"seat {seat!r} has population {population}; allowed where records vote")

    def check(self, study: AnyStudy, *, hidden: bool) -> None:
        """Raises InvalidInput unless teachers can vote so in the study. hidden: whether the level hides the queries."""
        if study.classes < 2:
            raise InvalidInput(f"classes is {study.classes}; allowed: 2 or more")
        if study.unit == "patient":
            raise InvalidInput("unit is 'patient'; allowed where teachers vote: record, party")
        pattern, moved = check_pattern(self.participation_name), self.moved(study.unit)
        check_rate(pattern, study.rates)
        if pattern == "secret" and moved > 1:
            raise InvalidInput(
                f"participation is 'secret' and a unit moves {moved} votes; allowed: one vote per unit, "
                "for which the amplified bound is proved (unit 'record', or one teacher per party)"
            )
        if self.pooled_teachers is not None:
            if pattern != "all" or study.unit != "record" or self.teachers != 1:
                raise InvalidInput("upsampling pools records; allowed: unit 'record', teachers 1, participation 'all'")
            if not study.weights.max() <= self.pooled_teachers:
                raise InvalidInput(
                    f"pooled_teachers is {self.pooled_teachers}; allowed: at least the {study.weights.max():g} "
                    "teachers that learn one record"
                )
        interactive = self.mechanism.name if self.mechanism.interactive else None
        if study.labelled.names and hidden:
            raise InvalidInput(f"{len(study.labelled.names)} findings; allowed where queries are hidden: one label")
        if study.labelled.names and self.questions != GIVEN:
            raise InvalidInput(f"questions is {self.questions!r}; allowed with findings: {GIVEN!r}")
        check_questions(self.questions, hidden=hidden, two_rounds=interactive, pattern=pattern)
        self.asks.check(self.mechanism, classes=study.classes, findings=len(study.labelled.names))

    @property
    def values(self) -> dict[str, Any]:
        """Its terms as plain values, by the keys of a study file."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        asks = {} if self.asks == ONE_CLASS else {"asks": self.asks.values}
        del plain["asks"]
        return plain | asks | {"mechanism": {"name": self.mechanism.name, **self.mechanism.values}}

    @property
    def delta_squared(self) -> int | float:
        """Delta^2 of a vote of weight 1 in one row."""
        # Counts of a row follow from what is asked; Delta^2 of votes for a class does not depend on their number.
        return self.mechanism.squared_move(self.asks.classes or 0)

    @property
    def secret_coins(self) -> bool:
        """Whether a vote enters a query by a coin that only its party sees."""
        return self.participation_name == "secret"

    @property
    def voters(self) -> int:
        """How many voters a seat has."""
        return self.teachers

    @property
    def pooled(self) -> bool:
        """Whether all data are pooled, so that seats are groups of records."""
        return self.pooled_teachers is not None

    def moved(self, unit: str) -> float:
        """How many votes a unit moves, each from one class to another; or as many as move the counts as far."""
        return votes_per_unit(unit, teachers=self.teachers)

    def apart(self, *, seen: bool) -> bool:
        """Whether what each seat sent is released by itself, with noise of its own; seen: whether it is seen."""
        return False

    def charged(self, weights: _Weights, hospitals: Sequence[str], *, apart: bool) -> _Weights:
        """The weight of what a unit of each seat moves, for which the seat is charged; hospitals: of the seats."""
        return weights

    def several(self, study: AnyStudy) -> bool:
        """Whether one protected unit may move more than one vote."""
        return self.moved(study.unit) > 1 or (self.pooled and bool((study.weights > 1).any()))

    def bounded(self, unit: str) -> tuple[str, ...]:
        """The units that have a bound in a study of this unit."""
        return UNITS

    def at_own_cost(self, unit: str, *, of: str) -> bool:
        """Whether a unit costs what a study's own unit, `of`, does."""
        return unit == of

    def cells_changed(self, unit: str, *, labelled: Labelled, classes: int) -> int:
        """In how many counts what is released may differ if a unit changes."""
        return classes

    def total(self, weights: _Weights) -> float:
        """The total weight of what all parties say of a query, where each of a party's votes has its weight."""
        return float(self.pooled_teachers or self.teachers * weights.sum())

    def total_units(self, weights: _Weights, *, units: int) -> int:
        """The most that one count can be, in lattice units."""
        return round(self.total(weights) * units)

    def asked(self, pool: int) -> int:
        """How many queries are asked in all, if budgets last; pool: its size."""
        return pool * self.asks.rows

    def sent(self, input_shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of what is sent of a query; (0,) where only the number of queries is."""
        return input_shape

    def check_deployed(self, *, unit: str, pool: int) -> None:
        """Raises InvalidInput for a study between organisations that cannot be; pool: its size."""
        if (rows := self.asked(pool)) > self.query_limit:
            raise InvalidInput(f"the pool has {rows} queries; allowed: at most the query_limit, {self.query_limit}")

    def check_batch(self, ids: Ids) -> None:
        """Raises InvalidInput unless a batch may have these queries, within the limits."""

    def again(self, ids: Ids) -> bool:
        """Whether these are the rows of a second batch, which is asked after all votes and paid for with them."""
        return False

    def shape(self, *, queries: int, classes: int) -> tuple[int, int]:
        """The shape of what a seat sends of a batch."""
        return (self.teachers, queries)

    def check_cast(self, study: AnyStudy, seat: str, cast: _Sent, ids: Ids) -> None:
        """Raises InvalidInput for values that the seat cannot have sent of these queries, if it follows the
        protocol."""
        check_votes(cast, classes=self.asks.labels(study.classes))

    def left(self, cast: _Sent, enters: Bool[ndarray, "..."]) -> _Sent:
        """What is left of what a seat would send, where only some queries, or votes, enter."""
        return np.where(enters, cast, ABSTAIN)

    def tally(
        self, study: AnyStudy, cast: Int64[ndarray, "parties rows columns"], seats: Seats,
        takes_part: Bool[ndarray, "parties queries"] | None = None,
    ) -> _Cells:  # fmt: skip
        """The histograms of what these seats sent, in lattice units.

        takes_part: None for votes of which nothing is to be left out; a vote in a query in which its party does not
        take part would not be charged.
        """
        entering = cast if takes_part is None else np.where(takes_part[:, None, :], cast, ABSTAIN)
        return np.rint(self.counts(study, entering, study.weights[seats]) * study.units).astype(np.int64)

    def counts(
        self, study: AnyStudy, votes: Integer[ndarray, "parties teachers rows"], weights: _Weights
    ) -> Float64[ndarray, "rows classes"]:
        """The weighted counts of these parties' votes, in votes."""
        return self.asks.counts(votes, weights, units=study.units, mechanism=study.mechanism, classes=study.classes)

    def released(
        self, study: AnyStudy, counts: _Counts, noise: Noise, *, predictions: Float64[ndarray, "queries classes"] | None
    ) -> tuple[Int64[ndarray, " queries"], None]:
        """Labels of histograms, and the noisy sums in lattice units where these are what is released; predictions: of
        the student, only in round two."""
        weight, view = study.nominal_weight, check_view(self.view)
        return study.mechanism.labels(counts, noise, view=view, predictions=predictions, total_weight=weight), None


@dataclass(frozen=True, kw_only=True)
class UnitSums:
    """Each protected unit contributes one matrix of bounded norm, once (docs/explanation/record-votes.md).

    All queries are asked in one batch; the noisy sum is released, for everybody to see, and what is made of it is free.
    Its methods are those of TeacherVotes.

    queries: how many rows a record's phi has (protocols/sums/blocks.py): cells, of which it fills those that it lies
    in, or graded features; votes: how many of them a record may fill; signed: whether entries may be below 0, as those
    of graded features; queries_sha256: the digest of the Blocks; population: the most protected units that all parties
    have together, which replace-one makes public; sigma: of the noise in each entry of the sum, in votes;
    hospitals_per_patient: at how many hospitals one unit may be known, for which each is charged; overlap: of OVERLAPS:
    "declared" where each hospital's data say of a unit at how many it is, so that it gives as small a part at each;
    evaluation: of the units that judge the model and do not vote, in a second batch whose rows follow those of the
    first and whose noise is of the same sigma (protocols/sums/judging.py); None: all vote; residuals: whether the units
    are asked in a second batch, with the same noise, how far the scores that the first gave are from their labels
    (protocols/sums/residuals.py); purpose: of PURPOSES, what the sum is for; partitions: of cells, how many queries
    each partition has, in each of which a record fills as many; (): one of all, as where features are graded. Raises
    InvalidInput, with the value and the allowed range.
    """

    queries: int
    votes: int
    signed: bool
    queries_sha256: str
    population: int
    sigma: float
    hospitals_per_patient: int = 1
    overlap: str = UNKNOWN
    evaluation: Evaluation | None = None
    residuals: bool = False
    purpose: str = ForLabels.name
    partitions: tuple[int, ...] = ()
    by: ClassVar[str] = "record"
    asks: ClassVar[Asked] = ONE_CLASS
    once: ClassVar[bool] = True
    opened: ClassVar[str] = "histogram"
    smaller: ClassVar[str] = "fewer queries"
    # What follows from there being one batch, in which everybody takes part.
    view: ClassVar[str] = "histogram"
    answer_rate: ClassVar[float] = 1.0
    stop: ClassVar[StopRule] = "first-exhausted"
    questions: ClassVar[str] = GIVEN
    participation_name: ClassVar[str] = "all"
    secret_coins: ClassVar[bool] = False
    pooled: ClassVar[bool] = False
    # A seat sends one vector.
    voters: ClassVar[int] = 1

    def __post_init__(self) -> None:
        for what in ("queries", "votes", "population", "hospitals_per_patient"):
            check("study", f"records.{what}", getattr(self, what))
        check_overlap(self.overlap, most=self.hospitals_per_patient)
        if self.votes > self.queries:
            raise InvalidInput(f"records: votes is {self.votes}; allowed: at most the {self.queries} queries")
        if parts := self.partitions:
            fills, odd = divmod(self.votes, len(parts))
            if self.signed or odd or sum(parts) != self.queries or min(parts) < fills:
                raise InvalidInput(
                    f"records: partitions are {list(parts)[:20]}; allowed: none of graded features, or of the "
                    f"{self.queries} queries, each with as many of the {self.votes} votes"
                )
        if not re.fullmatch("[0-9a-f]{64}", self.queries_sha256):
            raise InvalidInput(
                f"records: queries_sha256 is {self.queries_sha256[:80]!r}; allowed: 64 hexadecimal digits"
            )
        if self.purpose not in PURPOSES:
            raise InvalidInput(f"records: purpose is {self.purpose!r}; allowed: {', '.join(PURPOSES)}")
        self.mechanism_on(None)

    @property
    def use(self) -> Purpose:
        """What the sum is for."""
        return PURPOSES[self.purpose]

    @property
    def words(self) -> str:
        return self.use.words

    @property
    def given(self) -> str:
        return self.use.given

    @property
    def pool(self) -> bool:
        return self.use.pool

    def apart(self, *, seen: bool) -> bool:
        return seen and self.use.by_site

    def mechanism_on(self, lattice: Lattice | None) -> Mechanism:
        """The noise of the sum, as the accounting takes it: a Gaussian mechanism whose noisy counts are seen."""
        return GNMax(sigma=self.sigma).on_lattice(lattice)

    def check_declared(self, seat: str, population: int | None) -> None:
        if population is not None and not 1 <= population <= self.population:
            raise InvalidInput(
                f"seat {seat!r} has population {population}; allowed: 1 to {self.population}, those of all seats"
            )

    def check(self, study: AnyStudy, *, hidden: bool) -> None:
        check_rate(check_pattern(self.participation_name), study.rates)
        hospitals = len({name.partition("/")[0] for name in study.seats})
        if (known := self.hospitals_per_patient) > hospitals:
            raise InvalidInput(f"records: hospitals_per_patient is {known}; allowed: 1 to {hospitals}, the study's")
        check_declared([study.declared(seat) for seat in study.seats], self.population * self.hospitals_per_patient)
        self.use.check(
            classes=study.classes, weights=study.weights, counted=self.counted(study), parts=self.parts,
            judges=self.evaluation is not None,
        )  # fmt: skip
        signed = self.signed or set(self.queries_sha256) == {"0"}  # a draft, of which it is not known yet
        graded = signed and self.purpose == ForLabels.name and not study.labelled.names
        if self.residuals and not (graded and self.evaluation is None):
            raise InvalidInput(
                "records: residuals is true; allowed with graded features, one label of classes and no [evaluation]"
            )
        if study.labelled.names and self.purpose != ForLabels.name:
            raise InvalidInput(f"purpose is {self.purpose!r}; allowed with findings: {ForLabels.name!r}")
        if study.classes != (columns := study.labelled.columns(signed=self.signed)):
            raise InvalidInput(f"classes is {study.classes}; allowed with these findings: {columns}, the sum's columns")
        # Entries are of any size: rounded towards zero, too small ones would vanish.
        filled = self._filled(study.labelled) if self.signed else 0
        if self.evaluation is not None:
            findings = len(study.labelled.names)
            self.evaluation.check(study.classes, findings)
            if study.unit not in COUNTED:
                raise InvalidInput(f"unit is {study.unit!r}; allowed with [evaluation]: {', '.join(COUNTED)}")
            if self.purpose != ForLabels.name:
                raise InvalidInput(f"purpose is {self.purpose!r}; allowed with [evaluation]: {ForLabels.name!r}")
            filled = max(filled, 2 * cells_of(study.classes, findings))
        least = least_weight(filled) * self.parts if filled else 0
        if (smallest := round(float(study.weights.min()) * study.units)) < least:
            raise InvalidInput(
                f"the smallest weight is {smallest} lattice units for {filled} entries of a record; allowed: at least "
                f"{least}, with more units a vote"
            )

    @property
    def values(self) -> dict[str, Any]:
        own = {key: value for key, value in asdict(self).items() if key != "residuals" or value}
        judges = own.pop("evaluation")
        return {"records": own} if judges is None else {"records": own, "evaluation": judges}

    @property
    def delta_squared(self) -> int:
        """Delta^2: replacing a unit of weight W moves a sum by at most Delta W (protocols/sums/contributions.py), and
        one of residuals, too, whatever the first came to: squares add up."""
        return (4 if self.signed else 2) * (1 + self.residuals)

    @property
    def query_limit(self) -> int:
        """Queries that may be asked in total: with the rows of a second batch."""
        return self.queries + self.rows_again

    @property
    def batch_limit(self) -> int:
        """Queries in one message."""
        return max(self.queries, self.rows_again)

    @property
    def rows_again(self) -> int:
        """How many rows a second batch has: of judges, or of residuals; 0 where there is none."""
        return self.queries * self.residuals if self.evaluation is None else self.evaluation.rows

    @property
    def paid(self) -> int:
        """The queries of the one charge, which covers a second batch, too."""
        return self.queries

    @property
    def expected(self) -> float:
        """How many units vote: of the population all, or all but the nominal share of judges."""
        return self.population * (1.0 if self.evaluation is None else 1.0 - self.evaluation.share)

    @property
    def held(self) -> float:
        """How many votes a query holds in the mean, if each unit's weight is 1 and it votes evenly; of graded features,
        how many one of a few directions holds that the classes differ in."""
        return self.expected / 10 if self.signed else self.expected * self.votes**0.5 / self.queries

    def counted(self, study: AnyStudy) -> int:
        """With how many lattice units one unit is counted in one cell of each column."""
        return isqrt(round(float(study.weights[0]) * study.units) ** 2 // self.votes)

    def moved(self, unit: str) -> float:
        return 1.0

    @property
    def declared(self) -> bool:
        """Whether hospitals say of each unit at how many of them it is known."""
        return self.overlap == DECLARED

    @property
    def parts(self) -> int:
        """Into how many parts a unit may be divided among hospitals."""
        return self.hospitals_per_patient if self.declared else 1

    def charged(self, weights: _Weights, hospitals: Sequence[str], *, apart: bool) -> _Weights:
        overlap = Overlap(most=self.hospitals_per_patient, declared=self.declared, apart=apart)
        return overlap.moved(weights, hospitals)

    def several(self, study: AnyStudy) -> bool:
        return False

    def bounded(self, unit: str) -> tuple[str, ...]:
        """A record that is replaced is part of its patient."""
        return {"record": ("record",), "patient": ("patient", "record")}.get(unit, ())

    def at_own_cost(self, unit: str, *, of: str) -> bool:
        return True

    def cells_changed(self, unit: str, *, labelled: Labelled, classes: int) -> int:
        """Of a record, those that it and its replacement fill, each in either sum."""
        everything = self.query_limit * classes
        judging = 0 if self.evaluation is None else cells_of(classes, len(labelled.names))
        filled = max(self._filled(labelled) * (1 + self.residuals), judging)
        return min(2 * self.hospitals_per_patient * filled, everything) if unit == "record" else everything

    def _filled(self, labelled: Labelled) -> int:
        """How many entries a record may fill that votes."""
        return self.votes * labelled.filled(signed=self.signed)

    def total(self, weights: _Weights) -> float:
        return float(weights.sum())

    def total_units(self, weights: _Weights, *, units: int) -> int:
        largest = round(float(weights.max()) * units)
        held = self.population * self.hospitals_per_patient // self.parts  # a whole unit at each, unless divided
        return held * (largest if self.evaluation is None else judge_weight(largest, signed=self.signed))

    def asked(self, pool: int) -> int:
        return self.queries

    def sent(self, input_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Every party has the file of the queries."""
        return (0,)

    def check_deployed(self, *, unit: str, pool: int) -> None:
        if unit not in COUNTED:
            raise InvalidInput(f"unit is {unit!r}; allowed where records vote: {', '.join(COUNTED)}")

    def check_batch(self, ids: Ids) -> None:
        start, stop = (self.queries, self.query_limit) if self.again(ids) else (0, self.queries)
        if not np.array_equal(ids, np.arange(start, stop)):
            raise InvalidInput(
                f"{len(ids)} queries are asked; allowed: all {stop - start} from {start} on, as records speak once"
            )

    def again(self, ids: Ids) -> bool:
        return bool(ids[0] >= self.queries)

    def shape(self, *, queries: int, classes: int) -> tuple[int, int]:
        return (queries, classes)

    def claim(self, study: AnyStudy, seat: str, *, again: bool) -> Claim:
        """What the sum of a seat's units is held to; again: in a second batch."""
        weight_units, declared = round(float(study.weights[study.seats[seat]]) * study.units), study.declared(seat)
        held = self.population if declared is None else declared
        if again and self.evaluation is not None:
            norm = judge_weight(weight_units, signed=self.signed)
            most_in_all = held * isqrt(norm**2 * cells_of(study.classes, len(study.labelled.names)))
            return Claim(population=held, weight_units=norm, signed=False, most_in_all=most_in_all)
        # A vector of L2 norm W over n entries has an L1 norm of at most W sqrt(n).
        entries = self._filled(study.labelled) if study.unit == "record" else self.queries * study.classes
        most_in_all = held * isqrt(weight_units**2 * entries)
        whole = study.unit == "record" and not (self.signed or self.declared or study.labelled.names)
        return Claim(
            population=held, weight_units=weight_units, signed=self.signed, most_in_all=most_in_all,
            votes=self.votes, partitions=(self.partitions or (self.queries,)) if whole else (),
        )  # fmt: skip

    def proofs(self, study: AnyStudy, seat: str) -> dict[bool, Proven]:
        """How a seat shows two servers that its sum is one of its claim's: of votes (False), and again (True).

        Raises InvalidInput for sums of which that cannot be shown.
        """
        rows = {False: self.queries} | ({True: self.rows_again} if self.rows_again else {})
        return {
            again: proof_of(self.claim(study, seat, again=again), rows=each, columns=study.classes)
            for again, each in rows.items()
        }

    def check_cast(self, study: AnyStudy, seat: str, cast: _Sent, ids: Ids) -> None:
        self.claim(study, seat, again=self.again(ids)).check(cast)

    def left(self, cast: _Sent, enters: Bool[ndarray, "..."]) -> _Sent:
        return cast

    def tally(
        self, study: AnyStudy, cast: Int64[ndarray, "parties rows columns"], seats: Seats,
        takes_part: Bool[ndarray, "parties queries"] | None = None,
    ) -> _Cells:  # fmt: skip
        if not study.apart:
            total: _Cells = cast.sum(axis=0)
            return total
        each = np.zeros((len(study.seats), *cast.shape[1:]), dtype=np.int64)
        each[seats] = cast
        return each.reshape(-1, cast.shape[2])

    def released(
        self, study: AnyStudy, counts: _Counts, noise: Noise, *, predictions: Float64[ndarray, "queries classes"] | None
    ) -> tuple[Int64[ndarray, " queries"], _Cells]:
        noisy = study.mechanism.noisy(counts, noise, view=check_view(self.view))
        cells = np.rint(noisy * study.units).astype(np.int64)
        return self.likeliest(cells), cells

    def likeliest(self, cells: _Cells) -> Int64[ndarray, " queries"]:
        """Of each query the class of the largest sum, of all seats together."""
        return cells.reshape(-1, self.queries, cells.shape[1]).sum(axis=0).argmax(axis=1)


Votes = TeacherVotes | UnitSums


def teacher_votes(study: AnyStudy) -> TeacherVotes:
    """What the study fixes about teachers that vote. Raises InvalidInput if units do."""
    if not isinstance(study.votes, TeacherVotes):
        raise InvalidInput(f"records vote in study {study.name!r}, so it has no teachers; allowed: one that has")
    return study.votes


def unit_sums(study: AnyStudy) -> UnitSums:
    """What the study fixes about units that vote. Raises InvalidInput if teachers do."""
    if not isinstance(study.votes, UnitSums):
        raise InvalidInput(f"teachers vote in study {study.name!r}; allowed: a study with a table [records]")
    return study.votes
