"""Noise that is the sum of many parties' discrete Gaussian shares: the size of a share, and the cost of the sum.

Kairouz, Liu, Steinke 2021, "The Distributed Discrete Gaussian Mechanism" (arXiv 2102.06387): a sum of discrete
Gaussians is nearly a discrete Gaussian; the difference is charged. View: histogram. Adjacency: replace-one.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil, isfinite, isqrt

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.bounds.lattice_smoothing import ripple
from protocols.bounds.rdp import check_orders
from protocols.crypto.discrete_gaussian import sampler_denominator
from protocols.errors import InvalidInput

_LEAST_SHARE_SIGMA = 0.5
_ROUNDING_UP = 1.0 + 1e-12


def share_sigma(*, sigma_units: float | int | Fraction, parties: int, dropouts: int, colluders: int) -> Fraction:
    """sigma of each party's share, such that the shares of honest survivors have variance sigma_units^2 or more.

    At least parties - dropouts - colluders honest shares stay in the sum, whoever drops out and whoever colludes; sigma
    is rounded up to a fraction that the sampler takes. Raises InvalidInput if no share stays, or a count is negative.
    """
    honest = parties - dropouts - colluders
    if min(parties, dropouts, colluders) < 0 or honest < 1:
        raise InvalidInput(
            f"{parties} parties, of which {dropouts} may drop out and {colluders} collude, leave {honest} honest "
            "shares of noise; allowed: at least 1"
        )
    if not (isfinite(sigma_units) and sigma_units > 0):
        raise InvalidInput(f"sigma = {sigma_units} lattice units; allowed: finite, > 0")
    total = Fraction(sigma_units)
    denominator = sampler_denominator(total)
    # The least integer n with honest * (n/denominator)^2 >= sigma^2.
    square = ceil(total**2 * denominator**2 / honest)
    return Fraction(isqrt(square - 1) + 1, denominator)


def distributed_gaussian_rdp(
    votes_units: Int64[ndarray, " units"],
    orders: Float64[ndarray, " orders"],
    *,
    share_sigma: float | int | Fraction,
    honest: int,
    squared_move: int | float,
    dimension: int,
) -> Float64[ndarray, "units orders"]:
    """RDP of one noisy histogram whose noise in each cell is the sum of `honest` independent N_Z(0, share_sigma^2).

    a m k^2/(2 n s^2) + c x: k = votes_units >= 0, the unit's total weight; m = squared_move: two neighbours' whole
    numbers are at most sqrt(m) k apart in L2 (2 for votes and non-negative entries, 4 for signed ones); n = honest; c =
    min(dimension, m k^2), the cells that can change, each by one unit at least; x = sum_(j < n) ln((1 + r_j)/(1 -
    r_j)), r_j = ripple(s sqrt(j/(j+1))). The form of Kairouz, Liu, Steinke 2021, Prop. 14 (whose tau = 10 sum
    exp(-2 pi^2 s^2 j/(j+1)) is 2.5 times x); proof with this constant in docs/explanation/lattice-noise.md, section 7.
    Shares of further survivors only post-process the sum. dimension >= 1: the histogram's cells. Raises InvalidInput
    for share_sigma < 0.5 or a value out of range.
    """
    check_orders(orders)
    sigma = float(share_sigma)
    if not (isfinite(sigma) and sigma >= _LEAST_SHARE_SIGMA):
        raise InvalidInput(f"sigma of a share = {sigma} lattice units; allowed: finite, at least {_LEAST_SHARE_SIGMA}")
    if honest < 1 or dimension < 1:
        raise InvalidInput(f"{honest} honest shares in {dimension} cells; allowed: at least 1 of each")
    if len(votes_units) and votes_units.min() < 0:
        raise InvalidInput(f"votes of {votes_units.min()} units; allowed: 0 or more")
    if squared_move < 1:
        raise InvalidInput(f"squared move of {squared_move}; allowed: at least 1")
    gaussian = orders[None, :] * squared_move * (votes_units[:, None] / sigma) ** 2 / (2 * honest)
    # In float64: k^2 may be above 2^63, and then `dimension` is the smaller.
    cells = np.minimum(squared_move * votes_units.astype(np.float64) ** 2, dimension)
    return _ROUNDING_UP * (gaussian + cells[:, None] * _sum_correction(sigma, honest))


def _sum_correction(sigma: float, shares: int) -> float:
    """sum_(j < shares) ln((1 + r_j)/(1 - r_j)), r_j = ripple(sigma sqrt(j/(j+1)))."""
    j = np.arange(1, shares, dtype=np.float64)
    return float((2.0 * np.arctanh(ripple(sigma * np.sqrt(j / (j + 1.0))))).sum())
