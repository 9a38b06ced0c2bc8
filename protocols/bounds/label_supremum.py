"""The label-only suprema over the whole line (bit) and the whole plane (label), as rigorous upper bounds.

Outside a box the divergence is bounded in closed form (docs/explanation/label-only-bound.md, section 5); inside it
`supremum` is used. Each function takes one problem per array element, and returns the Gaussian bound where
the label-only bound would gain little or is irrelevant in practice.

Upper bounds on a divergence over whole cells, and the branch and bound that uses them.

For a point v write G(v) = e^((a-1) D_a(P(v) || Q(v))) - 1 = sum_i p_i psi(L_i) with p_i the outcomes'
probabilities before the move, L_i the logarithm of after/before, and
psi(L) = e^(-(a-1) L) - 1 + (a-1)(e^L - 1): convex, zero with zero slope at zero, so nothing cancels for small
moves. `cell_bounds` bounds G on the cube |h_j| <= radius about each centre with an error of the order of
radius^2; `supremum` halves the cells that may still hold the maximum. The proof is in
docs/explanation/label-only-bound.md, sections 3 and 4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations_with_replacement, product

import numpy as np
import scipy
from jaxtyping import Bool, Float64, Int64
from numpy import ndarray

from protocols.bounds.label_cones import LocalModel, bit_model, label_model

_Experiment = Callable[[Float64[ndarray, "cells axes"], Float64[ndarray, " cells"]], LocalModel]
"""(points, shifts) -> the outcomes there: bit_model or label_model."""

RegionBound = Callable[[Int64[ndarray, " cells"], Float64[ndarray, "cells axes"], float], Float64[ndarray, " cells"]]
"""(owner, centres, radius) -> another upper bound of G on each cell (infinity where it has none)."""

_LARGEST_EXPONENT = 600.0  # larger exponents are cut to it; problems with G near exp(600) are not admitted
_STEEPEST = 60.0  # cells across which a probability may change by more than exp(60) have no small-move bound
_FIRST_RADIUS = 0.5
_BLOCK = 2048
_DEEPEST = 40


@dataclass(frozen=True)
class Problems:
    """One supremum for every (shift, order), sought in the box [low, high] of each.

    shifts > 0; orders > 1; lower: any value that G is known to reach or approach; tolerance: the relative
    amount of D = ln(1 + G)/(a - 1) by which the result may exceed the true supremum.
    """

    shifts: Float64[ndarray, " problems"]
    orders: Float64[ndarray, " problems"]
    low: Float64[ndarray, "problems axes"]
    high: Float64[ndarray, "problems axes"]
    lower: Float64[ndarray, " problems"]
    tolerance: float


def supremum(problems: Problems, experiment: _Experiment, region_bound: RegionBound) -> Float64[ndarray, " problems"]:
    """An upper bound of max(lower, sup of G over the box), at most `tolerance` (of D) above it."""
    best = problems.lower.copy()
    left_over = np.zeros_like(best)
    radius = _FIRST_RADIUS
    owner, centres = _tile(problems.low, problems.high, radius)
    for depth in range(_DEEPEST):
        elsewhere = region_bound(owner, centres, radius)
        keep = elsewhere > raised(best, problems.tolerance)[owner]
        owner, centres, elsewhere = owner[keep], centres[keep], elsewhere[keep]
        value, bound = _evaluate(problems, experiment, owner, centres, radius)
        np.maximum.at(best, owner, value)
        bound = np.minimum(bound, elsewhere)
        keep = bound > raised(best, problems.tolerance)[owner]
        owner, centres = owner[keep], centres[keep]
        if len(owner) == 0:
            break
        if depth == _DEEPEST - 1:
            np.maximum.at(left_over, owner, bound[keep])
            break
        radius /= 2.0
        corners = radius * np.array(list(product((-1.0, 1.0), repeat=centres.shape[1])))
        centres = (centres[:, None, :] + corners).reshape(-1, centres.shape[1])
        owner = np.repeat(owner, len(corners))
    return np.maximum(raised(best, problems.tolerance), left_over)


def raised(value: Float64[ndarray, "..."], tolerance: float) -> Float64[ndarray, "..."]:
    """The G whose divergence ln(1 + G)/(a - 1) is about (1 + tolerance) times that of `value` >= 0."""
    growth = np.where(value > 1e-8, (1.0 + value) * np.log1p(value) / np.maximum(value, 1e-8), 1.0)
    return value * (1.0 + tolerance * growth)


def cell_bounds(
    model: LocalModel, shifts: Float64[ndarray, " cells"], orders: Float64[ndarray, " cells"], radius: float
) -> tuple[Float64[ndarray, " cells"], Float64[ndarray, " cells"]]:
    """(G at the centre, an upper bound of G on the cube of half side `radius` about it), for every cell.

    The bound is the smaller of two. First: the Taylor polynomial of second degree, maximised over the cube,
    plus a bound on the third derivative, itself the smaller of one that is sharp for small moves and one that
    is sharp for large ones. Second: each p_i^a q_i^(1-a) is below an exponential of a linear function, which is
    maximal at a corner: sharp on large cells.
    """
    axes = len(model.slope)
    distance = np.sqrt(axes) * shifts
    beta = orders - 1.0
    log_p, ratio = model.log_p, model.log_ratio
    fallen, grown = np.exp(log_p - beta * ratio), np.exp(log_p + ratio)
    terms = _weighted_second(log_p, -beta * ratio) + beta * _weighted_second(log_p, ratio)
    terms_first = beta * (_weighted_first(log_p, ratio) - _weighted_first(log_p, -beta * ratio))
    terms_second = beta**2 * fallen + beta * grown
    value = terms.sum(axis=0)
    quadratic = value + _quadratic_reach(model, terms, terms_first, terms_second, radius)

    # Reach of derivatives along vectors of the cube, of length up to `length` (section 3).
    length = radius * np.sqrt(axes)
    third = length**3 * np.minimum(4.0, 6.0 * distance)
    slope_reach = radius * np.abs(model.slope).sum(axis=0)
    ratio_bend = np.minimum(
        radius**2 * np.abs(model.ratio_bend).sum(axis=(0, 1)) + third, length**2 * np.minimum(2.0 * distance, 1.0)
    )
    net_bend = radius**2 * np.abs(model.bend - beta * model.ratio_bend).sum(axis=(0, 1))
    small = _small_move_third(model, terms, beta, radius, slope_reach, ratio_bend, third)
    net_third = 2.0 * length**3 + beta * third
    net_bend = net_bend + net_third
    net_slope = radius * np.abs(model.slope - beta * model.ratio_slope).sum(axis=0)
    peak = np.exp(np.minimum(log_p - beta * ratio + net_slope + net_bend / 2.0, _LARGEST_EXPONENT))
    net_slope = net_slope + net_bend
    large = (peak * (net_slope**3 + 3.0 * net_slope * net_bend + net_third)).sum(axis=0)
    taylor = quadratic + np.minimum(small, large) / 6.0

    tilt = radius * (model.slope - beta * model.ratio_slope)
    stray = length**2 / 2.0 * np.minimum(2.0 * distance, 1.0)
    steep = np.full(len(value), -np.inf)
    for sign in product((-1.0, 1.0), repeat=axes):
        exponent = np.minimum(log_p - beta * (ratio - stray) + np.tensordot(sign, tilt, axes=1), _LARGEST_EXPONENT)
        steep = np.maximum(steep, np.exp(exponent).sum(axis=0))
    return value, np.minimum(taylor, steep - 1.0)


def _quadratic_reach(
    model: LocalModel,
    terms: Float64[ndarray, "outcomes cells"],
    terms_first: Float64[ndarray, "outcomes cells"],
    terms_second: Float64[ndarray, "outcomes cells"],
    radius: float,
) -> Float64[ndarray, " cells"]:
    """An upper bound of gradient.h + h.Hessian.h/2 of G over the cube, exact for a diagonal Hessian."""
    slope, ratio_slope = model.slope, model.ratio_slope
    reach = np.zeros(terms.shape[1])
    for j, k in combinations_with_replacement(range(len(slope)), 2):
        crossed = slope[j] * ratio_slope[k] + slope[k] * ratio_slope[j]
        second = (
            terms * (slope[j] * slope[k] + model.bend[j, k])
            + terms_first * (crossed + model.ratio_bend[j, k])
            + terms_second * ratio_slope[j] * ratio_slope[k]
        ).sum(axis=0)
        if j != k:
            reach += np.abs(second) * radius**2
            continue
        first = np.abs((terms * slope[j] + terms_first * ratio_slope[j]).sum(axis=0))
        inside = first < -second * radius  # the parabola's top lies within the cube
        top = np.where(inside, first, 0.0) / (-2.0 * np.where(inside, second, -1.0)) * first
        reach += np.where(inside, top, first * radius + second * radius**2 / 2.0)
    return reach


def _small_move_third(
    model: LocalModel,
    terms: Float64[ndarray, "outcomes cells"],
    beta: Float64[ndarray, " cells"],
    radius: float,
    slope_reach: Float64[ndarray, "outcomes cells"],
    ratio_bend: Float64[ndarray, "outcomes cells"],
    third: Float64[ndarray, " cells"],
) -> Float64[ndarray, " cells"]:
    """A bound of |D^3 G[h,h,h]| over the cube that vanishes like shift^2 (section 3, step 4)."""
    square = radius**2 * len(model.slope)
    ratio_slope = radius * np.abs(model.ratio_slope).sum(axis=0)
    reach = ratio_slope + ratio_bend / 2.0
    low, high = model.log_ratio - reach, model.log_ratio + reach
    log_weight = model.log_p + slope_reach
    falling = np.exp(np.minimum(log_weight - beta * low, _LARGEST_EXPONENT))
    rising = np.exp(np.minimum(log_weight + high, _LARGEST_EXPONENT))
    psi_first = beta * np.maximum(
        _weighted_first(log_weight, high) - _weighted_first(log_weight, -beta * high),
        _weighted_first(log_weight, -beta * low) - _weighted_first(log_weight, low),
    )
    psi = np.exp(np.minimum(slope_reach, _STEEPEST)) * terms + reach * psi_first
    psi_second = beta**2 * falling + beta * rising
    psi_third = beta**3 * falling + beta * rising
    first, ratio_first = slope_reach + square, ratio_slope + ratio_bend
    whole = (
        psi * (first**3 + 3.0 * first * square + 2.0 * square**1.5)
        + psi_first * (3.0 * ratio_first * (first**2 + square) + 3.0 * first * ratio_bend + third)
        + psi_second * 3.0 * ratio_first * (first * ratio_first + ratio_bend)
        + psi_third * ratio_first**3
    ).sum(axis=0)
    return np.where(slope_reach.max(axis=0) > _STEEPEST, np.inf, whole)


def _evaluate(
    problems: Problems,
    experiment: _Experiment,
    owner: Int64[ndarray, " cells"],
    centres: Float64[ndarray, "cells axes"],
    radius: float,
) -> tuple[Float64[ndarray, " cells"], Float64[ndarray, " cells"]]:
    """`cell_bounds` in blocks that fit the processor's cache.

    Cells lie on one lattice, so problems of equal shift share them: the experiment, which does not depend on
    the order and costs most, is evaluated once for each shift and cell.
    """
    value, bound = np.empty(len(owner)), np.empty(len(owner))
    _, shift_of = np.unique(problems.shifts, return_inverse=True)
    place = np.rint(centres / radius).astype(np.int64)
    keys = (shift_of[owner], *place.T)
    sequence = np.lexsort(keys)
    changes = np.any([np.diff(key[sequence]) != 0 for key in keys], axis=0)
    for start in range(0, len(owner), _BLOCK):
        cells = sequence[start : start + _BLOCK]
        first = np.concatenate([[True], changes[start : start + len(cells) - 1]])
        model = experiment(centres[cells[first]], problems.shifts[owner[cells[first]]])
        problem = owner[cells]
        value[cells], bound[cells] = cell_bounds(
            model.take(np.cumsum(first) - 1), problems.shifts[problem], problems.orders[problem], radius
        )
    return value, bound


def _tile(
    low: Float64[ndarray, "problems axes"], high: Float64[ndarray, "problems axes"], radius: float
) -> tuple[Int64[ndarray, " cells"], Float64[ndarray, "cells axes"]]:
    """The centres of the cubes of half side `radius` of one lattice that cover each box, and the box each belongs
    to.
    """
    low = np.floor(low / (2.0 * radius)) * 2.0 * radius
    counts = np.maximum(np.ceil((high - low) / (2.0 * radius)).astype(np.int64), 1)
    sizes = counts.prod(axis=1)
    owner = np.repeat(np.arange(len(low)), sizes)
    position = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    columns = []
    for axis in range(low.shape[1]):
        columns.append(position % counts[owner, axis])
        position = position // counts[owner, axis]
    centres: Float64[ndarray, "cells axes"] = low[owner] + radius * (2.0 * np.stack(columns, axis=-1) + 1.0)
    return owner, centres


def _weighted_first(log_weight: Float64[ndarray, "..."], z: Float64[ndarray, "..."]) -> Float64[ndarray, "..."]:
    """e^log_weight (e^z - 1) without overflow where log_weight + z is moderate."""
    size = np.exp(np.minimum(log_weight + np.maximum(z, 0.0), _LARGEST_EXPONENT))
    weighted: Float64[ndarray, "..."] = -np.sign(z) * size * np.expm1(-np.abs(z))
    return weighted


def _weighted_second(log_weight: Float64[ndarray, "..."], z: Float64[ndarray, "..."]) -> Float64[ndarray, "..."]:
    """e^log_weight (e^z - 1 - z), accurate for small z and without overflow."""
    small = np.clip(z, -0.3, 0.3)
    series = np.zeros_like(z)
    for n in range(14, 2, -1):
        series = small / n * (1.0 + series)
    near = np.exp(log_weight) * small * small / 2.0 * (1.0 + series)
    far = np.exp(np.minimum(log_weight + z, _LARGEST_EXPONENT)) - np.exp(log_weight) * (1.0 + z)
    return np.where(np.abs(z) <= 0.3, near, far)


_MARGIN = 3.0  # distance from the tilted means at which the closed-form bounds take over
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(48)
_CHUNK = 240
_ROUNDING = 1e-9  # section 6: relative, above any rounding error of float64
# Euclidean shifts, and (a - 1) times the Gaussian bound, for which a supremum is computed (section 7).
_LEAST_SHIFT, _LARGEST_SHIFT, _LARGEST_LOG_GROWTH = 1e-7, 7.1, 450.0
_LARGEST_ORDER = 1e5

Growth = Callable[[Float64[ndarray, " p"], Float64[ndarray, " p"], float], Float64[ndarray, " p"]]


def bit_supremum(
    shifts: Float64[ndarray, " problems"], orders: Float64[ndarray, " problems"], *, tolerance: float
) -> Float64[ndarray, " problems"]:
    """An upper bound of sup_g D_a(Bernoulli(Phi(g)) || Bernoulli(Phi(g + shift))), either direction.

    shifts >= 0, orders > 1; at most `tolerance` (relative) above the supremum within the computed range, and
    never above the Gaussian bound a shift^2/2.
    """
    return _bound(_bit_growth, orders * shifts**2 / 2.0, shifts, shifts, orders, tolerance)


def label_supremum(
    shifts: Float64[ndarray, " problems"], orders: Float64[ndarray, " problems"], *, tolerance: float
) -> Float64[ndarray, " problems"]:
    """An upper bound of sup_(x,y) D_a(P(x, y) || P(x - shift, y + shift)) for the three outcomes of a label.

    shifts >= 0, orders > 1; at most `tolerance` (relative) above the supremum within the computed range, and
    never above the Gaussian bound a shift^2.
    """
    return _bound(_label_growth, orders * shifts**2, np.sqrt(2.0) * shifts, shifts, orders, tolerance)


def computed(
    lengths: Float64[ndarray, " problems"], orders: Float64[ndarray, " problems"]
) -> Bool[ndarray, " problems"]:
    """Whether a supremum is computed for moves of these Euclidean lengths, in standard deviations."""
    log_growth = orders * (orders - 1.0) * lengths**2 / 2.0
    in_range = (lengths >= _LEAST_SHIFT) & (lengths <= _LARGEST_SHIFT) & (orders <= _LARGEST_ORDER)
    return in_range & (log_growth <= _LARGEST_LOG_GROWTH)


def _bound(
    growth: Growth,
    gaussian: Float64[ndarray, " problems"],
    lengths: Float64[ndarray, " problems"],
    shifts: Float64[ndarray, " problems"],
    orders: Float64[ndarray, " problems"],
    tolerance: float,
) -> Float64[ndarray, " problems"]:
    """The smaller of the Gaussian bound and, where it is computed, ln(1 + growth)/(a - 1)."""
    bound = gaussian.copy()
    # A label's length is sqrt(2) d; the least d is the same for bit and label, that of the table.
    chosen = np.flatnonzero(computed(lengths, orders) & (shifts >= _LEAST_SHIFT))
    chosen = chosen[np.argsort(shifts[chosen], kind="stable")]  # equal shifts share their cells
    for start in range(0, len(chosen), _CHUNK):
        chunk = chosen[start : start + _CHUNK]
        excess = growth(shifts[chunk], orders[chunk], tolerance)
        bound[chunk] = np.log1p(excess) / (orders[chunk] - 1.0) * (1.0 + _ROUNDING)
    return np.minimum(bound, gaussian)


def _bit_growth(
    shifts: Float64[ndarray, " problems"], orders: Float64[ndarray, " problems"], tolerance: float
) -> Float64[ndarray, " problems"]:
    """An upper bound of G = e^((a-1) D) - 1 for the bit."""
    beta = orders - 1.0
    gaussian = orders * beta * shifts**2 / 2.0
    left, right = shifts + _MARGIN, beta * shifts + _MARGIN
    outside = np.maximum(_tail(gaussian, shifts, orders, left, -1.0), _tail(gaussian, shifts, orders, right, 1.0))
    problems = Problems(shifts, orders, -left[:, None], right[:, None], np.zeros_like(shifts), tolerance)
    inside = supremum(problems, bit_model, lambda _owner, centres, _radius: np.full(len(centres), np.inf))
    return np.maximum(inside, outside)


def _label_growth(
    shifts: Float64[ndarray, " problems"], orders: Float64[ndarray, " problems"], tolerance: float
) -> Float64[ndarray, " problems"]:
    """An upper bound of G = e^((a-1) D) - 1 for the label of three or more classes."""
    beta = orders - 1.0
    exponent = orders * beta * shifts**2
    gaussian = np.expm1(exponent)
    two_classes = _bit_growth(np.sqrt(2.0) * shifts, orders, tolerance / 4.0)
    reached = two_classes - (raised(two_classes, tolerance / 4.0) - two_classes)
    left, low = beta * shifts + _MARGIN, shifts + _MARGIN
    bit = _bit_growth(shifts, orders, tolerance)
    hazard = np.exp(-(_MARGIN**2) / 2.0 - scipy.special.log_ndtr(_MARGIN)) / np.sqrt(2.0 * np.pi)
    outside = np.maximum(
        bit + _tail(exponent, shifts, orders, left, 1.0),
        np.exp(beta * shifts * hazard) * bit + _tail(exponent, shifts, orders, low, -1.0),
    )
    # Along x = y -> infinity the label becomes that of two classes.
    surplus = np.maximum(gaussian - two_classes, 0.0)
    ridge = -scipy.special.ndtri(np.minimum(tolerance / 4.0 * two_classes / np.maximum(surplus, 1e-300), 0.5))
    outside = np.maximum(outside, two_classes + scipy.special.ndtr(-ridge) * surplus)

    def region_bound(
        owner: Int64[ndarray, " cells"], centres: Float64[ndarray, "cells 2"], radius: float
    ) -> Float64[ndarray, " cells"]:
        u, w = centres[:, 0], centres[:, 1]
        nearest = w - radius
        most_x, most_y = (
            (w + u) * np.sqrt(0.5) + np.sqrt(2.0) * radius,
            (w - u) * np.sqrt(0.5) + np.sqrt(2.0) * radius,
        )
        covered = (nearest >= ridge[owner]) | (most_x <= -left[owner]) | (most_y <= -low[owner])
        return np.where(covered, -np.inf, two_classes[owner] + scipy.special.ndtr(-nearest) * surplus[owner])

    # The triangle w <= ridge, x >= -left, y >= -low lies in this box of (u, w).
    half = np.sqrt(0.5)
    problems = Problems(
        shifts,
        orders,
        np.stack([-ridge - np.sqrt(2.0) * left, -half * (left + low)], axis=-1),
        np.stack([ridge + np.sqrt(2.0) * low, ridge], axis=-1),
        np.maximum(reached, 0.0),
        tolerance,
    )
    return np.maximum(supremum(problems, label_model, region_bound), outside)


def _tail(
    exponent: Float64[ndarray, " problems"],
    shifts: Float64[ndarray, " problems"],
    orders: Float64[ndarray, " problems"],
    distance: Float64[ndarray, " problems"],
    sign: float,
) -> Float64[ndarray, " problems"]:
    """What one coordinate adds to G if its mean is at -distance or below and moves by -sign*shift.

    The coordinate's negative side is released as one outcome: psi of its log-ratio. Its positive side is
    bounded by the release of everything there: with total exponent c the integral over t < -distance of
    phi(t) [c - a(a-1)d^2/2 + E2(u1) + (a-1) E2(u2)], u1 and u2 the logarithms of the tilted and of the moved
    density over the density, E2(u) = e^u - 1 - u. All terms are positive: nothing cancels.
    """
    beta = orders - 1.0
    log_ratio = scipy.special.log_ndtr(distance + sign * shifts) - scipy.special.log_ndtr(distance)
    rest = _second(-beta * log_ratio) + beta * _second(log_ratio)
    half = 5.0
    t = -distance[:, None] - half + half * _NODES
    d, b, c = shifts[:, None], beta[:, None], exponent[:, None]
    moved = sign * d * t - d * d / 2.0
    tilted = c - b * b * d * d / 2.0 - sign * b * d * t
    linear = c - (b + 1.0) * b * d * d / 2.0
    density = np.exp(-t * t / 2.0) / np.sqrt(2.0 * np.pi)
    # e^tilted alone may overflow, its product with the density may not.
    second_tilted = np.where(
        np.abs(tilted) < 0.5,
        density * _second(np.clip(tilted, -0.5, 0.5)),
        np.exp(tilted - t * t / 2.0) / np.sqrt(2.0 * np.pi) - density * (1.0 + tilted),
    )
    mass = half * (density * (linear + b * _second(moved)) + second_tilted) @ _WEIGHTS
    tail: Float64[ndarray, " problems"] = rest + mass
    return tail


def _second(z: Float64[ndarray, "..."]) -> Float64[ndarray, "..."]:
    """e^z - 1 - z, accurate for small z."""
    small = np.clip(z, -0.3, 0.3)
    series = np.zeros_like(z)
    for n in range(14, 2, -1):
        series = small / n * (1.0 + series)
    return np.where(np.abs(z) <= 0.3, small * small / 2.0 * (1.0 + series), np.exp(z) - 1.0 - z)
