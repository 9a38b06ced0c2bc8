"""The data-dependent cost of one GNMax query as a function of q, and its critical points (Papernot et al. 2018, B.4).

q bounds the probability that GNMax's label is not the plurality. The curve is Theorem 6's bound below q0 and the
Gaussian bound from there on. One step (one unit's votes) leads from q to between B_L(q) and B_U(q). Smooth
sensitivity needs two conditions on the curve's shape, C5 and C6, which depend on noise, order and classes only.
Everything here is data-independent. Derivations: benchmarks/smooth-sensitivity.md.

How large, or how small, q can become when d units move their votes (Papernot et al. 2018, Algorithm 4).

One step moves one unit's votes: a whole vote where all units weigh the same, otherwise any part of the largest
weight. Why these moves are the extreme ones: benchmarks/smooth-sensitivity.md.

Smooth sensitivity of GNMax's data-dependent RDP (Papernot et al. 2018, Appendix B.4).

f(n) = sum_i answered_i curve(q(n_i)) is the data-dependent cost of Theorem 6. It depends on votes, so publishing it
takes noise (sanitised.py), and the noise needs a bound on how much f changes when one unit's votes do, here and nearby:
SS(beta) = max_d e^(-beta d) sum_i answered_i A_i(d), where A_i(d) bounds the change of query i's cost over all votes
at distance d (Algorithms 3-5). The sum over queries comes first: one unit votes in all of them.

Adjacency is replace-one: one unit moves its vote, or abstains. The algorithms are right where conditions C5 and C6
hold; where they do not, everything here raises InvalidInput. Derivation, unequal weights, and what
is not covered: benchmarks/smooth-sensitivity.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy
from jaxtyping import Bool, Float64, Int64
from numpy import ndarray

from protocols.bounds.rdp import check_orders
from protocols.errors import InvalidInput
from protocols.noise import check_sigma
from protocols.research.private import Private

_GRID = np.concatenate(([0.0], np.geomspace(1e-9, 1.0, 6_000)))
# A y this close to y0 counts as y0: rounding must not put a point on the lower side of a jump of the curve.
_SLACK = 1e-12


@dataclass(frozen=True)
class CriticalPoints:
    """Where the curve stops growing, and whether its shape is as the algorithms need it.

    log_q0: from q0 on the data-independent bound is used; log_q1: ln B_L(q0), one step below; plateau: the local
    sensitivity at q1, its maximum; c5: the curve does not decrease on (0, q0]; c6: nor does curve(B_U(q)) - curve(q)
    on (0, q1] (Papernot et al. 2018, Appendix B.4.2).
    """

    log_q0: float
    log_q1: float
    plateau: float
    c5: bool
    c6: bool


class GNMaxCurve:
    """RDP of one query at one order as a function of ln q, and how far a step moves q. Built by `gnmax_curve`.

    noise = sigma/s, s being the weight of the unit whose cost this is; step = (largest weight of a unit)/sigma.
    In the variable y = mu2 = noise sqrt(-ln q), Theorem 6 at Proposition 10's mu1 = y + 1 and mu2 = y reads
    e^((a-1) cost) = (1-q) ((1-q)/(1-T))^(a-1) + q e^((a-1)(2y+1)/v), v = noise^2, q = e^(-y^2/v), T = e^(-(y-1)^2/v).
    """

    def __init__(self, *, noise: float, step: float, order: float, classes: int) -> None:
        self._noise, self._order, self._v = noise, order, noise**2
        # A step changes every gap by at most twice the weight; a gap's noise has standard deviation sqrt(2) sigma.
        self._shift = np.sqrt(2.0) * step
        self._log_others = np.log(classes - 1)
        self.independent = order / self._v
        self._y0 = self._least_y()
        log_q0 = np.array([-self._y0 * self._y0 / self._v])
        log_q1 = self._lower(log_q0)
        at_q1 = self.cost(log_q1)
        plateau = np.maximum(self.independent - at_q1, at_q1 - self.cost(self._lower(log_q1)))
        c5 = self._grows()
        c6 = c5 and self._grows_faster(log_q1)
        self.points = CriticalPoints(float(log_q0[0]), float(log_q1[0]), float(plateau[0]), c5, c6)

    def cost(self, log_q: Float64[ndarray, " points"]) -> Float64[ndarray, " points"]:
        """RDP of one query: Theorem 6 below q0, the Gaussian bound from q0 on."""
        y = self._y(log_q)
        dependent = self._scaled(np.maximum(y, self._y0)) / (self._order - 1)
        below = y > self._y0 * (1 + _SLACK)
        return np.where(below, np.minimum(dependent, self.independent), self.independent)

    def climb(self, log_q: Float64[ndarray, " points"]) -> Float64[ndarray, " points"]:
        """Local sensitivity at q < q1: curve(B_U(q)) - curve(q) (Algorithm 3).

        The other term of Algorithm 3, curve(q) - curve(B_L(q)), is the same function at B_L(q), so smaller under C6.
        """
        return np.maximum(self.cost(self._upper(log_q)) - self.cost(log_q), 0.0)

    def descent(self, log_q: Float64[ndarray, " points"]) -> Float64[ndarray, " points"]:
        """Local sensitivity at q > q0: the Gaussian bound - curve(B_L(q)) (Algorithm 3)."""
        return self.independent - self.cost(self._lower(log_q))

    def _y(self, log_q: Float64[ndarray, " points"]) -> Float64[ndarray, " points"]:
        return self._noise * np.sqrt(-log_q)

    def _z(self, log_q: Float64[ndarray, " points"]) -> Float64[ndarray, " points"]:
        """z with q = (classes - 1) Phi(-z)."""
        return -scipy.special.ndtri_exp(log_q - self._log_others)

    def _lower(self, log_q: Float64[ndarray, " points"]) -> Float64[ndarray, " points"]:
        """ln B_L(q) (Papernot et al. 2018, Prop. 13)."""
        return self._log_others + scipy.special.log_ndtr(-(self._z(log_q) + self._shift))

    def _upper(self, log_q: Float64[ndarray, " points"]) -> Float64[ndarray, " points"]:
        """ln B_U(q) (Papernot et al. 2018, Prop. 13)."""
        return np.minimum(self._log_others + scipy.special.log_ndtr(-(self._z(log_q) - self._shift)), 0.0)

    def _parts(
        self, y: Float64[ndarray, " points"]
    ) -> tuple[Float64[ndarray, " points"], Float64[ndarray, " points"], Float64[ndarray, " points"]]:
        """ln q, X = ln(1-q) + (a-1) ln((1-q)/(1-T)) less its first term, and (a-1)(2y+1)/v.

        T - q = T (1 - e^(-(2y-1)/v)) keeps its digits where T and q are close.
        """
        log_q = -y * y / self._v
        t_less_q = np.exp(-((y - 1) ** 2) / self._v) * -np.expm1(-(2 * y - 1) / self._v)
        log_ratio = (1 - self._order) * np.log1p(t_less_q / np.expm1(log_q))
        return log_q, log_ratio, (self._order - 1) * (2 * y + 1) / self._v

    def _scaled(self, y: Float64[ndarray, " points"]) -> Float64[ndarray, " points"]:
        """(a - 1) times Theorem 6's bound; small values from a sum of positive terms, so that nothing cancels."""
        log_q, log_ratio, rise = self._parts(y)
        q = np.exp(log_q)
        small = (1 - q) * np.expm1(np.minimum(log_ratio, 1.0)) + q * np.expm1(np.minimum(rise, 700.0))
        large = np.logaddexp(np.log1p(-q) + log_ratio, log_q + rise)
        return np.where((small < 0.5) & (rise < 700.0), np.log1p(np.minimum(small, 1.0)), large)

    def _least_y(self) -> float:
        """y at q0: the least at which Theorem 6 is used.

        Not below max(noise + 1, order - 0.99), the authors' limit, from which on its conditions hold: order < mu1,
        and ln((y+1)/(y-1)) <= (2y-1)/v because ln(1 + 2/noise) < 2/noise. And not where it passes the Gaussian bound.
        """
        limit = (self._order - 1) * self.independent

        def excess(y: float) -> float:
            return float(self._scaled(np.array([y]))[0]) - limit

        low = float(max(self._noise + 1, self._order - 0.99))
        if excess(low) < 0:
            return low
        high = 2 * low
        while excess(high) > 0:
            high *= 2
        return float(scipy.optimize.brentq(excess, low, high, xtol=1e-15 * low, rtol=1e-15))

    def _grows(self) -> bool:
        """C5: the slope is positive on a grid, beyond the end of which both of its terms are."""
        width = self._v * np.log(self._order / (self._order - 1)) + self._noise + 2
        return bool(np.isfinite(self._log_slope(self._y0 + width * _GRID)).all())

    def _grows_faster(self, log_q1: Float64[ndarray, " one"]) -> bool:
        """C6: d curve(B_U(q))/dq >= d curve(q)/dq on a grid below q1, beyond the end of which the margin grows."""
        z1 = self._z(log_q1)[0]
        z = z1 + 20 * (z1 + 1) * _GRID
        log_q, log_u = (self._log_others + scipy.special.log_ndtr(-at) for at in (z, z - self._shift))
        slope, slope_u = self._log_slope(self._y(log_q)), self._log_slope(np.maximum(self._y(log_u), self._y0))
        margin = slope_u + _log_hazard(z - self._shift) - slope - _log_hazard(z)
        return bool((margin >= 0).all())

    def _log_slope(self, y: Float64[ndarray, " points"]) -> Float64[ndarray, " points"]:
        """ln of (a - 1) d cost/d ln q, NaN where that is not positive.

        e^((a-1) cost) times it is q times e^X ((a-1)(1-1/y) e^t/(1-T) - a/(1-q)) + (1 - (a-1)/y) e^rise, with
        t = (2y-1)/v; both terms are divided by e^top, so that neither overflows.
        """
        log_q, log_ratio, rise = self._parts(y)
        rest, t = -np.expm1(log_q), (2 * y - 1) / self._v
        x = np.log(rest) + log_ratio
        top = np.maximum(x + t, rise)
        gain = (self._order - 1) * (1 - 1 / y) / -np.expm1(-((y - 1) ** 2) / self._v)
        slope = np.exp(x + t - top) * gain - np.exp(x - top) * self._order / rest
        slope = slope + np.exp(rise - top) * (1 - (self._order - 1) / y)
        log_slope = log_q + top + np.log(np.where(slope > 0, slope, 1.0)) - self._scaled(y)
        return np.where(slope > 0, log_slope, np.nan)


