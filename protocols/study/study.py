"""Study: what every participant must agree on before the first vote, and its digest.

A study is a value. A hospital reads and approves its TOML file; its digest, over a canonical form, is in every message,
so nobody can be asked under other terms. Everything that accounting needs follows from it by pure functions:
`Study.mechanism`, `Study.budgets`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from math import ceil
from typing import Any, Self  # Any: the terms of either kind of votes

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.bounds.rdp import check_budget
from protocols.budgets.accountant import accountant
from protocols.budgets.filter import BudgetFilter, budget_filters
from protocols.budgets.participation import Participation, check_pattern, participation
from protocols.errors import InvalidInput
from protocols.mechanisms import GaussianMechanism, Lattice, Mechanism, Sensitivity, check_view
from protocols.noise import Noise
from protocols.ranges import check
from protocols.study.any_study import AnyStudy
from protocols.study.findings import Labelled, labelled
from protocols.study.levels import Confidentiality
from protocols.study.units import UNITS
from protocols.study.votes import Votes
from protocols.votes import LATTICE

ADJACENCY = "replace-one"


@dataclass(frozen=True, kw_only=True)
class Seat:
    """One seat of the roster: a budget, how much each vote counts, and how often it takes part.

    party: the name of the seat, PARTY or PARTY/GROUP: a party whose records have several budgets (privacy groups) has
    one seat per budget, each with its own teachers. weight: of each vote, a multiple of 1/LATTICE; rate: share of
    the queries in which it takes part, see participation.py; 1 where participation is "all". population: where records
    vote, the most protected units that it has, which bounds what it can send; None: as many as all parties together.
    display_name: what people call the party, in any script, beside its name; None: nothing else.
    """

    party: str
    epsilon: float
    delta: float
    weight: float
    rate: float
    population: int | None = None
    display_name: str | None = None


@dataclass(frozen=True, kw_only=True)
class Study(AnyStudy):
    """The terms of one study. No privacy-relevant field has a default.

    name: a label for people; classes: >= 2; where there are findings the columns of a histogram or sum; votes: what
    votes, and how, see votes.py; findings: their public names where a record has several labels at once, none where it
    has one of `classes`, see findings.py; unit: whose data changes between neighbours; accountant_name: of ACCOUNTANTS,
    valid for the view; quorum: see schedule.py; confidentiality: who may see a vote; roster: one seat per party.

    Raises InvalidInput, with the value and the allowed range, on any value out of range.
    """

    name: str
    classes: int
    votes: Votes
    unit: str
    accountant_name: str
    quorum: int
    confidentiality: Confidentiality
    roster: tuple[Seat, ...]
    findings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check("study", "classes", self.classes)
        labelled(self.findings, self.classes)
        check("study", "quorum", self.quorum)
        if not self.roster:
            raise InvalidInput("the roster is empty; allowed: at least one party")
        if self.quorum > len(self.roster):
            raise InvalidInput(f"quorum is {self.quorum}; allowed: at most the {len(self.roster)} parties")
        if self.unit not in UNITS:
            raise InvalidInput(f"unit is {self.unit!r}; allowed: {', '.join(UNITS)}")
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
        grouped = [seat.party for seat in self.roster if "/" in seat.party]
        if grouped and self.unit == "party":
            raise InvalidInput(
                f"seat {grouped[0]!r} is a privacy group; allowed with unit 'record' only: a party's whole data "
                "move the votes of all of its groups"
            )
        for seat in self.roster:
            self.votes.check_declared(seat.party, seat.population)
        self.votes.check(self, hidden=bool(self.confidentiality.asked_by))
        self.confidentiality.check(self)
        accountant(self.accountant_name).check(
            self.mechanism,
            check_view(self.view),
            secret_coins=self.secret_coins,
            several_votes=self.votes.several(self),
        )

    def voting(self, **terms: Any) -> Self:
        """The study with these terms of its votes changed, by their names."""
        return replace(self, votes=replace(self.votes, **terms))

    @property
    def labelled(self) -> Labelled:
        """What a record is labelled with: one class, or several findings."""
        return labelled(self.findings, self.classes)

    @cached_property
    def mechanism(self) -> Mechanism:
        """What makes labels, or a noisy sum, of votes; its noise is integer if the level requires that."""
        return self.votes.mechanism_on(self.lattice)

    @property
    def view(self) -> str:
        """What an observer sees."""
        return self.votes.view

    @property
    def query_limit(self) -> int:
        """Queries that may be asked in total."""
        return self.votes.query_limit

    @property
    def batch_limit(self) -> int:
        """Queries in one message."""
        return self.votes.batch_limit

    @property
    def secret_coins(self) -> bool:
        """Whether a vote enters a query by a coin that only its party sees."""
        return self.votes.secret_coins

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
        return self.votes.total_units(self.weights, units=units)

    def threshold_units(self, units: int) -> int | None:
        """The least whole number of lattice units that reaches the threshold; None if every query is answered."""
        needed = self.mechanism.needed(second_round=False)
        return None if needed is None else ceil(needed * units)

    @property
    def lattice(self) -> Lattice | None:
        """The level's lattice of integer noise; None for real-valued noise."""
        changed = self.votes.cells_changed(self.unit, labelled=self.labelled, classes=self.classes)
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
        return participation(check_pattern(self.votes.participation_name), self.rates, paid=self.votes.paid)

    @property
    def sensitivity(self) -> Sensitivity:
        """What each seat's protected units move. Public patterns amplify nothing: each vote is charged in full."""
        rates = self.rates if self.secret_coins else np.ones(len(self.roster))
        return Sensitivity(self.votes_per_unit * self.charged, rates, delta_squared=self.votes.delta_squared)

    @cached_property
    def charged(self) -> Float64[ndarray, " parties"]:
        """The weight with which a unit of each seat moves what is released, wherever else it may be known."""
        return self.votes.charged(self.weights, [party_of(seat.party) for seat in self.roster], apart=self.apart)

    @property
    def apart(self) -> bool:
        """Whether what each seat sent is released by itself, with noise of its own."""
        return self.votes.apart(seen=not self.confidentiality.conceals_votes)

    @property
    def rows_released(self) -> int:
        """How many rows all that is released of votes has: the queries, of each seat where these are apart."""
        return (self.query_limit - self.votes.rows_again) * (len(self.roster) if self.apart else 1)

    @property
    def rows_noised(self) -> int:
        """In how many rows noise is drawn: with those of a second batch, if of judges that are seen of each seat."""
        apart = self.votes.evaluation is not None and not self.confidentiality.conceals_votes
        return self.rows_released + self.votes.rows_again * (len(self.roster) if apart else 1)

    @property
    def largest_weight(self) -> float:
        """The total weight of all votes if every seat takes part."""
        return self.votes.total(self.weights)

    @property
    def nominal_weight(self) -> float:
        """The public total weight M of Interactive-GNMax: what seats at their rates bring on average."""
        return self.votes.total(self.weights * self.rates)

    def released(
        self,
        counts: Float64[ndarray, "rows classes"],
        noise: Noise,
        *,
        predictions: Float64[ndarray, "queries classes"] | None,
    ) -> tuple[Int64[ndarray, " queries"], Int64[ndarray, "rows classes"] | None]:
        """Labels of weighted histograms, and the noisy sums in lattice units if they are what is released."""
        return self.votes.released(self, counts, noise, predictions=predictions)

    def round_end(self, asked: int, queries: int) -> int:
        """The query at which a batch that starts at `asked` must end at the latest, as a batch belongs to one round."""
        first = self.mechanism.round_one
        return first if first is not None and asked < first < queries else queries

    @property
    def votes_per_unit(self) -> float:
        """Votes that one protected unit moves: 1 for a record, all of its party's teachers for a party."""
        return self.votes.moved(self.unit)

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
            query_limit=self.rows_noised,
            total_weight=self.largest_weight,
            answer_rate=self.votes.answer_rate,
            once=self.votes.once,
        )

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the canonical form: JSON, keys sorted, floats in Python's shortest exact form."""
        values = asdict(self) | {"votes": {"by": self.votes.by, **self.votes.values}}
        values["confidentiality"]["level"] = self.confidentiality.name
        if not self.findings:
            del values["findings"]
        values.get("terms", {}).pop("findings", None)  # the study's
        values["roster"] = [{key: each for key, each in seat.items() if each is not None} for seat in values["roster"]]
        if values.get("terms", {}).get("licence", "") is None:
            del values["terms"]["licence"]
        canonical = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(b"conclave study 3\n" + canonical.encode()).digest()

    def declared(self, seat: str) -> int | None:
        """How many protected units a seat says that it has at most."""
        return self.roster[self.seats[seat]].population

    def named(self, seat: str) -> str:
        """A seat, or a party, for people: its display name and, in brackets, its name; the name alone without one."""
        shown = [each.display_name for each in self.roster if seat in (each.party, party_of(each.party))]
        return f"{shown[0]} ({seat})" if shown and shown[0] else seat

    @cached_property
    def seats(self) -> dict[str, int]:
        """The position of each party in the roster."""
        return {seat.party: position for position, seat in enumerate(self.roster)}


def party_of(seat: str) -> str:
    """The party whose seat this is: PARTY, or PARTY/GROUP for a privacy group."""
    return seat.partition("/")[0]
