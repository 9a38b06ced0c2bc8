"""What one label can reveal, as finitely many pairs of laws that are at least as informative as any real one.

For one moved vote a label is one of three outcomes (label_cones.py), or a threshold bit. What matters of a pair (P, Q)
is its hockey-stick curve H(r) = sum_i max(0, P_i - r Q_i): E_P[g(Q/P)] is linear in H for every convex g. Pairs are
taken on a lattice of points (u, w), with slightly less noise, which makes them at least as informative as the pairs at
any other point; points that are far from the most informative ones share one curve, the largest of theirs. Proofs:
docs/explanation/exact-composition.md, sections 3 and 4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, log1p, pi, sqrt
from typing import Final

import numpy as np
import scipy
from jaxtyping import Bool, Float64, Int64
from numpy import ndarray

from protocols.bounds.gaussian import gdp_delta
from protocols.bounds.lattice_smoothing import ripple
from protocols.errors import InvalidInput

# A Gaussian of this many lattice steps is nearly a mixture over the lattice: its ripple is 1e-9.
_SMOOTHING: Final = 1.05
# Lattice step of u, in standard deviations, and the share of w's variance that is smoothed.
_STEP, _SHARE = 0.06, 0.06
# Lattice step of the points at which one class is out of reach; those pairs are far from the most informative.
_FAR_STEP: Final = 0.1
# Beyond this many standard deviations an outcome counts as impossible; its probability is below 1e-17.
_REACH: Final = 8.5
# What is added to E_P[g(Q/P)] for that, and for float64 errors of the probabilities, in units of 1 + t.
SLACK: Final = 2e-17 + 4e-15
# Loss knots a shift; dense up to 2.5 shifts, then each gap 1.25 times the last.
_KNOTS_PER_SHIFT, _DENSE, _GROWTH = 8, 2.5, 1.25
# A cell shares one curve where that is less informative than the best pair for exponential g of these exponents (in
# units of 1/shift, about -1/2): U has large ones after few queries only.
_EARLY: Final = np.array([-1.6, -0.8, -0.4, -0.2, -0.1, 0.0, 0.1, 0.2, 0.4, 0.8, 1.6])
_LATE: Final = np.array([-0.4, -0.2, -0.1, 0.0, 0.1, 0.2, 0.4])
LARGEST_SHIFT: Final = 6.0


@dataclass(frozen=True)
class PairKind:
    """Which pairs one query of a mechanism can be, for a vote of weight 1 and noise of standard deviation 1.

    classes: 2 for a bit with shift sqrt(2) d (GNMax with two classes), 3 for the three cones. ties: the share, in [0,
    1), in which all noisy counts are taken as seen (integer noise, docs/explanation/lattice-noise.md); else 0.
    """

    classes: int
    ties: float = 0.0

    def __post_init__(self) -> None:
        if self.classes not in (2, 3) or not 0 <= self.ties < 1:
            raise InvalidInput(f"classes {self.classes}, share of ties {self.ties}; allowed: 2 or 3, and in [0, 1)")


@dataclass(frozen=True, eq=False)
class LabelPairs:
    """What one query of a mechanism reveals of the single vote of each unit.

    shifts: d = s/sigma of each unit, > 0.
    """

    kind: PairKind
    shifts: Float64[ndarray, " units"]


@dataclass(frozen=True, eq=False)
class QuerySteps:
    """One query as weights of shifted values: E_P[U(z + L)] <= max over rows of sum_i weights[i] U(z + offsets[i] h).

    offsets: in units of the spacing h of privacy losses (nats), increasing; certain: what is added, the probability of
    an unbounded loss, where U is 1; factor, drift: what smoothing costs a query: U_k(z) <= factor^k V_k(z + k drift) if
    V is what the rows give.
    """

    spacing: float
    offsets: Int64[ndarray, " knots"]
    weights: Float64[ndarray, "rows knots"]
    certain: Float64[ndarray, " rows"]
    factor: float
    drift: float


def steps_of(kind: PairKind, shift: float) -> tuple[QuerySteps, QuerySteps]:
    """The steps of one query, for any votes, in both directions: for the first queries, and, fewer, for later ones.

    Both hold for any number of queries. shift: d = s/sigma, in (0, 6]. Raises InvalidInput.
    """
    if not 0 < shift <= LARGEST_SHIFT:
        raise InvalidInput(f"shift is {shift}; allowed: in (0, {LARGEST_SHIFT:g}]")
    smoothing = _SMOOTHING * _STEP
    moved = sqrt(2) * shift * sqrt(1 + smoothing**2)
    spacing, once = grid_of(shift)
    offsets = _offsets(moved * (_REACH + 2 * moved), spacing)
    knots = np.exp(offsets * spacing)
    families = _families(kind.classes, moved, smoothing, knots)
    gaussian = _gaussian_curve(moved, offsets * spacing)

    def shared(exponents: Float64[ndarray, " tests"]) -> QuerySteps:
        curves = _shared_curves(families, exponents * sqrt(2) / moved - 0.5, knots)
        mixed = (1 - kind.ties) * curves + kind.ties * gaussian
        weights, certain = weights_of(mixed, knots)
        return QuerySteps(spacing, offsets, weights, certain, exp(once), once)

    return shared(_EARLY), shared(_LATE)


def grid_of(shift: float) -> tuple[float, float]:
    """The spacing of privacy losses, in nats, and what smoothing costs a query: its drift, the logarithm of its factor.

    Every direction that is smoothed, and the random rounding of integer noise, changes densities by up to 1 -+ r.
    """
    ripples = 3 * float(ripple(_SMOOTHING / sqrt(1 + (_SMOOTHING * _FAR_STEP) ** 2)))
    return shift * sqrt(1 + (_SMOOTHING * _STEP) ** 2) / _KNOTS_PER_SHIFT, log1p(ripples) - log1p(-ripples)


def weights_of(
    curves: Float64[ndarray, "rows knots"], knots: Float64[ndarray, " knots"]
) -> tuple[Float64[ndarray, "rows knots"], Float64[ndarray, " rows"]]:
    """The laws on the knots whose hockey-stick curves are the chords of these, and the probability of +infinity.

    Chords of a convex curve lie above it: the laws are at least as informative ("connect the dots", Doroshenko et al.
    2022). knots: ratios P/Q, increasing.
    """
    inner = np.diff(curves, axis=1) / np.diff(knots)
    slopes = np.concatenate([(curves[:, :1] - 1.0) / knots[0], inner, np.zeros((len(curves), 1))], axis=1)
    return np.maximum(np.diff(slopes, axis=1) * knots, 0.0), curves[:, -1]


def _offsets(far: float, spacing: float) -> Int64[ndarray, " knots"]:
    dense = int(_DENSE * _KNOTS_PER_SHIFT)
    found, gap = list(range(dense + 1)), 1.0
    while found[-1] * spacing < far:
        gap *= _GROWTH
        found.append(found[-1] + int(np.ceil(gap)))
    positive = np.array(found, dtype=np.int64)
    return np.concatenate([-positive[:0:-1], positive])


def _families(
    classes: int, moved: float, smoothing: float, knots: Float64[ndarray, " knots"]
) -> list[Float64[ndarray, "..."]]:
    """Hockey-stick curves at the knots, on lattices of points: every pair has one that is nowhere below its own.

    moved: how far u moves, in standard deviations of u.
    """
    reach = _REACH + moved
    count = int(reach / _STEP) + 1
    u = (np.arange(-count, count) + 0.5) * _STEP
    bits = _bit_curves(u, moved, knots)
    if classes == 2:
        return [bits]
    # Given u's lattice, w has variance 1 + smoothing^2, a share of which is smoothed in turn.
    variance = 1 + smoothing**2
    left = sqrt((1 - _SHARE) * variance)
    spread = sqrt(1 + left**2)
    step = sqrt(_SHARE * (1 - _SHARE) * variance) / _SMOOTHING
    w = np.arange(-int((reach + moved + _REACH * spread) / step) - 1, int(_REACH * left / step) + 2) * step
    cones = np.stack([_cone_curves(each, w, moved, left, knots) for each in u])
    far_count = int(reach / _FAR_STEP) + 1
    far_moved = moved / spread * sqrt(1 + (_SMOOTHING * _FAR_STEP) ** 2)
    points = np.arange(-far_count, far_count + 1) * _FAR_STEP
    far = np.concatenate([_bit_curves(points, far_moved, knots), _bit_curves(points, -far_moved, knots)])
    return [cones, bits, far]


def _shared_curves(
    families: list[Float64[ndarray, "..."]], exponents: Float64[ndarray, " tests"], knots: Float64[ndarray, " knots"]
) -> Float64[ndarray, "rows knots"]:
    """Fewer curves, of which each given one has one that is nowhere below it."""
    log_knots = np.log(knots)
    base = np.maximum(1.0 - knots, 0.0)
    tests = np.exp(np.outer(log_knots, exponents)) * np.gradient(log_knots)[:, None]

    def gains(curves: Float64[ndarray, "*cells knots"]) -> Float64[ndarray, "*cells tests"]:
        return (curves - base) @ tests

    best = np.max([gains(each).reshape(-1, len(exponents)).max(axis=0) for each in families], axis=0)
    return np.concatenate([_shared(each, gains, best) for each in families])


def _bit_curves(
    points: Float64[ndarray, " points"], moved: float, knots: Float64[ndarray, " knots"]
) -> Float64[ndarray, "points knots"]:
    """Of the bit that is 1 with probability Phi(point), and Phi(point - moved) after the move."""
    ndtr = scipy.special.ndtr
    return _hockey_stick(
        np.stack([ndtr(points), ndtr(-points)]), np.stack([ndtr(points - moved), ndtr(moved - points)]), knots
    )


def _cone_curves(
    u: float, w: Float64[ndarray, " points"], moved: float, left: float, knots: Float64[ndarray, " knots"]
) -> Float64[ndarray, "points knots"]:
    return _hockey_stick(cone_law(np.full_like(w, u), w, left), cone_law(np.full_like(w, u - moved), w, left), knots)


def cone_law(
    u: Float64[ndarray, " points"], w: Float64[ndarray, " points"], left: float
) -> Float64[ndarray, "3 points"]:
    """The law of the label in the axes u = (a - b)/sqrt(2), w = (a + b)/sqrt(2), with noise N(0, 1) and N(0, left^2).

    Class A wins where u > 0 and u + w > 0, class B where u < 0 and w - u > 0, else neither: 3 probabilities, with an
    absolute error of about 1e-15.
    """
    spread = sqrt(1 + left**2)
    a = _both_positive(u, (u + w) / spread, 1 / spread)
    b = _both_positive(-u, (w - u) / spread, 1 / spread)
    return np.stack([a, b, np.maximum(1.0 - a - b, 0.0)])


def _both_positive(
    h: Float64[ndarray, " points"], k: Float64[ndarray, " points"], correlation: float
) -> Float64[ndarray, " points"]:
    """P[X < h, Y < k] for standard normals, by Owen's T function (Owen 1956, eq. 3.1)."""
    rest = sqrt(1 - correlation**2)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope_h, slope_k = (k / h - correlation) / rest, (h / k - correlation) / rest
    slope_h = np.where(h == 0, np.copysign(np.inf, k), slope_h)
    slope_k = np.where(k == 0, np.copysign(np.inf, h), slope_k)
    opposite = np.where((h * k < 0) | ((h * k == 0) & (h + k < 0)), 0.5, 0.0)
    special = scipy.special
    halves = (special.ndtr(h) + special.ndtr(k)) / 2
    found = halves - special.owens_t(h, slope_h) - special.owens_t(k, slope_k) - opposite
    corner = 0.25 + np.arcsin(correlation) / (2 * pi)
    return np.clip(np.where((h == 0) & (k == 0), corner, found), 0.0, 1.0)


