"""Laplace noise: its worst-case RDP on a histogram, its draws, and how far float64 draws are from ideal ones.

LNMax adds independent Laplace noise of scale 1/gamma to each count (Papernot et al. 2017). A unit of total weight s
that moves from one class to another changes two counts by s each: two independent Laplace mechanisms. An observer of
the label sees less than an observer of both counts, so the bound holds for the views "label" and "histogram".
"""

from __future__ import annotations

from math import log

import numpy as np
import scipy
from jaxtyping import Float64
from numpy import ndarray

from protocols.bounds.rdp import check_orders
from protocols.errors import InvalidInput
from protocols.noise import StandardNormal

# Rounding of the few float64 operations below; the bound is raised by it.
_MARGIN = 1e-12
_SERIES_BELOW = 0.5
_SERIES_TERMS = 16
# As in noise.float_noise_distance: draws beyond are counted whole, and where the bound may split.
_REACH = 9.8
_TAIL = 2.0**-70
_SPLITS = np.linspace(3.0, _REACH, 35)


def laplace_histogram_rdp(
    sensitivity: Float64[ndarray, " units"], orders: Float64[ndarray, " orders"], *, gamma: float
) -> Float64[ndarray, "units orders"]:
    """RDP of counts + Lap(1/gamma) per class for units of total weight `sensitivity` (votes, >= 0), in nats.

    Twice the Laplace mechanism's at t = gamma s (two counts move by s, independently):
    ln[a/(2a-1) e^((a-1)t) + (a-1)/(2a-1) e^(-at)]/(a-1) (Mironov 2017, Prop. 6). A unit of several votes moves the
    counts by a vector of L1 norm 2 s at most; the bound is convex in the move, so one vote of s is the worst.
    orders > 1. An upper bound, relatively at most 1e-12 above the formula, and never above 2 t.
    """
    check_orders(orders)
    if not (np.isfinite(sensitivity).all() and (sensitivity >= 0).all()):
        raise InvalidInput(f"sensitivities are {sensitivity}; allowed: finite numbers of votes >= 0")
    t = gamma * sensitivity[:, None]
    a = orders[None, :]
    up, down = (a - 1) * t, -a * t
    small = up < 30.0
    # ln(1 + x) with x = (a g((a-1) t) + (a-1) g(-a t))/(2a-1), g(u) = e^u - 1 - u: the terms of first order cancel.
    excess = (a * _exp_excess(np.where(small, up, 0.0)) + (a - 1) * _exp_excess(down)) / (2 * a - 1)
    large = np.logaddexp(np.log(a / (2 * a - 1)) + up, np.log((a - 1) / (2 * a - 1)) + down)
    one = np.where(small, np.log1p(excess), large) / (a - 1)
    return np.minimum(2 * one * (1 + _MARGIN), 2 * t)


def laplace_noise(noise: StandardNormal, shape: tuple[int, ...], *, gamma: float) -> Float64[ndarray, "..."]:
    """Independent Lap(1/gamma) draws: each standard normal draw z at the Laplace quantile of its probability.

    sign(z) * -ln(2 Phi(-|z|))/gamma, which is exactly Laplace when z is exactly normal.
    """
    z = noise(shape)
    return np.sign(z) * -(scipy.special.log_ndtr(-np.abs(z)) + log(2.0)) / gamma


def float_laplace_distance(*, gamma: float, classes: int, total_weight: float) -> float:
    """Upper bound of the total variation distance between the label of float64 Laplace noise and the ideal one.

    The coupling of noise.float_noise_distance, one step further: a float draw differs from the ideal one of the same
    bits by at most (6.5 |z| + 2.6) 2**-53 in z; x = -ln(2 Phi(-|z|)) has slope at most |z| + 1 (the inverse Mills
    ratio); log_ndtr is taken to have a relative error of at most 32 units of 2**-53 (tests compare it with mpmath), and
    |log_ndtr(-|z|)| <= z^2/2 + |z| + 1. Sum and quotient add a unit each. So a noisy count differs by at most
    eta(|z|) = [((6.5 |z| + 2.6)(|z| + 1) + 34 (z^2/2 + |z| + 2))/gamma + 2 total_weight] 2**-53.
    The label differs only if two noisy counts at the top lie within 2 eta; the density of a count is at most gamma/2.

    gamma: > 0, per vote; classes >= 2; total_weight: votes.
    """
    density = gamma / 2
    moved = (6.5 * _SPLITS + 2.6) * (_SPLITS + 1) + 34 * (_SPLITS**2 / 2 + _SPLITS + 2)
    eta = (moved / gamma + 2 * total_weight) * 2.0**-53
    near = classes * 2 * eta * density
    far = classes * (classes - 1) * 2 * scipy.special.ndtr(-_SPLITS) * 4 * eta[-1] * density
    return float((near + far).min()) + 2 * classes * _TAIL


def _exp_excess(u: Float64[ndarray, "..."]) -> Float64[ndarray, "..."]:
    """e^u - 1 - u without cancellation: its series where |u| is small."""
    near = np.abs(u) < _SERIES_BELOW
    v = np.where(near, u, 0.0)
    term = v * v / 2
    total = term.copy()
    for power in range(3, 3 + _SERIES_TERMS):
        term = term * v / power
        total += term
    return np.where(near, total, np.expm1(u) - u)