def _log_hazard(z: Float64[ndarray, " points"]) -> Float64[ndarray, " points"]:
    """ln(phi(z)/Phi(-z)), less a constant: ln q falls at this rate in z."""
    return -np.log(scipy.special.erfcx(z / np.sqrt(2.0)))


@lru_cache(maxsize=256)
def gnmax_curve(*, noise: float, step: float, order: float, classes: int) -> GNMaxCurve:
    """The curve, with its critical points and conditions checked once. noise, step > 0; order > 1; classes >= 2."""
    return GNMaxCurve(noise=noise, step=step, order=order, classes=classes)


# Counts this close to a multiple of the weight, in steps and relative, are whole votes.
WHOLE = 1e-9


@dataclass(frozen=True, repr=False)
class SortedHistograms:
    """Histograms in units of a step, sorted: the top count and the others, in falling order.

    empty: classes that have no votes in any row, left out of `others`; whole: whether a step is one whole vote;
    sigma: noise in steps.
    """

    top: Float64[ndarray, " rows"]
    others: Float64[ndarray, "rows width"]
    empty: int
    whole: bool
    sigma: float

    def where(self, rows: Bool[ndarray, " rows"] | Int64[ndarray, " chosen"]) -> SortedHistograms:
        """The rows chosen by a mask or by index."""
        return SortedHistograms(self.top[rows], self.others[rows], self.empty, self.whole, self.sigma)

    def log_q(self, d: Float64[ndarray, " rows"], *, climb: bool) -> Float64[ndarray, " rows"]:
        """ln of the largest (climb) or least q within distance d of each row.

        q = min(sum_j P[N(0, 2 sigma^2) > gap_j], 1 - 1/m) (Papernot et al. 2018, Prop. 7). Climbing, d votes leave
        the top for the runner-up; descending, they leave the largest others for the top, d <= what those have.
        """
        if climb:
            top, others = self.top - d, self.others.copy()
            others[:, 0] += d
        else:
            top, others = self.top + d, self._levelled(d)
        scale = np.sqrt(2.0) * self.sigma
        log_tails = scipy.special.log_ndtr((others - top[:, None]) / scale)
        if self.empty:
            last = np.log(self.empty) + scipy.special.log_ndtr(-top / scale)
            log_tails = np.concatenate([log_tails, last[:, None]], axis=1)
        largest = log_tails.max(axis=1)
        log_sum = largest + np.log(np.exp(log_tails - largest[:, None]).sum(axis=1))
        classes = 1 + self.others.shape[1] + self.empty
        return np.minimum(log_sum, np.log1p(-1 / classes))

    def steps_to_plateau(self, points: CriticalPoints, *, climb: bool, most: int) -> Int64[ndarray, " rows"]:
        """The first d at which the extreme q has entered [q1, q0], at most `most`; by bisection, q being monotone.

        Descending, at the latest the first d past unanimity: Algorithm 4 takes the plateau from there on.
        """
        end = (self.top - self.others[:, 0]) / 2 if climb else self.others.sum(axis=1)
        low = np.zeros(len(end), dtype=np.int64)
        high = np.minimum(np.floor(end * (1 + WHOLE)).astype(np.int64) + 1, most)
        while (low < high).any():
            middle = (low + high) // 2
            log_q = self.log_q(np.minimum(middle.astype(np.float64), end), climb=climb)
            outside = log_q < points.log_q1 if climb else log_q > points.log_q0
            # Where low == high the search is over, whatever q is there.
            low, high = np.where(outside & (low < high), middle + 1, low), np.where(outside, high, middle)
        return low

    def _levelled(self, d: Float64[ndarray, " rows"]) -> Float64[ndarray, "rows width"]:
        """The other counts after d votes left them, always from the largest.

        The votes above level L add up to d at L = max_k (n_1 + ... + n_k - d)/k. Whole votes go down to ceil(L), and
        those that are left over from one class each.
        """
        rank = np.arange(1, self.others.shape[1] + 1)
        level = ((np.cumsum(self.others, axis=1) - d[:, None]) / rank).max(axis=1)
        level = np.maximum(level, 0.0)[:, None]
        if not self.whole:
            return np.minimum(self.others, level)
        lowered = np.minimum(self.others, np.ceil(level - WHOLE))
        left = d - (self.others - lowered).sum(axis=1)
        return lowered - (rank <= left[:, None])


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
