"""Individualized PATE by weighting: how much each party's vote counts (Boenisch et al. 2023, section 4).

A rule gives weights of mean 1, so that sigma and the threshold keep their meaning, in whole multiples of
1/LATTICE votes, rounded DOWN (the rounded weight is what is charged).

- uniform: every vote weighs one; the smallest budget binds everyone.
- proportional: to epsilon (Individualized PATE's heuristic). Assigned party by party: the published code pairs
  sorted unique weights with sorted budgets, which misassigns them where group shares differ.
- exhaustive: the largest weight that each party's own cap allows for the same planned number of answers, so that
  all budgets run out together (docs/explanation/mathematics.md, section 4.1).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from protocols.bounds.rdp import check_budget
from protocols.budgets.accountant import Accountant
from protocols.budgets.filter import affordable_queries, noise_reserve
from protocols.errors import InvalidInput
from protocols.mechanisms import Mechanism, Sensitivity, View
from protocols.votes import LATTICE

RULES = ("uniform", "proportional", "exhaustive")

# Grid of weights on which affordable answers are computed and between which they are interpolated (log-log).
_GRID = np.geomspace(2.0**-14, 2.0**14, 600)
_BISECTIONS = 60
_CAP_ROUNDS = 50
# Cells of [budgets, grid, orders] held at a time.
_CHUNK = 20_000_000
# The variance of one vote for one class is at most 1/4.
_VOTE_VARIANCE = 0.25
# Relative tolerance of bisections and quotients.
_DUST = 1e-9


def weights(
    rule: str,
    *,
    accountant: Accountant,
    mechanism: Mechanism,
    epsilon: Float64[ndarray, " parties"],
    delta: Float64[ndarray, " parties"],
    sensitivity_per_weight: int,
    sigma: float,
    view: View,
    classes: int,
    query_limit: int,
    answer_rate: float,
    units: int = LATTICE,
) -> Float64[ndarray, " parties"]:
    """The weight of each vote of each party, mean 1, on the lattice of 1/units votes.

    sensitivity_per_weight: votes that one protected unit moves at weight 1 (1 for a record, teachers per party
    for a party); sigma: the label noise, in votes. Raises InvalidInput for an unknown rule or a budget out of range.
    """
    check_budget(epsilon, delta)
    if rule == "uniform":
        return np.ones(len(epsilon))
    if rule == "proportional":
        return on_lattice(epsilon / epsilon.mean(), units=units)
    if rule != "exhaustive":
        raise InvalidInput(f"weights is {rule!r}; allowed: {', '.join(RULES)}")
    budgets, member, sizes = np.unique(np.stack([epsilon, delta]), axis=1, return_inverse=True, return_counts=True)
    reserve = noise_reserve(
        mechanism,
        epsilon=budgets[0],
        view=view,
        classes=classes,
        query_limit=query_limit,
        total_weight=float(len(epsilon)),
    )
    left = np.maximum(budgets[1] - reserve, np.finfo(float).tiny)
    caps = accountant.affords(budgets[0], left)
    moved = Sensitivity.always(sensitivity_per_weight * _GRID)
    cost = accountant.query_cost(mechanism, moved, view=view, classes=classes)
    queries = np.empty((len(sizes), len(_GRID)))
    step = max(1, _CHUNK // cost.ask.size)
    for start in range(0, len(sizes), step):
        part = caps[start : start + step, None, :]
        queries[start : start + step] = affordable_queries(part, cost, answer_rate=answer_rate).max(axis=2)
    if (queries <= 0).any():
        worst = int((queries <= 0).any(axis=1).argmax())
        raise InvalidInput(
            f"epsilon {budgets[0, worst]:g} cannot be guaranteed at delta {budgets[1, worst]:g}; "
            "allowed: a larger epsilon or delta"
        )
    return on_lattice(_exhausting(queries, sizes, sigma=sigma)[member], units=units)


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
    share = np.clip((y0 - log_count) / (y0 - y1), 0.0, 1.0)
    return np.exp(log_grid[right - 1] + share * (log_grid[right] - log_grid[right - 1]))
