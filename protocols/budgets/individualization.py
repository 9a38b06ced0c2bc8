"""Individualized PATE by weighting: how much each party's vote counts (Boenisch et al. 2023, section 4).

A rule gives weights of mean 1, so that sigma and the threshold keep their meaning, in whole multiples of
1/LATTICE votes, rounded DOWN (the rounded weight is what is charged).

- uniform: every vote weighs one; the smallest budget binds everyone.
- proportional: to epsilon (Individualized PATE's heuristic). Assigned party by party: the published code pairs
  sorted unique weights with sorted budgets, which misassigns them where group shares differ.
- exhaustive: the largest weight that each party's own cap allows for the same planned number of answers, so that
  all budgets run out together (docs/explanation/mathematics.md, section 4.1).

Another distribution may register more, see WEIGHT_RULES and docs/how-to/add-a-part.md.

Rates of taking part, and the weight of a vote, at which all budgets of a vanishing study run out together.

Vanishing (Boenisch et al. 2023, Appendix B, C) spends small budgets on fewer queries instead of smaller votes. Votes
are scaled up so that the nominal total weight, the sum of weight times rate, stays the number of votes: threshold and
noise keep their meaning, and a vote that enters costs more (s = scale).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from protocols.budgets.participation import Pattern, rates_for
from protocols.budgets.planned import Planned
from protocols.errors import InvalidInput
from protocols.mechanisms import Sensitivity
from protocols.plugins import Parts
from protocols.votes import LATTICE

# Grid of weights on which affordable answers are computed and between which they are interpolated (log-log).
_GRID = np.geomspace(2.0**-14, 2.0**14, 600)
# The rule of weights where none is named.
USUAL_RULE: Final = "exhaustive"
_BISECTIONS = 60
_CAP_ROUNDS = 50
# The variance of one vote for one class is at most 1/4.
_VOTE_VARIANCE = 0.25
# Relative tolerance of bisections and quotients.
_DUST = 1e-9
# A quotient by it is finite.
_LEAST_FALL = 1e-300


def weights(rule: str, planned: Planned, *, units: int = LATTICE) -> Float64[ndarray, " parties"]:
    """The weight of each vote of each party, mean 1, on the lattice of 1/units votes.

    Raises InvalidInput for an unknown rule, a budget that affords nothing, and a plugin's weights of another mean.
    """
    found = WEIGHT_RULES[rule].weigh(planned)
    if found.shape != planned.epsilon.shape or not ((found > 0).all() and abs(found.mean() - 1) < _DUST):
        raise InvalidInput(
            f"weight rule {rule!r} gives {found.shape} weights of mean {found.mean():g}; allowed: one per party, "
            "each above 0, with mean 1"
        )
    return on_lattice(found, units=units)


@dataclass(frozen=True)
class WeightRule:
    """words: what a report says of the rule; weigh: the weights, > 0 and of mean 1, before they are rounded."""

    words: str
    weigh: Callable[[Planned], Float64[ndarray, " parties"]]


def _uniform(planned: Planned) -> Float64[ndarray, " parties"]:
    return np.ones(len(planned.epsilon))


def _proportional(planned: Planned) -> Float64[ndarray, " parties"]:
    return planned.epsilon / planned.epsilon.mean()


def _exhaustive(planned: Planned) -> Float64[ndarray, " parties"]:
    budgets = planned.distinct(total_weight=float(len(planned.epsilon)))
    tried = planned.sensitivity_per_weight * _GRID
    queries = budgets.queries(Sensitivity.always(tried, delta_squared=planned.delta_squared))
    weight = _exhausting(queries, budgets.sizes, sigma=planned.sigma)
    # Exact composition gains a little more for small budgets; the gain hardly changes with the weight.
    gain = budgets.gain(planned.sensitivity_per_weight * weight)
    if (gain != gain[0]).any():
        weight = _exhausting(queries * gain[:, None], budgets.sizes, sigma=planned.sigma)
    return weight[budgets.member]


def _check(name: str, loaded: object) -> WeightRule:
    if not isinstance(loaded, WeightRule):
        raise InvalidInput(f"it is {loaded!r}; allowed: a WeightRule")
    return loaded


WEIGHT_RULES: Final = Parts(
    "weight rule",
    {
        "uniform": WeightRule("every vote weighs 1, so the smallest budget binds everyone", _uniform),
        "proportional": WeightRule("a vote weighs in proportion to its party's ε, mean 1", _proportional),
        "exhaustive": WeightRule(
            "a vote weighs as much as its party's own cap allows, mean 1, so that all budgets run out together if "
            "answers come at the planned rate",
            _exhaustive,
        ),
    },
    group="conclave.weight_rules",
    check=_check,
)


def on_lattice(weight: Float64[ndarray, " parties"], *, units: int) -> Float64[ndarray, " parties"]:
    """Weights rounded down to whole multiples of 1/units votes. Raises InvalidInput if one becomes zero.

    A weight that misses a multiple only by rounding error counts as that multiple; the rounded weight is charged.
    """
    rounded = np.floor(weight * units * (1 + _DUST)) / units
    if (rounded <= 0).any():
        raise InvalidInput(f"weight {weight.min():g} is too small; allowed: at least {1 / units:g} votes")
    return rounded


def _exhausting(
    queries: Float64[ndarray, "budgets grid"], sizes: ndarray, *, sigma: float
) -> Float64[ndarray, " budgets"]:
    """Weights of mean 1 at which every budget affords the same number of queries, except for a ceiling.

    queries: what each budget affords at each weight of the grid, decreasing along the grid.

    The ceiling is where more weight stops helping: a larger weight w of one voter improves the ratio of signal to
    noise only while w v sum(w) < sigma^2 + v sum(w^2), for equal, independent voters of variance v
    (docs/explanation/mathematics.md, section 4.2); v is taken as its largest value, 1/4.
    """
    log_queries, log_grid = np.log(queries), np.log(_GRID)
    parties = sizes.sum()
    ceiling = np.inf
    weight = np.ones(len(queries))
    for _ in range(_CAP_ROUNDS):
        low, high = log_queries.min(), log_queries.max()
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            weight = np.minimum(_weight_for(middle, log_queries, log_grid), ceiling)
            # More queries mean smaller weights.
            low, high = (middle, high) if weight @ sizes > parties else (low, middle)
        total, squares = weight @ sizes, (weight * weight) @ sizes
        helps = (sigma * sigma + _VOTE_VARIANCE * squares) / (_VOTE_VARIANCE * total)
        if weight.max() <= helps * (1 + 1e-9):
            break
        ceiling = helps
    return weight * (parties / (weight @ sizes))


def _weight_for(
    log_count: float, log_queries: Float64[ndarray, "budgets grid"], log_grid: Float64[ndarray, " grid"]
) -> Float64[ndarray, " budgets"]:
    """The weight at which each budget affords exp(log_count) queries, interpolated; clamped to the grid."""
    right = np.clip((log_queries > log_count).sum(axis=1), 1, len(log_grid) - 1)
    row = np.arange(len(right))
    y0, y1 = log_queries[row, right - 1], log_queries[row, right]
    # Where both grid points afford as many, the weight is at one of them.
    share = np.clip((y0 - log_count) / np.maximum(y0 - y1, _LEAST_FALL), 0.0, 1.0)
    return np.exp(log_grid[right - 1] + share * (log_grid[right] - log_grid[right - 1]))


# Rates between which affordable answers are interpolated for secret coins.
_RATES = np.geomspace(2.0**-9, 1.0, 28)
_ROUNDS = 12
# The iteration ends when the weight changes by less than this share: the rates then fit it as well.
_SETTLED = 1e-3


def vanishing(pattern: Pattern, planned: Planned) -> tuple[Float64[ndarray, " parties"], float]:
    """The rate of each party and the one weight of all votes, for pattern "periodic" or "secret".

    The largest budget takes part in everything. Raises InvalidInput for a budget that affords nothing, or so small
    a one that its rate would be below 1/512 with secret coins.
    """
    budgets = planned.distinct(total_weight=2.0 * planned.sensitivity_per_weight * len(planned.epsilon))
    tried = np.ones(1) if pattern == "periodic" else _RATES
    rates, weight = np.ones(len(budgets.epsilon)), 1.0
    for _ in range(_ROUNDS):
        moved = np.full(len(tried), planned.sensitivity_per_weight * weight)
        queries = budgets.queries(Sensitivity(moved, tried, delta_squared=planned.delta_squared))
        rates = rates_for(queries[:, 0]) if pattern == "periodic" else _secret_rates(queries, budgets.epsilon)
        scale = float(on_lattice(np.array([1.0 / rates[budgets.member].mean()]), units=LATTICE)[0])
        settled = abs(scale / weight - 1) < _SETTLED
        weight = scale
        if settled:
            break
    return rates[budgets.member], weight


def _secret_rates(
    queries: Float64[ndarray, "budgets rates"], epsilon: Float64[ndarray, " budgets"]
) -> Float64[ndarray, " budgets"]:
    """The rate at which each budget affords as many queries as the largest does at rate 1 (log-log interpolation)."""
    wanted = np.log(queries[:, -1].max())
    logs = np.log(queries)
    if (logs[:, 0] < wanted).any():
        worst = int((logs[:, 0] < wanted).argmax())
        raise InvalidInput(
            f"epsilon {epsilon[worst]:g} is too small beside {epsilon.max():g} for secret coins; allowed: budgets for "
            f"which a rate of at least {_RATES[0]:g} is enough"
        )
    # Affordable queries fall as the rate grows.
    enough = (logs >= wanted - 1e-12).sum(axis=1)
    right = np.clip(enough, 1, len(_RATES) - 1)
    row = np.arange(len(right))
    high, low = logs[row, right - 1], logs[row, right]
    share = np.clip((high - wanted) / np.maximum(high - low, 1e-12), 0.0, 1.0)
    log_rates = np.log(_RATES)
    rate = np.exp(log_rates[right - 1] + share * (log_rates[right] - log_rates[right - 1]))
    rate = np.where(enough == len(_RATES), 1.0, rate)
    return np.maximum(np.floor(rate * LATTICE), 1.0) / LATTICE
