"""The label-only suprema over the whole line (bit) and the whole plane (label), as rigorous upper bounds.

Outside a box the divergence is bounded in closed form (docs/explanation/label-only-bound.md, section 5); inside it
`label_cells.supremum` is used. Each function takes one problem per array element, and returns the Gaussian bound where
the label-only bound would gain little or is irrelevant in practice.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy
from jaxtyping import Bool, Float64, Int64
from numpy import ndarray

from protocols.bounds.label_cells import Problems, raised, supremum
from protocols.bounds.label_cones import bit_model, label_model

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
