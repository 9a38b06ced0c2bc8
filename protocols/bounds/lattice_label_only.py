"""Worst-case cost of a label or a threshold bit of which nothing else is seen, under discrete Gaussian noise.

The continuous label-only bound (label_only.py) does not carry over to integer noise: a label of integer counts is not a
function of a label of real ones. These bounds hold: the noise is a slightly smaller continuous Gaussian, rounded at
random, and all but a small share of it hides how ties are broken. Proofs and margins:
docs/explanation/lattice-noise.md. Adjacency is replace-one; one unit of total weight k moves its votes, and its
abstentions, in any way.
"""

from __future__ import annotations

from math import hypot

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.bounds import label_only
from protocols.bounds.label_pairs import LabelPairs, PairKind
from protocols.bounds.lattice_smoothing import (
    ROUNDING_SIGMA,
    check_lattice,
    continuous_shift,
    ripple,
    ripple_cost,
    tie_share,
)
from protocols.errors import InvalidInput

# Standard deviations t of the Gaussian that hides ties, in units of sigma^(2/3): the least of the bounds is the bound.
# 0.43 minimises 0.5625 * 0.2821/t + t^2/s^2, the excess for small moves; the others serve moves of many nats.
_TIE_SIGMAS = (0.43, 0.7, 1.2)
_ROUNDING_UP = 1.0 + 1e-12


def lattice_label_rdp(
    votes_units: Int64[ndarray, " units"],
    orders: Float64[ndarray, " orders"],
    *,
    sigma_units: float | int,
    classes: int,
) -> Float64[ndarray, "units orders"]:
    """RDP of one GNMax label with independent N_Z(0, sigma_units^2) noise per class: an upper bound for all histograms.

    votes_units: total weight k of each unit in lattice units, >= 0; orders > 1; classes >= 2. Holds in both directions,
    for any order in which ties are broken, and for any number of votes of total weight k. Never above the Gaussian
    bound a k^2/sigma^2 (Canonne, Kamath, Steinke 2020, Prop. 5, in two coordinates). It exceeds the continuous
    bound by up to 4.0 % at 64 units, 0.6 % at 1,000, 0.33 % at 2,560; with two classes by 0.24 % at 64.
    Raises InvalidInput where sigma_units < 64 or a value is out of range.
    """
    check_lattice(votes_units, orders, sigma_units=sigma_units)
    if classes < 2:
        raise InvalidInput(f"classes = {classes}; allowed: 2 or more")
    gaussian = orders[None, :] * (votes_units[:, None] / sigma_units) ** 2
    bound = _two_classes if classes == 2 else _several_classes
    single = bound(votes_units, orders, float(sigma_units))
    return np.minimum(single + _several_votes_cost(float(sigma_units), classes), gaussian)


def lattice_label_pairs(votes_units: Int64[ndarray, " units"], *, sigma_units: float | int, classes: int) -> LabelPairs:
    """What one such label reveals of one vote of each weight, for exact composition: see `lattice_label_rdp`.

    The continuous pairs at a slightly larger shift, and with three or more classes a share of ties in which all counts
    are taken as seen (docs/explanation/exact-composition.md, section 4). Raises InvalidInput as `lattice_label_rdp`.
    """
    check_lattice(votes_units, np.array([2.0]), sigma_units=sigma_units)
    if classes == 2:
        shift = continuous_shift(votes_units, sigma_units=sigma_units, rounding_sigma=np.sqrt(2.0) * ROUNDING_SIGMA)
        return LabelPairs(PairKind(2), _ROUNDING_UP * shift)
    hiding = _TIE_SIGMAS[0] * sigma_units ** (2.0 / 3.0)
    shift = continuous_shift(votes_units, sigma_units=sigma_units, rounding_sigma=hypot(hiding, ROUNDING_SIGMA))
    return LabelPairs(PairKind(3, tie_share(hiding)), _ROUNDING_UP * shift)


def lattice_bit_rdp(
    votes_units: Int64[ndarray, " units"], orders: Float64[ndarray, " orders"], *, sigma_units: float | int
) -> Float64[ndarray, "units orders"]:
    """RDP of one threshold bit under N_Z(0, sigma_units^2) noise: an upper bound for all histograms.

    Arguments as in `lattice_label_rdp`. Both directions. Never above a k^2/(2 sigma^2) (CKS20, Prop. 5). Above the
    continuous bound by 0.1 % at 64 units, 4/sigma_units^2 in general, for small moves.
    """
    check_lattice(votes_units, orders, sigma_units=sigma_units)
    return np.minimum(
        _bit(votes_units, orders, float(sigma_units)), orders[None, :] * (votes_units[:, None] / sigma_units) ** 2 / 2.0
    )