def _gaussian_curve(moved: float, log_ratios: Float64[ndarray, " knots"]) -> Float64[ndarray, " knots"]:
    """Of N(moved, 1) against N(0, 1); H(r) = 1 - r + r H(1/r), as the pair is its own mirror image."""
    ratios = np.exp(log_ratios)
    above = gdp_delta(np.full(len(ratios), moved), np.abs(log_ratios))
    return np.where(log_ratios >= 0, above, 1.0 - ratios + ratios * above)


def _hockey_stick(
    before: Float64[ndarray, "outcomes points"],
    after: Float64[ndarray, "outcomes points"],
    knots: Float64[ndarray, " knots"],
) -> Float64[ndarray, "points knots"]:
    curves = np.zeros((before.shape[1], len(knots)))
    for p, q in zip(before, after, strict=True):
        curves += np.maximum(p[:, None] - knots * q[:, None], 0.0)
    return curves


_Gains = Callable[[Float64[ndarray, "*cells knots"]], Float64[ndarray, "*cells tests"]]


def _shared(
    curves: Float64[ndarray, "*points knots"], gains: _Gains, best: Float64[ndarray, " tests"]
) -> Float64[ndarray, "rows knots"]:
    """The curves, with one for each cell (of 2, 4, 8, ... points a side) whose largest curve gains less than `best`."""
    sides = range(curves.ndim - 1)
    levels, whole = [curves], [np.ones(curves.shape[:-1], dtype=bool)]
    while max(levels[-1].shape[:-1]) > 1 and whole[-1].any():
        larger, together = levels[-1], whole[-1]
        for side in sides:
            larger, together = _paired(larger, side, np.maximum), _paired(together, side, np.logical_and)
        levels.append(larger)
        whole.append(together & (gains(larger) <= best).all(axis=-1))
    kept = [levels[-1][whole[-1]]]
    for level in range(len(levels) - 2, -1, -1):
        kept.append(levels[level][whole[level] & ~_doubled(whole[level + 1], whole[level].shape)])
    return np.concatenate(kept)


def _paired(values: ndarray, side: int, together: np.ufunc) -> ndarray:
    """Neighbours along a side taken together; the last is taken with itself if it has none."""
    if values.shape[side] % 2:
        values = np.concatenate([values, np.take(values, [-1], side)], axis=side)
    even = [slice(None)] * values.ndim
    odd = list(even)
    even[side], odd[side] = slice(0, None, 2), slice(1, None, 2)
    return together(values[tuple(even)], values[tuple(odd)])


def _doubled(cells: Bool[ndarray, "..."], shape: tuple[int, ...]) -> Bool[ndarray, "..."]:
    for side, size in enumerate(shape):
        cells = np.take(np.repeat(cells, 2, axis=side), range(size), axis=side)
    return cells
