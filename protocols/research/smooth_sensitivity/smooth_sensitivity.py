"""Smooth sensitivity of GNMax's data-dependent RDP (Papernot et al. 2018, Appendix B.4).

f(n) = sum_i answered_i curve(q(n_i)) is the data-dependent cost of Theorem 6. It depends on votes, so publishing it
takes noise (gnss.py), and the noise needs a bound on how much f changes when one unit's votes do, here and nearby:
SS(beta) = max_d e^(-beta d) sum_i answered_i A_i(d), where A_i(d) bounds the change of query i's cost over all votes
at distance d (Algorithms 3-5). The sum over queries comes first: one unit votes in all of them.

Adjacency is replace-one: one unit moves its vote, or abstains. The algorithms are right where conditions C5 and C6
hold (gnmax_curve.py); where they do not, everything here raises InvalidInput. Derivation, unequal weights, and what
is not covered: docs/explanation/smooth-sensitivity.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.bounds.rdp import check_orders
from protocols.errors import InvalidInput
from protocols.noise import check_sigma
from protocols.research.published.private import Private
from protocols.research.smooth_sensitivity.gnmax_curve import CriticalPoints, GNMaxCurve, gnmax_curve
from protocols.research.smooth_sensitivity.vote_distance import WHOLE, SortedHistograms

__all__ = ["VoteSetting", "critical_points", "distance_bounds", "gnmax_rdp", "smooth_sensitivity"]

# From this distance on, every query's bound is the plateau: looser but still smooth, and e^(-beta d) is negligible.
_FARTHEST = 20_000
# Histogram entries held at a time: 16 MB of float64 per array.
_CHUNK = 2_000_000


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class VoteSetting:
    """What is public about the votes, fixed before any was cast.

    sigma: label noise in votes, > 0; order > 1; classes >= 2; weights: the most that each unit casts in one query,
    votes, > 0; sensitivity: the weight of the unit whose cost f is, votes, > 0.
    Equal weights w: every unit casts one whole vote of weight w, or abstains. Unequal weights: votes may be split.
    """

    sigma: float | int
    order: float | int
    classes: int
    weights: Float64[ndarray, " units"]
    sensitivity: float | int

    def __post_init__(self) -> None:
        check_sigma("sigma", float(self.sigma))
        check_orders(np.array([float(self.order)]))
        if self.classes < 2:
            raise InvalidInput(f"classes = {self.classes}; allowed: 2 or more")
        if self.weights.size == 0 or not (np.isfinite(self.weights).all() and (self.weights > 0).all()):
            raise InvalidInput(f"weights are {self.weights}; allowed: at least one, finite and > 0")
        if not (np.isfinite(self.sensitivity) and self.sensitivity > 0):
            raise InvalidInput(f"sensitivity is {self.sensitivity}; allowed: finite and > 0, in votes")

    @property
    def step(self) -> float:
        """The most that one unit can move, in votes: one step of distance."""
        return float(self.weights.max())

    @property
    def whole_votes(self) -> bool:
        """Whether all weights are equal, so that a step moves exactly one vote."""
        return bool((self.weights == self.weights[0]).all())

    @property
    def curve(self) -> GNMaxCurve:
        noise, step = float(self.sigma / self.sensitivity), float(self.step / self.sigma)
        return gnmax_curve(noise=noise, step=step, order=float(self.order), classes=self.classes)


def critical_points(setting: VoteSetting) -> CriticalPoints:
    """q0, q1, the plateau, and whether C5 and C6 hold; refuses nothing. Data-independent."""
    return setting.curve.points


def gnmax_rdp(
    counts: Float64[ndarray, "queries classes"], setting: VoteSetting, *, answered: Float64[ndarray, " answers"]
) -> Private[float]:
    """f = sum_i answered_i curve(q_i): the RDP whose smooth sensitivity is computed here (Theorem 6).

    Arguments and refusals as in `distance_bounds`.
    """
    curve = _checked(counts, setting, answered)
    total = 0.0
    for rows, weight in _distinct(counts, setting, answered):
        total += float(weight @ curve.cost(rows.log_q(np.zeros(len(weight)), climb=True)))
    return Private(total)


def distance_bounds(
    counts: Float64[ndarray, "queries classes"], setting: VoteSetting, *, answered: Float64[ndarray, " answers"]
) -> Private[Float64[ndarray, " distances"]]:
    """sum_i answered_i A_i(d), d = 0, 1, ...: the local sensitivity of f within distance d (Algorithms 3-5).

    counts: weighted votes, >= 0, each row's total at most that of the weights. answered: >= 0 and PUBLIC, 1 for an
    answered query and 0 for another. (The authors put the probability of an answer there: a function of the votes,
    whose own change nothing here bounds.) d runs to the number of units, at most 20,000. Does not decrease in d.

    Raises InvalidInput, also where condition C5 or C6 fails.
    """
    curve = _checked(counts, setting, answered)
    distances = min(len(setting.weights), _FARTHEST) + 1
    bounds, plateaus = np.zeros(distances), np.zeros(distances + 1)
    for rows, weight in _distinct(counts, setting, answered):
        log_q = rows.log_q(np.zeros(len(weight)), climb=True)
        climbs, descends = log_q < curve.points.log_q1, log_q > curve.points.log_q0
        plateaus[0] += weight[~climbs & ~descends].sum()
        for side, climb in ((climbs, True), (descends, False)):
            part, share = rows.where(side), weight[side]
            # Algorithm 4: A(d) follows the extreme q at distance d until that enters [q1, q0].
            steps = part.steps_to_plateau(curve.points, climb=climb, most=distances)
            plateaus += np.bincount(steps, weights=share, minlength=distances + 1)
            for row, d in _pairs(steps, size=max(1, _CHUNK // setting.classes)):
                extreme = part.where(row).log_q(d.astype(np.float64), climb=climb)
                local = curve.climb(extreme) if climb else curve.descent(extreme)
                bounds += np.bincount(d, weights=share[row] * local, minlength=distances)
    bounds += curve.points.plateau * np.cumsum(plateaus)[:-1]
    if len(setting.weights) > _FARTHEST:
        # The last entry stands for every greater distance.
        bounds[-1] = max(bounds[-1], curve.points.plateau * answered.sum())
    return Private(bounds)


def smooth_sensitivity(
    bounds: Private[Float64[ndarray, " distances"]], *, beta: float | Float64[ndarray, " betas"]
) -> Private[Float64[ndarray, " betas"]]:
    """SS = max_d e^(-beta d) bounds(d) for each beta > 0 (Nissim, Raskhodnikova, Smith 2007, Def. 2.2)."""
    betas = np.atleast_1d(np.asarray(beta, dtype=np.float64))
    if not (np.isfinite(betas).all() and (betas > 0).all()):
        raise InvalidInput(f"beta is {beta}; allowed: finite and > 0")

    def discounted_maximum(bound: Float64[ndarray, " distances"]) -> Float64[ndarray, " betas"]:
        d = np.arange(len(bound))
        return np.array([(np.exp(-one * d) * bound).max() for one in betas])

    return bounds.map(discounted_maximum)


def _distinct(
    counts: Float64[ndarray, "queries classes"], setting: VoteSetting, answered: Float64[ndarray, " answers"]
) -> Iterator[tuple[SortedHistograms, Float64[ndarray, " rows"]]]:
    """The answered queries' histograms in chunks, equal ones once, and what each counts for."""
    chosen = np.flatnonzero(answered > 0)
    size = max(1, _CHUNK // setting.classes)
    for start in range(0, len(chosen), size):
        rows = chosen[start : start + size]
        ordered = np.sort(counts[rows] / setting.step, axis=1)[:, ::-1]
        if setting.whole_votes:
            ordered = np.rint(ordered)
        distinct, member = np.unique(ordered, axis=0, return_inverse=True)
        weight = np.bincount(member.ravel(), weights=answered[rows], minlength=len(distinct))
        width = max(1, int(np.any(distinct[:, 1:] > 0, axis=0).sum()))
        histograms = SortedHistograms(
            top=distinct[:, 0],
            others=distinct[:, 1 : 1 + width],
            empty=setting.classes - 1 - width,
            whole=setting.whole_votes,
            sigma=float(setting.sigma / setting.step),
        )
        yield histograms, weight


def _pairs(
    steps: Int64[ndarray, " rows"], *, size: int
) -> Iterator[tuple[Int64[ndarray, " pairs"], Int64[ndarray, " pairs"]]]:
    """(row, d) for every d < steps[row], in chunks of at most `size` pairs."""
    ends = np.cumsum(steps)
    starts = ends - steps
    total = int(steps.sum())
    for start in range(0, total, size):
        index = np.arange(start, min(start + size, total))
        row = np.searchsorted(ends, index, side="right")
        yield row, index - starts[row]


def _checked(
    counts: Float64[ndarray, "queries classes"], setting: VoteSetting, answered: Float64[ndarray, " answers"]
) -> GNMaxCurve:
    """The setting's curve, if C5 and C6 hold and the arguments are in range. Raises InvalidInput."""
    curve = setting.curve
    for name, holds in (("C5", curve.points.c5), ("C6", curve.points.c6)):
        if not holds:
            raise InvalidInput(
                f"condition {name} (Papernot et al. 2018, B.4.2) fails at sigma {setting.sigma:g}, order "
                f"{setting.order:g}, {setting.classes} classes; allowed: a larger sigma or a smaller order"
            )
    if counts.shape[1] != setting.classes:
        raise InvalidInput(f"counts of {counts.shape[1]} classes; allowed: {setting.classes}, as in the setting")
    if answered.shape != counts.shape[:1]:
        raise InvalidInput(f"answered has {len(answered)} entries for {len(counts)} queries; allowed: one each")
    if not (np.isfinite(answered).all() and (answered >= 0).all()):
        raise InvalidInput("answered has an entry that is negative or not finite; allowed: finite and >= 0")
    if not (np.isfinite(counts).all() and (counts >= 0).all()):
        raise InvalidInput("counts have an entry that is negative or not finite; allowed: finite and >= 0")
    total = float(setting.weights.sum())
    if (counts.sum(axis=1) > total * (1 + WHOLE)).any():
        raise InvalidInput(f"a query has more votes than all weights together, {total:g}; allowed: at most that")
    scaled = counts / setting.step
    if setting.whole_votes and (np.abs(scaled - np.rint(scaled)) > WHOLE * np.maximum(scaled, 1)).any():
        raise InvalidInput(
            f"counts are not whole votes of weight {setting.step:g}, which all units have; allowed: multiples of it"
        )
    return curve
