"""What is planned of a study before its weights or rates are solved, and how many queries each budget then buys.

The least noise at which every budget affords one query: one equation in sigma, solved without building a study.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, log

import numpy as np
import scipy
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.bounds.label_only import ORDERS, label_rdp
from protocols.bounds.label_pairs import LabelPairs, PairKind
from protocols.bounds.rdp import check_budget
from protocols.budgets.accountant import Accountant
from protocols.budgets.filter import PlannedQueries, affordable_queries, cap_nano, noise_reserve, spend_nano
from protocols.errors import InvalidInput
from protocols.mechanisms import Mechanism, Sensitivity, View
from protocols.plural import at_most

# The fewest queries of which a gain is worth knowing, and the most that are counted for it.
_LEAST_GUIDED, _MOST_GUIDED = 10.0, 10**6
# Cells of [budgets, units, orders] held at a time.
_CHUNK = 20_000_000


@dataclass(frozen=True, eq=False)
class Budgets:
    """One (epsilon, delta) per party, and the parties' names."""

    names: tuple[str, ...]
    epsilon: Float64[ndarray, " parties"]
    delta: Float64[ndarray, " parties"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Planned:
    """epsilon, delta: the budget of each party; sensitivity_per_weight: votes that one protected unit moves at weight
    1 (1 for a record, teachers per party for a party); delta_squared: see Sensitivity; sigma: the noise of the label,
    in votes, for one vote of each party; answer_rate: share of queries that is answered. Raises InvalidInput for a
    budget out of range."""

    accountant: Accountant
    mechanism: Mechanism
    epsilon: Float64[ndarray, " parties"]
    delta: Float64[ndarray, " parties"]
    sensitivity_per_weight: int
    delta_squared: int | float
    sigma: float
    view: View
    classes: int
    query_limit: int
    answer_rate: float

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)

    def distinct(self, *, total_weight: float) -> DistinctBudgets:
        """The budgets, each once; what float64 noise needs of delta at this total weight is set aside."""
        budgets, member, sizes = np.unique(
            np.stack([self.epsilon, self.delta]), axis=1, return_inverse=True, return_counts=True
        )
        reserve = noise_reserve(
            self.mechanism,
            epsilon=budgets[0],
            view=self.view,
            classes=self.classes,
            query_limit=self.query_limit,
            total_weight=total_weight,
        )
        left = np.maximum(budgets[1] - reserve, np.finfo(float).tiny)
        caps = self.accountant.affords(budgets[0], left)
        return DistinctBudgets(self, budgets[0], budgets[1], member, sizes, caps, left)


@dataclass(frozen=True, eq=False)
class DistinctBudgets:
    """member: which of them each party has; sizes: how many parties have each; caps: the spend that each allows; left:
    of delta, after what float64 noise needs.
    """

    planned: Planned
    epsilon: Float64[ndarray, " budgets"]
    delta: Float64[ndarray, " budgets"]
    member: Int64[ndarray, " parties"]
    sizes: Int64[ndarray, " budgets"]
    caps: Float64[ndarray, "budgets orders"]
    left: Float64[ndarray, " budgets"]

    def queries(self, units: Sensitivity) -> Float64[ndarray, "budgets units"]:
        """Queries that each budget buys for each unit, at its best order. Raises InvalidInput where one buys none."""
        planned = self.planned
        cost = planned.accountant.query_cost(planned.mechanism, units, view=planned.view, classes=planned.classes)
        queries = np.empty((len(self.sizes), len(cost.ask)))
        step = max(1, _CHUNK // cost.ask.size)
        for start in range(0, len(self.sizes), step):
            part = self.caps[start : start + step, None, :]
            queries[start : start + step] = affordable_queries(part, cost, answer_rate=planned.answer_rate).max(axis=2)
        if (queries <= 0).any():
            worst = int((queries <= 0).any(axis=1).argmax())
            raise InvalidInput(
                f"epsilon {at_most(self.epsilon[worst])} cannot be guaranteed at delta {at_most(self.delta[worst])}; "
                "allowed: a larger epsilon or delta"
            )
        return queries

    def gain(self, votes: Float64[ndarray, " budgets"]) -> Float64[ndarray, " budgets"]:
        """About how many times as many queries each budget buys as `queries` says, for units that move `votes`.

        1 unless the number of queries is planned. A guide: the gain of a bit, which is nearly that of a label and takes
        a twentieth of the time.
        """
        planned = self.planned
        moved = Sensitivity.always(votes, delta_squared=planned.delta_squared)
        pairs = planned.accountant.pairs(planned.mechanism, moved, view=planned.view, classes=planned.classes)
        if pairs is None:
            return np.ones_like(votes)
        cost = label_rdp(pairs.shifts[:, None], ORDERS[None, :], classes=2)
        converted = (np.maximum(self.caps, 0.0) / cost).max(axis=1)
        bits = PlannedQueries(LabelPairs(PairKind(2), pairs.shifts), cost, _MOST_GUIDED)
        composed = bits.affordable(self.epsilon, self.left)
        return np.where(converted < _LEAST_GUIDED, 1.0, composed / np.maximum(converted, 1.0))


_PRECISION = 1e-12
# The logarithm of what is solved for must be finite.
_LEAST, _MOST = 1e-280, 1e280


def least_sigma(
    planned: Planned,
    mechanism: Callable[[float], Mechanism],
    *,
    weights: Float64[ndarray, " parties"],
    low: float,
    high: float,
) -> float:
    """The least sigma in [low, high], to a part in 10^12 from above, at which each party's budget affords one query.

    mechanism(sigma): what is charged, answered or not, in the place of that planned; weights: what one protected unit
    moves, see Sensitivity. Raises InvalidInput if a budget affords none even at `high`.
    """
    each, whose = np.unique(np.stack([planned.epsilon, planned.delta, weights]), axis=1, return_index=True)
    reserve = noise_reserve(
        mechanism(high),
        epsilon=each[0],
        view=planned.view,
        classes=planned.classes,
        query_limit=planned.query_limit,
        total_weight=float(weights.sum()),
    )
    caps = planned.accountant.affords(each[0], np.maximum(each[1] - reserve, np.finfo(float).tiny))
    units = Sensitivity.always(each[2], delta_squared=planned.delta_squared)

    row = np.arange(each.shape[1])

    def left(sigma: float) -> Float64[ndarray, " distinct"]:
        """Each cap over the charge of one query, in nano-units and at the order that the filter chooses."""
        cost = planned.accountant.query_cost(mechanism(sigma), units, view=planned.view, classes=planned.classes)
        best = affordable_queries(caps, cost, answer_rate=1.0).argmax(axis=1)
        charge = spend_nano(cost.ask[row, best] + cost.answer[row, best])
        return np.clip(cap_nano(caps[row, best]) / charge, _LEAST, _MOST)

    if (shares := left(high)).min() < 1:
        worst = int(whose[shares.argmin()])
        raise InvalidInput(
            f"epsilon {at_most(planned.epsilon[worst])} at delta {at_most(planned.delta[worst])} affords no vote even "
            f"with noise of {high:g} votes; allowed: larger budgets"
        )
    if left(low).min() >= 1:
        return low
    # Nearly a line, of slope 2: the cost of Gaussian noise falls with its variance.
    solved = scipy.optimize.brentq(
        lambda log_sigma: log(left(exp(log_sigma)).min()), log(low), log(high), xtol=_PRECISION, rtol=1e-15
    )
    sigma = exp(solved)
    while left(sigma).min() < 1:  # the root is approached from both sides
        sigma *= 1 + _PRECISION
    return sigma
