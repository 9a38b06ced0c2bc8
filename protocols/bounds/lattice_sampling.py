"""Worst-case RDP of a vote that enters a query by a secret coin, under discrete Gaussian noise.

Integer noise is a slightly smaller continuous Gaussian, rounded at random, whether the vote entered or not; so the
continuous costs of secret_sampling.py hold at that smaller noise by data processing (docs/explanation/lattice-noise.md,
section 6). Adjacency is replace-one; a unit has one vote, with one coin, as there.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.bounds.lattice_label_only import lattice_bit_rdp, lattice_label_rdp
from protocols.bounds.lattice_smoothing import ROUNDING_SIGMA, check_lattice, continuous_shift, ripple_cost
from protocols.bounds.secret_sampling import sampled_bit_gaussian_rdp, sampled_label_gaussian_rdp

_ROUNDING_UP = 1.0 + 1e-12


def sampled_lattice_histogram_rdp(
    votes_units: Int64[ndarray, " units"],
    rate: Float64[ndarray, " units"],
    orders: Float64[ndarray, " orders"],
    *,
    sigma_units: float | int,
) -> Float64[ndarray, "units orders"]:
    """RDP of one noisy histogram of N_Z(0, sigma_units^2) noise into which each vote enters by a secret coin.

    votes_units: k >= 0 lattice units; rate: the coin's probability, in (0, 1]; orders > 1. An upper bound,
    4/sigma_units^2 (relative) above the continuous cost for small moves; never above a k^2/sigma^2, the cost of a vote
    that always enters.
    Raises InvalidInput where sigma_units < 64 or a value is out of range.
    """
    check_lattice(votes_units, orders, sigma_units=sigma_units)
    d = continuous_shift(votes_units, sigma_units=float(sigma_units), rounding_sigma=ROUNDING_SIGMA)
    rounded = sampled_label_gaussian_rdp(d, rate, orders)
    rounded = _ROUNDING_UP * (rounded + ripple_cost(orders, sigma=ROUNDING_SIGMA, coordinates=2))
    return np.minimum(rounded, orders[None, :] * (votes_units[:, None] / sigma_units) ** 2)


def sampled_lattice_label_rdp(
    votes_units: Int64[ndarray, " units"],
    rate: Float64[ndarray, " units"],
    orders: Float64[ndarray, " orders"],
    *,
    sigma_units: float | int,
    classes: int,
) -> Float64[ndarray, "units orders"]:
    """RDP of releasing only a label: the smaller of the sampled histogram's and that of votes that always enter.

    The latter holds by quasi-convexity (van Erven & Harremoes 2014, Thm 13). Arguments as above.
    """
    return np.minimum(
        sampled_lattice_histogram_rdp(votes_units, rate, orders, sigma_units=sigma_units),
        lattice_label_rdp(votes_units, orders, sigma_units=sigma_units, classes=classes),
    )


def sampled_lattice_bit_rdp(
    votes_units: Int64[ndarray, " units"],
    rate: Float64[ndarray, " units"],
    orders: Float64[ndarray, " orders"],
    *,
    sigma_units: float | int,
) -> Float64[ndarray, "units orders"]:
    """RDP of releasing only a threshold bit: the smaller of the sampled Gaussian's and that of votes that always
    enter.
    """
    check_lattice(votes_units, orders, sigma_units=sigma_units)
    d = continuous_shift(votes_units, sigma_units=float(sigma_units), rounding_sigma=ROUNDING_SIGMA)
    rounded = sampled_bit_gaussian_rdp(d, rate, orders)
    rounded = _ROUNDING_UP * (rounded + ripple_cost(orders, sigma=ROUNDING_SIGMA, coordinates=1))
    return np.minimum(rounded, lattice_bit_rdp(votes_units, orders, sigma_units=sigma_units))