def _bit(
    votes_units: Int64[ndarray, " units"], orders: Float64[ndarray, " orders"], sigma_units: float
) -> Float64[ndarray, "units orders"]:
    """The continuous bit of the noise that is rounded: integer rounding of a threshold is a random shift of it."""
    d = continuous_shift(votes_units, sigma_units=sigma_units, rounding_sigma=ROUNDING_SIGMA)
    cost = label_only.threshold_rdp(d[:, None], orders[None, :])
    return _ROUNDING_UP * (cost + ripple_cost(orders, sigma=ROUNDING_SIGMA, coordinates=1))


def _two_classes(
    votes_units: Int64[ndarray, " units"], orders: Float64[ndarray, " orders"], sigma_units: float
) -> Float64[ndarray, "units orders"]:
    """Given the sum of the two counts, the first is discrete Gaussian of variance sigma^2/2: a bit with shift k."""
    d = continuous_shift(votes_units, sigma_units=sigma_units, rounding_sigma=np.sqrt(2.0) * ROUNDING_SIGMA)
    cost = label_only.label_rdp(d[:, None], orders[None, :], classes=2)
    return _ROUNDING_UP * (cost + ripple_cost(orders, sigma=ROUNDING_SIGMA, coordinates=1))


def _several_classes(
    votes_units: Int64[ndarray, " units"], orders: Float64[ndarray, " orders"], sigma_units: float
) -> Float64[ndarray, "units orders"]:
    """(1/b) ln[(1 - e) e^(b R) + e e^(b G)], b = a - 1, minimal over some t: R the continuous label's, G the
    Gaussian's.

    The continuous noise that is rounded has a part of variance t^2 per count. Except for a share e = erf(1/(4 t)) of
    that part, integer ties amount to a shift of the counts by half a unit; that share costs at most the Gaussian's.
    """
    beta = orders[None, :] - 1.0
    least = np.full((len(votes_units), len(orders)), np.inf)
    for share in _TIE_SIGMAS:
        hiding = share * sigma_units ** (2.0 / 3.0)
        d = continuous_shift(votes_units, sigma_units=sigma_units, rounding_sigma=hypot(hiding, ROUNDING_SIGMA))
        label = label_only.label_rdp(d[:, None], orders[None, :], classes=3)
        gaussian = orders[None, :] * d[:, None] ** 2
        least = np.minimum(least, _mixture(label, gaussian, beta, tie_share(hiding)))
    return _ROUNDING_UP * (least + ripple_cost(orders, sigma=ROUNDING_SIGMA, coordinates=2))


def _mixture(
    low: Float64[ndarray, "units orders"],
    high: Float64[ndarray, "units orders"],
    beta: Float64[ndarray, "1 orders"],
    share: float,
) -> Float64[ndarray, "units orders"]:
    """(1/b) ln[(1 - share) e^(b low) + share e^(b high)] without cancellation for small or overflow for large."""
    large = beta * high > 30.0
    small_low, small_high = (np.where(large, 0.0, beta * cost) for cost in (low, high))
    small = np.log1p((1.0 - share) * np.expm1(small_low) + share * np.expm1(small_high)) / beta
    return np.where(large, high + np.log(share + (1.0 - share) * np.exp(-beta * (high - low))) / beta, small)


def _several_votes_cost(sigma_units: float, classes: int) -> float:
    """What is added so that the bound of one vote of weight k holds for several of total weight k: about 1e-30.

    Pr[a class wins] is log-concave in the histogram up to factors e^(-+x), x = -ln(1 - r') - (classes - 1) ln(1 - r)
    with the ripples r = ripple(sigma) and r' = ripple(sigma/sqrt(classes)); 2 x is added (section 4).
    """
    narrow = sigma_units / np.sqrt(classes)
    if narrow < 1.0:
        return float("inf")
    return float(-2.0 * (np.log1p(-ripple(narrow)) + (classes - 1) * np.log1p(-ripple(sigma_units))))
