"""The study in which teachers vote: noise and threshold as given or as usual, weights or rates solved by budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, get_type_hints  # Any: forms of typing

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from protocols.budgets.accountant import Accountant, ExactComposition, LabelOnly, accountant, default_accountant
from protocols.budgets.individualization import USUAL_RULE, vanishing, weights
from protocols.budgets.participation import Pattern
from protocols.budgets.planned import Budgets, Planned
from protocols.errors import InvalidInput
from protocols.mechanisms import Mechanism, Number, View, check_view
from protocols.study.chosen import GIVEN, UNCERTAINTY
from protocols.study.levels import LEVELS, Confidentiality
from protocols.study.settings import read_setting, read_settings
from protocols.study.several_findings import ONE_CLASS, Asked
from protocols.study.study import Seat, Study
from protocols.study.units import Unit, votes_per_unit
from protocols.study.usual_noise import check_parameters, is_usual, least_factor_for, scaled_mechanism
from protocols.study.votes import StopRule, TeacherVotes
from protocols.votes import LATTICE

_PATTERNS: dict[str, Pattern] = {"vanishing": "periodic", "secret-vanishing": "secret"}
# The share of batches that a party misses, each by chance.
Dropout = Annotated[float, (">=", 0), ("<", 1)]


@dataclass(frozen=True, kw_only=True)
class TeacherTerms:
    """What somebody chooses of a study in which teachers vote; annotated with the range of each (settings.py).

    None: as usual for the study. parameters: those of the mechanism that were given, by name; accountant: that charges;
    individualization: what a larger budget buys; weights: the rule of weights; quorum, units, colluders, input_bound:
    see levels.py.
    """

    unit: Unit
    view: View
    mechanism: str = "thresholded_gnmax"
    parameters: Mapping[str, int | float] = field(default_factory=dict, hash=False)
    accountant: str | None = None
    individualization: Literal["weighting", "upsampling", "vanishing", "secret-vanishing"] = "weighting"
    weights: str | None = None
    stop: StopRule = "first-exhausted"
    answer_rate: Annotated[float, (">=", 0), ("<=", 1)] = 1.0
    quorum: Annotated[int | None, (">=", 1)] = None
    confidentiality: Literal["clear", "secure_sum", "two_server", "hidden_queries"] = "clear"
    units: Annotated[int | None, (">=", 2)] = None
    colluders: Annotated[int | None, (">=", 0)] = None
    input_bound: Annotated[float | None, (">", 0)] = None

    def __post_init__(self) -> None:
        if self.input_bound is not None and LEVELS[self.confidentiality].asking_role != "party":
            raise InvalidInput(f"input_bound is {self.input_bound}; allowed with confidentiality 'hidden_queries' only")
        if self.individualization != "weighting" and self.weights is not None:
            raise InvalidInput(
                f"weights is {self.weights!r}; allowed: with individualization 'weighting', not "
                f"{self.individualization!r}"
            )
        check_parameters(self.mechanism, self.parameters, view=check_view(self.view))


# The kind and the range of each.
TERMS: Mapping[str, Any] = {
    name: hint for name, hint in get_type_hints(TeacherTerms, include_extras=True).items() if name != "parameters"
}


def teacher_terms(**values: object) -> TeacherTerms:
    """The terms of these settings and parameters of the mechanism. Raises InvalidInput for the first that is unknown or
    out of range."""
    parameters = read_settings(values, TERMS, lambda name, value: read_setting(name, value, TERMS.get(name, Number)))
    own = {name: parameters.pop(name) for name in TERMS if name in parameters}
    return TeacherTerms(**own, parameters=parameters)


@dataclass(frozen=True, kw_only=True, eq=False)
class Pooled:
    """Where all data are pooled, as only a simulation can: how many teachers learn a record of each seat, which is a
    group of records; the number of teachers; and that number over the one before records were duplicated."""

    copies: Float64[ndarray, " seats"]
    teachers: int
    scale: float


@dataclass(frozen=True, kw_only=True)
class TeacherVotesPlan:
    """What is known of a study of teachers' votes before its noise and weights are worked out.

    classes, queries: counts and number of the rows that `asks` makes of the pool, whose records have these findings;
    teachers: of each party; batch: how many queries are chosen together, between batches; None where their order is
    fixed before.
    """

    name: str
    terms: TeacherTerms
    level: Confidentiality
    classes: int
    queries: int
    teachers: int = 1
    batch: int | None = None
    asks: Asked = ONE_CLASS
    findings: tuple[str, ...] = ()
    pooled: Pooled | None = None


def teacher_study(plan: TeacherVotesPlan, budgets: Budgets, *, factor: float | None = None) -> Study:
    """The study of a plan: noise and threshold scaled, weights or rates solved, one seat per budget.

    Usual noise is smaller where the budgets would outlast the pool (usual_noise.py); factor: of the usual noise and
    threshold, in (0, 1], None: that. Raises InvalidInput for terms that do not go together.
    """
    if factor is not None:
        return _study(plan, budgets, factor=factor)
    exact = plan.terms.accountant == ExactComposition.name
    # Exact composition affords no fewer queries than the Renyi filter, and takes a second for each noise.
    guide = replace(plan, terms=replace(plan.terms, accountant=LabelOnly.name)) if exact else plan
    made: dict[float, Study] = {}

    def affords(factor: float) -> int:
        made[factor] = _study(guide, budgets, factor=factor)
        room = made[factor].budgets.affordable(np.zeros(len(budgets.names), dtype=np.int64), limit=plan.queries + 1)
        return int(room.min())

    usual = is_usual(plan.terms.mechanism, plan.terms.parameters)
    factor = least_factor_for(plan.queries, affords) if usual else 1.0
    return made[factor] if factor in made and not exact else _study(plan, budgets, factor=factor)


def _study(plan: TeacherVotesPlan, budgets: Budgets, *, factor: float) -> Study:
    """The study with usual noise and threshold times `factor`."""
    terms, level, pooled = plan.terms, plan.level, plan.pooled
    view = check_view(terms.view)
    teachers, per_unit = plan.teachers, votes_per_unit(terms.unit, teachers=plan.teachers)
    seats = len(budgets.names)
    total = float(seats * teachers if pooled is None else pooled.teachers)
    quorum = terms.quorum or level.usual_quorum(seats)
    lattice = level.lattice(quorum=quorum, classes=plan.classes)
    mechanism = scaled_mechanism(
        terms.mechanism, terms.parameters, view=view, classes=plan.classes, votes=total,
        scale=1.0 if pooled is None else pooled.scale, factor=factor,
    )  # fmt: skip
    several = pooled is not None or per_unit > 1
    account = _charging_accountant(terms, mechanism.on_lattice(lattice), view, several=several)
    planned = Planned(
        accountant=account,
        mechanism=mechanism.on_lattice(lattice),
        epsilon=budgets.epsilon,
        delta=budgets.delta,
        sensitivity_per_weight=per_unit,
        delta_squared=mechanism.squared_move(plan.classes),
        # Each party casts `teachers` votes: the ceiling of a weight sees the noise of one vote per party.
        sigma=mechanism.label_sigma / teachers**0.5,
        view=view,
        classes=plan.classes,
        query_limit=plan.queries,
        answer_rate=terms.answer_rate,
    )
    pattern: Pattern = _PATTERNS.get(terms.individualization, "all")
    rate, weight = np.ones(seats), np.ones(seats)
    if pooled is not None:
        weight = pooled.copies
    elif pattern != "all":
        rate, each = vanishing(pattern, planned)
        weight = np.full(seats, each)
    else:
        weight = weights(terms.weights or USUAL_RULE, planned, units=level.units or LATTICE)
    usual = level.usual_batch(plan.queries, voters=seats * teachers, classes=plan.classes)
    rows = zip(
        budgets.names, budgets.epsilon.tolist(), budgets.delta.tolist(), weight.tolist(), rate.tolist(), strict=True
    )
    study = Study(
        name=plan.name,
        classes=plan.classes,
        votes=TeacherVotes(
            mechanism=mechanism,
            pooled_teachers=None if pooled is None else pooled.teachers,
            view=view,
            teachers=teachers,
            query_limit=plan.queries,
            batch_limit=plan.asks.whole(usual if plan.batch is None else min(usual, plan.batch)),
            answer_rate=terms.answer_rate,
            stop=terms.stop,
            questions=GIVEN if plan.batch is None else UNCERTAINTY,
            participation_name=pattern,
            asks=plan.asks,
        ),
        unit=terms.unit,
        accountant_name=account.name,
        quorum=quorum,
        confidentiality=level,
        roster=tuple(Seat(party=p, epsilon=e, delta=d, weight=w, rate=r) for p, e, d, w, r in rows),
        findings=plan.findings,
    )
    if not mechanism.interactive or "round_one" in terms.parameters:
        return study
    # Round one gets half of the queries that the poorest budget affords when all are answered.
    half = max(1, int(study.budgets.affordable(np.zeros(seats, dtype=np.int64), limit=plan.queries).min()) // 2)
    return study.voting(mechanism=type(mechanism).build(view=view, given={**mechanism.values, "round_one": half}))


def _charging_accountant(terms: TeacherTerms, mechanism: Mechanism, view: View, *, several: bool) -> Accountant:
    """The accountant that charges budgets; several: votes of a unit. Raises InvalidInput where it is not valid."""
    coins = terms.individualization == "secret-vanishing"
    if terms.accountant is None:
        return default_accountant(mechanism, view, secret_coins=coins)
    account = accountant(terms.accountant)
    account.check(mechanism, view, secret_coins=coins, several_votes=several)
    return account
