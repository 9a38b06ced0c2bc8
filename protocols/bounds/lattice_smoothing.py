"""How integer noise compares with continuous noise: the quantities of docs/explanation/lattice-noise.md, section 2.

A discrete Gaussian of variance s^2 is, up to a factor within 1 -+ ripple(t), a continuous Gaussian of variance
s^2 - t^2 that is then rounded at random (a discrete Gaussian of variance t^2 about it): Poisson summation, as in
Peikert 2010 (CRYPTO, Thm 3.1) and Kairouz, Liu, Steinke 2021 (arXiv 2102.06387, Prop. 14).
"""

from __future__ import annotations

from math import erf

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.bounds.rdp import check_orders
from protocols.errors import InvalidInput

# The least standard deviation of the random rounding: its ripple is 1e-34.
ROUNDING_SIGMA = 2.0
LEAST_SIGMA_UNITS = 64.0


def ripple(sigma: float | Float64[ndarray, "..."]) -> Float64[ndarray, "..."]:
    """2 sum_j e^(-2 pi^2 j^2 sigma^2), rounded up: how far sums of a Gaussian density over a lattice are from 1.

    |sum_n phi_sigma(n - u) - 1| is at most this for every real u (Poisson summation). sigma >= 0.3.
    """
    first = np.exp(-2.0 * np.pi**2 * np.asarray(sigma, dtype=np.float64) ** 2)
    # The exponents 1, 4, 9, ... are at least 1, 4, 7, ...: a geometric series.
    return np.asarray(2.0 * first / (1.0 - first**3))


def ripple_cost(orders: Float64[ndarray, " orders"], *, sigma: float, coordinates: int) -> Float64[ndarray, " orders"]:
    """What the factors cost in Renyi divergence: coordinates * a/(a-1) * ln((1 + r)/(1 - r)), r = ripple(sigma).

    With p and q both within 1 -+ r of what is bounded, over one normaliser of at least 1 - r that they share,
    sum p^a q^(1-a) grows by at most (1 + r)^a (1 - r)^(-a) for each coordinate.
    """
    share = 2.0 * float(np.arctanh(ripple(sigma)))
    return coordinates * (orders / (orders - 1.0)) * share


def continuous_shift(
    votes_units: Int64[ndarray, " units"], *, sigma_units: float, rounding_sigma: float
) -> Float64[ndarray, " units"]:
    """d = k / sqrt(s^2 - t^2): the move in standard deviations of the continuous Gaussian that is rounded."""
    return votes_units / np.sqrt((sigma_units - rounding_sigma) * (sigma_units + rounding_sigma))


def tie_share(sigma: float) -> float:
    """erf(1/(4 sigma)): total variation distance of N(0, sigma^2 I) in the plane and its shift by (-1/2, 1/2).

    This share of the Gaussian part of the noise is needed to make the ways to break a tie indistinguishable.
    """
    return erf(0.25 / sigma) * (1.0 + 1e-12)


def check_lattice(
    votes_units: Int64[ndarray, " units"], orders: Float64[ndarray, " orders"], *, sigma_units: float | int
) -> None:
    """Raises InvalidInput unless votes are 0 or more units, orders > 1 and finite, and sigma at least 64 units."""
    check_orders(orders)
    if not (np.isfinite(sigma_units) and sigma_units >= LEAST_SIGMA_UNITS):
        raise InvalidInput(
            f"sigma = {sigma_units} lattice units; allowed: finite, at least {LEAST_SIGMA_UNITS:g}: "
            "use more units per vote, or more noise"
        )
    if len(votes_units) and votes_units.min() < 0:
        raise InvalidInput(f"votes of {votes_units.min()} units; allowed: 0 or more")
