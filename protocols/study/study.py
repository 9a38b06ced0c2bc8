"""Study: what every participant must agree on before the first vote, and its digest.

A study is a value. A hospital reads and approves its TOML file; its digest, over a canonical form, is in every message,
so nobody can be asked under other terms. Everything that accounting needs follows from it by pure functions:
`Study.mechanism`, `Study.budgets`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property
from math import ceil
from typing import Literal

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.bounds.rdp import check_budget
from protocols.budgets.accountant import accountant
from protocols.budgets.filter import BudgetFilter, budget_filters
from protocols.budgets.participation import Participation, check_pattern, check_rate, participation
from protocols.contributions import check_sums
from protocols.errors import InvalidInput
from protocols.mechanisms import GaussianMechanism, Lattice, Mechanism, Sensitivity, check_view
from protocols.noise import Noise
from protocols.ranges import check
from protocols.study.chosen import GIVEN, check_questions
from protocols.study.level_checks import AnyStudy
from protocols.study.levels import Confidentiality
from protocols.study.record_votes import RecordVotes
from protocols.study.stop import check_stop
from protocols.votes import LATTICE

Unit = Literal["record", "patient", "party"]
UNITS: tuple[Unit, ...] = ("record", "patient", "party")
ADJACENCY = "replace-one"


@dataclass(frozen=True, kw_only=True)
class Seat:
    """One seat of the roster: a budget, how much each vote counts, and how often it takes part.

    party: the name of the seat, PARTY or PARTY/GROUP: a party whose records have several budgets (privacy groups) has
    one seat per budget, each with its own teachers. weight: of each vote, a multiple of 1/LATTICE; rate: share of
    the queries in which it takes part, see participation.py; 1 where participation is "all".
    """

    party: str
    epsilon: float
    delta: float
    weight: float
    rate: float


@dataclass(frozen=True, kw_only=True)
class Study(AnyStudy):
    """The terms of one study. No privacy-relevant field has a default.

    name: a label for people; classes: >= 2; mechanism: with its parameters; its noise is integer if the level requires
    that, whatever was given; participation: see participation.py; pooled_teachers: None in a federation; in a
    simulation of upsampling, where all data are pooled, the number of teachers: seats are then groups of records, and a
    seat's weight is the number of teachers that learn one of its records; unit: whose data changes between neighbours;
    view: what an observer sees; accountant: a name of ACCOUNTANTS that is valid for the view; teachers: votes per
    party; records: None where teachers vote, see record_votes.py; query_limit: queries that may be asked in total;
    batch_limit: queries in one message; questions: see chosen.py; answer_rate: the public estimate with which each
    party's order is chosen; stop and quorum: see schedule.py; confidentiality: who may see a vote; roster: one seat per
    party.

    Raises InvalidInput, with the value and the allowed range, on any value out of range.
    """

    name: str
    classes: int
    mechanism: Mechanism
    pooled_teachers: int | None = None
    unit: str
    view: str
    accountant_name: str
    teachers: int
    records: RecordVotes | None = None
    query_limit: int
    batch_limit: int
    answer_rate: float
    stop: str
    questions: str = GIVEN
    quorum: int
    participation_name: str
    confidentiality: Confidentiality
    roster: tuple[Seat, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "mechanism", self.mechanism.on_lattice(self.lattice))
        for what, value in (
            ("classes", self.classes),
            ("teachers", self.teachers),
            ("query_limit", self.query_limit),
            ("batch_limit", self.batch_limit),
            ("quorum", self.quorum),
            ("pooled_teachers", self.pooled_teachers),
        ):
            if value is not None:
                check("study", what, value)
        if not self.roster:
            raise InvalidInput("the roster is empty; allowed: at least one party")
        if self.quorum > len(self.roster):
            raise InvalidInput(f"quorum is {self.quorum}; allowed: at most the {len(self.roster)} parties")
        if self.unit not in UNITS:
            raise InvalidInput(f"unit is {self.unit!r}; allowed: {', '.join(UNITS)}")
        if not 0 <= self.answer_rate <= 1:
            raise InvalidInput(f"answer_rate is {self.answer_rate}; allowed: in [0, 1]")
        names = [seat.party for seat in self.roster]
        for name in (self.name, *names):
            if not (name and name.isprintable()):
                raise InvalidInput(f"the name {name!r} is empty or has control characters; allowed: printable text")
        check_budget(np.array([seat.epsilon for seat in self.roster]), np.array([seat.delta for seat in self.roster]))
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidInput(f"party {twice!r} is on the roster twice; allowed: once")
        weights = self.weights
        units = weights * LATTICE
        if not (np.isfinite(weights).all() and (weights > 0).all() and (units == np.rint(units)).all()):
            raise InvalidInput(
                f"weights span [{weights.min()}, {weights.max()}]; allowed: multiples of 1/{LATTICE}, > 0"
            )
        if self.largest_weight > 2.0**33:
            raise InvalidInput(f"total weight is {self.largest_weight:g}; allowed: at most 2**33 votes")
        view = check_view(self.view)
        self.mechanism.check_view(view)
        self._check_participation()
        self._check_records()
        check_questions(
            self.questions, by_records=self.records is not None, hidden=self.confidentiality.hides_queries,
            two_rounds=self.mechanism.name if self.mechanism.interactive else None, pattern=self.participation_name,
        )  # fmt: skip
        self.confidentiality.check(self)
        check_stop(self.stop)
        accountant(self.accountant_name).check(
            self.mechanism, view, secret_coins=self.secret_coins, several_votes=self.several_votes
        )
        first = self.mechanism.round_one
        if first is not None and first > self.query_limit:
            raise InvalidInput(f"round_one is {first}; allowed: from 1 to the {self.query_limit} queries")

    def _check_participation(self) -> None:
        pattern = check_pattern(self.participation_name)
        check_rate(pattern, self.rates)
        if pattern == "secret" and self.votes_per_unit > 1:
            raise InvalidInput(
                f"participation is 'secret' and a unit moves {self.votes_per_unit} votes; allowed: one vote per unit, "
                "for which the amplified bound is proved (unit 'record', or one teacher per party)"
            )
        grouped = [seat.party for seat in self.roster if "/" in seat.party]
        if grouped and self.unit == "party":
            raise InvalidInput(
                f"seat {grouped[0]!r} is a privacy group; allowed with unit 'record' only: a party's whole data "
                "move the votes of all of its groups"
            )
        if self.pooled_teachers is None:
            return
        if pattern != "all" or self.unit != "record" or self.teachers != 1:
            raise InvalidInput("pooled_teachers goes with participation 'all', unit 'record' and teachers = 1 only")
        if not self.weights.max() <= self.pooled_teachers:
            raise InvalidInput(
                f"pooled_teachers is {self.pooled_teachers}; allowed: at least the {self.weights.max():g} teachers "
                "that learn one record"
            )

    def _check_records(self) -> None:
        """Raises InvalidInput unless the study is one that records, or teachers, can vote in."""
        if self.records is None:
            if self.unit == "patient":
                raise InvalidInput("unit is 'patient'; allowed where teachers vote: record, party")
            return
        for what, value, allowed in (
            ("mechanism", self.mechanism.name, "gnmax"),
            ("view", self.view, "histogram"),
            ("participation_name", self.participation_name, "all"),
            ("pooled_teachers", self.pooled_teachers, None),
            ("teachers", self.teachers, 1),
            ("query_limit", self.query_limit, self.records.queries),
            ("batch_limit", self.batch_limit, self.records.queries),
        ):
            if value != allowed:
                raise InvalidInput(f"{what} is {value!r}; allowed where records vote: {allowed!r}")

    @property
    def secret_coins(self) -> bool:
        """Whether a vote enters a query by a coin that only its party sees."""
        return self.participation_name == "secret"

    @property
    def units(self) -> int:
        """Lattice units a vote: of the level, or LATTICE."""
        return self.confidentiality.units or LATTICE

    @property
    def gaussian(self) -> GaussianMechanism:
        """The mechanism, if it is Gaussian, as integer noise requires. Raises InvalidInput otherwise."""
        if not isinstance(self.mechanism, GaussianMechanism):
            raise InvalidInput(f"{self.mechanism.name} has no integer noise; allowed: a mechanism with Gaussian noise")
        return self.mechanism

    def total_units(self, units: int) -> int:
        """The total weight of the roster's votes in lattice units; units: lattice units per vote."""
        if self.records is not None:
            return self.records.population * round(float(self.weights.max()) * units)
        return round(self.largest_weight * units)

    def threshold_units(self, units: int) -> int | None:
        """The least whole number of lattice units that reaches the threshold; None if every query is answered."""
        needed = self.mechanism.needed(second_round=False)
        return None if needed is None else ceil(needed * units)

    @property
    def lattice(self) -> Lattice | None:
        """The level's lattice of integer noise; None for real-valued noise."""
        changed = self.classes if self.records is None else self.records.cells_changed(self.unit, classes=self.classes)
        return self.confidentiality.lattice(quorum=self.quorum, classes=changed)

    @cached_property
    def weights(self) -> Float64[ndarray, " parties"]:
        """The weight of each vote of each party of the roster, in votes."""
        return np.array([seat.weight for seat in self.roster])

    @cached_property
    def rates(self) -> Float64[ndarray, " parties"]:
        """The share of the queries in which each seat takes part."""
        return np.array([seat.rate for seat in self.roster])

    @cached_property
    def participation(self) -> Participation:
        """Who takes part in which query, as far as that is public."""
        return participation(check_pattern(self.participation_name), self.rates)

    @property
    def sensitivity(self) -> Sensitivity:
        """What each seat's protected units move. Public patterns amplify nothing: each vote is charged in full."""
        rates = self.rates if self.secret_coins else np.ones(len(self.roster))
        return Sensitivity(self.votes_per_unit * self.weights, rates)

    @property
    def largest_weight(self) -> float:
        """The total weight of all votes if every seat takes part."""
        if self.pooled_teachers is not None:
            return float(self.pooled_teachers)
        return float(self.teachers * self.weights.sum())

    @property
    def nominal_weight(self) -> float:
        """The public total weight M of Interactive-GNMax: what seats at their rates bring on average."""
        if self.pooled_teachers is not None:
            return float(self.pooled_teachers)
        return float(self.teachers * (self.weights * self.rates).sum())

    def release(
        self,
        counts: Float64[ndarray, "queries classes"],
        noise: Noise,
        *,
        predictions: Float64[ndarray, "queries classes"] | None,
    ) -> Int64[ndarray, " queries"]:
        """The mechanism's labels of weighted histograms; predictions: of the student, only in round two."""
        return self.mechanism.labels(
            counts, noise, view=check_view(self.view), predictions=predictions, total_weight=self.nominal_weight
        )

    def noisy_cells(
        self, counts: Float64[ndarray, "queries classes"], noise: Noise
    ) -> Int64[ndarray, "queries classes"]:
        """The noisy histograms of record votes, in lattice units: what such a study releases."""
        noisy = self.mechanism.noisy(counts, noise, view=check_view(self.view))
        return np.rint(noisy * self.units).astype(np.int64)

    def check_sums(self, seat: str, sums: Int64[ndarray, "queries classes"]) -> None:
        """Raises InvalidInput for what no records of a seat could add up to, where records vote."""
        if self.records is None:
            raise InvalidInput(f"teachers vote in study {self.name!r}; allowed: one in which records vote")
        weight_units = round(self.roster[self.seats[seat]].weight * self.units)
        most, most_in_all = self.records.bounds(self.unit, weight_units=weight_units, classes=self.classes)
        check_sums(sums, most=most, most_in_all=most_in_all)

    def round_end(self, asked: int, queries: int) -> int:
        """The query at which a batch that starts at `asked` must end at the latest, as a batch belongs to one round."""
        first = self.mechanism.round_one
        return first if first is not None and asked < first < queries else queries

    @property
    def votes_per_unit(self) -> int:
        """Votes that one protected unit moves: 1 for a record, all of its party's teachers for a party."""
        return votes_per_unit(self.unit, teachers=self.teachers)

    @property
    def several_votes(self) -> bool:
        """Whether one protected unit may move more than one vote."""
        return self.votes_per_unit > 1 or (self.pooled_teachers is not None and bool((self.weights > 1).any()))

    @cached_property
    def budgets(self) -> BudgetFilter:
        """Every party's order, cap and cost, in roster order. Raises InvalidInput if a budget affords nothing."""
        return budget_filters(
            accountant=accountant(self.accountant_name),
            mechanism=self.mechanism,
            sensitivity=self.sensitivity,
            epsilon=np.array([seat.epsilon for seat in self.roster]),
            delta=np.array([seat.delta for seat in self.roster]),
            view=check_view(self.view),
            classes=self.classes,
            query_limit=self.query_limit,
            total_weight=self.largest_weight,
            answer_rate=self.answer_rate,
            once=self.records is not None,
        )

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the canonical form: JSON, keys sorted, floats in Python's shortest exact form."""
        values = asdict(self) | {"mechanism": {"name": self.mechanism.name, **self.mechanism.values}}
        values["confidentiality"]["level"] = self.confidentiality.name
        canonical = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(b"conclave study 2\n" + canonical.encode()).digest()

    @cached_property
    def seats(self) -> dict[str, int]:
        """The position of each party in the roster."""
        return {seat.party: position for position, seat in enumerate(self.roster)}


def votes_per_unit(unit: str, *, teachers: int) -> int:
    """1 for a record (it lies in one shard); `teachers` for a party: the cost is quadratic in that, not linear."""
    if unit not in UNITS:
        raise InvalidInput(f"unit is {unit!r}; allowed: {', '.join(UNITS)}")
    return teachers if unit == "party" else 1


def party_of(seat: str) -> str:
    """The party whose seat this is: PARTY, or PARTY/GROUP for a privacy group."""
    return seat.partition("/")[0]
