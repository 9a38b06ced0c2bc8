"""The study in which records vote: weights by budget, and the least noise that every budget affords."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from protocols.budgets.accountant import default_accountant
from protocols.budgets.individualization import weights
from protocols.budgets.planned import Planned
from protocols.errors import InvalidInput
from protocols.mechanisms import GNMax
from protocols.study.levels import Confidentiality
from protocols.study.query_map import QueryMap
from protocols.study.record_votes import RecordVotes
from protocols.study.study import Seat, Study
from protocols.votes import LATTICE

_LEAST_SIGMA, _MOST_SIGMA = 2.0**-6, 2.0**20
_BISECTIONS = 60
# Without the ceiling of weights, which is for equal, independent voters.
_NO_CEILING = 1e9


@dataclass(frozen=True, kw_only=True)
class RecordVotesPlan:
    """What is chosen for a study of record votes before its noise is worked out."""

    name: str
    classes: int
    unit: str
    population: int
    queries: QueryMap
    rule: str
    level: Confidentiality
    quorum: int


def record_study(
    plan: RecordVotesPlan,
    *,
    names: Sequence[str],
    epsilon: Float64[ndarray, " seats"],
    delta: Float64[ndarray, " seats"],
) -> Study:
    """The study of these seats, each with its budget: weights by the plan's rule (mean 1), and the least sigma at which
    each budget affords the one batch.

    Raises InvalidInput where a budget affords none at any sigma, and as Study does.
    """
    units = plan.level.units or LATTICE
    records = RecordVotes(
        queries=plan.queries.queries,
        votes=plan.queries.votes,
        queries_sha256=plan.queries.digest,
        population=plan.population,
    )
    changed = records.cells_changed(plan.unit, classes=plan.classes)
    lattice = plan.level.lattice(quorum=plan.quorum, classes=changed)
    mechanism = GNMax(sigma=16.0).on_lattice(lattice)
    account = default_accountant(mechanism, "histogram")
    weight = weights(
        plan.rule,
        Planned(
            accountant=account,
            mechanism=mechanism,
            epsilon=epsilon,
            delta=delta,
            sensitivity_per_weight=1,
            sigma=_NO_CEILING,
            view="histogram",
            classes=plan.classes,
            query_limit=1,
            answer_rate=1.0,
        ),
        units=units,
    )
    rows = zip(names, epsilon.tolist(), delta.tolist(), weight.tolist(), strict=True)

    def at(sigma: float) -> Study:
        return replace(study, mechanism=GNMax(sigma=sigma))

    study = Study(
        name=plan.name,
        classes=plan.classes,
        mechanism=GNMax(sigma=_MOST_SIGMA),
        unit=plan.unit,
        view="histogram",
        accountant_name=account.name,
        teachers=1,
        records=records,
        query_limit=records.queries,
        batch_limit=records.queries,
        answer_rate=1.0,
        stop="first-exhausted",
        quorum=plan.quorum,
        participation_name="all",
        confidentiality=plan.level,
        roster=tuple(Seat(party=p, epsilon=e, delta=d, weight=w, rate=1.0) for p, e, d, w in rows),
    )
    return at(_least(lambda sigma: _all_afford(at(sigma))))


def _all_afford(study: Study) -> bool:
    unspent = np.zeros(len(study.roster), dtype=np.int64)
    return bool((study.budgets.affordable(unspent, limit=1) >= 1).all())


def _least(affords: Callable[[float], bool]) -> float:
    """The least sigma that is affordable, within a part in 2^50; found by bisection, from above."""
    low, high = _LEAST_SIGMA, _MOST_SIGMA
    if not affords(high):
        raise InvalidInput(f"a budget affords no vote even with noise of {high:g} votes; allowed: larger budgets")
    for _ in range(_BISECTIONS):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if affords(middle) else (middle, high)
    return high
