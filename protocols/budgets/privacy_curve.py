"""delta as a function of epsilon: what a fixed number of queries, or the cap of a filter, guarantees, for other tools.

Every curve is an upper bound, on a grid of epsilon from 0 on; adjacency replace-one. As a privacy-loss distribution
(dp_accounting) it dominates the curve and has its deltas at the grid (docs/explanation/exact-composition.md, section
7).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final  # Any: the values of a JSON object

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from protocols.bounds.gaussian import gdp_delta
from protocols.bounds.label_pairs import weights_of
from protocols.budgets.accountant import Accountant
from protocols.budgets.filter import BudgetFilter, PlannedQueries
from protocols.errors import InvalidInput
from protocols.mechanisms import Mechanism, Sensitivity, View

SPACING: Final = 0.005
LARGEST: Final = 30.0
# Below this a curve ends: what is left counts as an unbounded loss.
_LEAST: Final = 1e-13


@dataclass(frozen=True, eq=False)
class PrivacyCurve:
    """epsilon: 0, SPACING, 2 SPACING, ...; delta: upper bounds at these, non-increasing, in [0, 1]."""

    epsilon: Float64[ndarray, " points"]
    delta: Float64[ndarray, " points"]

    def epsilon_at(self, delta: float) -> float:
        """The least epsilon of the curve at which (epsilon, delta)-DP holds: on the chord in e^epsilon.

        Raises InvalidInput where the curve ends above this delta.
        """
        if not delta >= self.delta[-1]:
            raise InvalidInput(f"delta is {delta}; allowed: at least {self.delta[-1]:.3g}, where the curve ends")
        if delta >= self.delta[0]:
            return 0.0
        right = int(np.searchsorted(-self.delta, -delta, side="left"))
        ratios = np.exp(self.epsilon[right - 1 : right + 1])
        share = (self.delta[right - 1] - delta) / (self.delta[right - 1] - self.delta[right])
        return float(np.log(ratios[0] + share * (ratios[1] - ratios[0])))

    def to_json(self) -> dict[str, Any]:
        """The curve as JSON values."""
        return {"epsilon": self.epsilon.round(9).tolist(), "delta": self.delta.tolist()}

    def losses(self) -> tuple[dict[int, float], float]:
        """The law of a privacy loss with this curve, in multiples of SPACING, and the probability of an unbounded one.

        The curve bounds both directions, so at -epsilon it is 1 - e^-epsilon + e^-epsilon delta(epsilon).
        """
        ratios = np.exp(self.epsilon)
        below = 1.0 - 1.0 / ratios + self.delta / ratios
        curve = np.concatenate([below[:0:-1], self.delta])
        knots = np.exp(np.concatenate([-self.epsilon[:0:-1], self.epsilon]))
        weights, certain = weights_of(curve[None], knots)
        first = 1 - len(self.epsilon)
        mass = {first + at: float(p) for at, p in enumerate(weights[0]) if p > 0}
        # Chords of a curve that bends the wrong way by rounding; what is missing is an unbounded loss.
        return mass, max(float(certain[0]), 1.0 - sum(mass.values()))


def privacy_curve(budgets: BudgetFilter, seat: int, *, noise_distance: float) -> PrivacyCurve:
    """The curve of what one seat's cap guarantees, with (1 + e^epsilon) noise_distance for rounded noise.

    noise_distance: total variation between all that is released and what ideal noise releases.
    """
    cap, epsilon = int(budgets.cap[seat]), _grid()
    if budgets.planned is not None:
        delta = budgets.planned.of(np.array([seat])).delta(cap, epsilon)
    else:
        delta = _converted(budgets.spend(budgets.cap)[seat : seat + 1], budgets.order[seat : seat + 1], epsilon)
    return _curve(epsilon, np.minimum(delta + (1.0 + np.exp(epsilon)) * noise_distance, 1.0))


def curve_of_queries(
    account: Accountant, mechanism: Mechanism, moved: Sensitivity, *, queries: int, view: View, classes: int
) -> PrivacyCurve:
    """The curve of a number of queries that was fixed beforehand, all answered, for one unit; of ideal noise."""
    epsilon = _grid()
    pairs = account.pairs(mechanism, moved, view=view, classes=classes)
    cost = account.query_cost(mechanism, moved, view=view, classes=classes)
    if pairs is not None:
        return _curve(epsilon, PlannedQueries(pairs, cost.ask, queries).delta(queries, epsilon))
    return _curve(epsilon, _converted(queries * (cost.ask + cost.answer)[0], account.orders, epsilon))


def _grid() -> Float64[ndarray, " points"]:
    return np.arange(round(LARGEST / SPACING) + 1) * SPACING


def _converted(
    spend: Float64[ndarray, " orders"], orders: Float64[ndarray, " orders"], epsilon: Float64[ndarray, " points"]
) -> Float64[ndarray, " points"]:
    """delta of a spend at each order, the least (Canonne, Kamath, Steinke 2020, Prop. 12), or of mu squared."""
    if np.isnan(orders).any():
        return gdp_delta(np.full_like(epsilon, np.sqrt(spend[0])), epsilon)
    exponents = (orders - 1.0) * (spend - epsilon[:, None] + np.log1p(-1.0 / orders)) - np.log(orders)
    return np.exp(np.minimum(exponents.min(axis=1), 0.0))


def _curve(epsilon: Float64[ndarray, " points"], delta: Float64[ndarray, " points"]) -> PrivacyCurve:
    """The curve up to where it stops falling, as rounding takes over; the chords below it, as delta is convex in
    e^epsilon.
    """
    end = min(int(delta.argmin()), int((delta > _LEAST).sum())) + 1
    ratios, found = np.exp(epsilon[:end]), delta[:end]
    kept: list[int] = []
    for at in range(end):
        while len(kept) > 1 and _above(ratios, found, kept[-2], kept[-1], at):
            kept.pop()
        kept.append(at)
    return PrivacyCurve(epsilon[:end], np.interp(ratios, ratios[kept], found[kept]))


def _above(
    ratios: Float64[ndarray, " points"], delta: Float64[ndarray, " points"], left: int, middle: int, right: int
) -> bool:
    """Whether the middle point lies on or above the chord of the others."""
    fall = (delta[left] - delta[right]) * (ratios[middle] - ratios[left])
    return bool((delta[left] - delta[middle]) * (ratios[right] - ratios[left]) <= fall)
