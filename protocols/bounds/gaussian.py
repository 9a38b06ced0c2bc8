"""Gaussian differential privacy: exact conversion between mu and (epsilon, delta).

A composition of Gaussian mechanisms is exactly mu-GDP with mu^2 the sum of theirs, adaptively and under a filter
on mu^2 (Dong, Roth, Su 2022, Cor. 3.3; Smith & Thakurta 2022, arXiv 2210.17520).
"""

from __future__ import annotations

import numpy as np
import scipy
from jaxtyping import Float64
from numpy import ndarray

from protocols.bounds.rdp import check_budget, check_delta
from protocols.errors import InvalidInput

_BISECTIONS = 200


def gdp_delta(mu: Float64[ndarray, "..."], epsilon: Float64[ndarray, "..."]) -> Float64[ndarray, "..."]:
    """delta(epsilon) = Phi(-epsilon/mu + mu/2) - e^epsilon Phi(-epsilon/mu - mu/2), exact.

    Dong, Roth, Su 2022, Cor. 2.13; Balle & Wang 2018, Thm 8. mu > 0; epsilon >= 0. Computed as a difference of
    logarithms, so it keeps its relative precision if delta is small.
    """
    if not ((mu > 0).all() and (epsilon >= 0).all()):
        raise InvalidInput(f"mu is {mu}, epsilon {epsilon}; allowed: mu > 0, epsilon >= 0")
    first = scipy.special.log_ndtr(-epsilon / mu + mu / 2)
    second = epsilon + scipy.special.log_ndtr(-epsilon / mu - mu / 2)
    gap = np.minimum(second - first, 0.0)
    return np.asarray(np.exp(first) * -np.expm1(gap))


def gdp_mu(epsilon: Float64[ndarray, "..."], delta: Float64[ndarray, "..."]) -> Float64[ndarray, "..."]:
    """The largest mu for which mu-GDP is (epsilon, delta)-DP, approached from below.

    Bisection on gdp_delta, which increases in mu; the lower end of the last bracket is returned. epsilon > 0,
    0 < delta < 1.
    """
    check_budget(epsilon, delta)
    wanted, limit = np.broadcast_arrays(np.atleast_1d(epsilon), np.atleast_1d(delta))
    low = np.full(wanted.shape, 1e-12)
    high = np.sqrt(2 * wanted) + 40.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if ((middle <= low) | (middle >= high)).all():
            break  # nothing lies in between: further halving changes nothing
        fits = gdp_delta(middle, wanted) <= limit
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return (low * (1 - 1e-12)).reshape(np.broadcast_shapes(epsilon.shape, delta.shape))


def gdp_epsilon(mu: Float64[ndarray, "..."], delta: Float64[ndarray, "..."]) -> Float64[ndarray, "..."]:
    """The smallest epsilon at which mu-GDP is (epsilon, delta)-DP, rounded up; 0 for mu = 0.

    Bisection on gdp_delta, which decreases in epsilon. mu >= 0, 0 < delta < 1.
    """
    check_delta(delta)
    if not (np.isfinite(mu).all() and (mu >= 0).all()):
        raise InvalidInput(f"mu is {mu}; allowed: finite, >= 0")
    spent, limit = np.broadcast_arrays(np.atleast_1d(mu), np.atleast_1d(delta))
    safe = np.maximum(spent, 1e-12)
    low = np.zeros(spent.shape)
    high = safe * safe / 2 + 40.0 * safe
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if ((middle <= low) | (middle >= high)).all():
            break  # nothing lies in between: further halving changes nothing
        fits = gdp_delta(safe, middle) <= limit
        low, high = np.where(fits, low, middle), np.where(fits, middle, high)
    epsilon = np.where(spent > 0, high * (1 + 1e-12), 0.0)
    return epsilon.reshape(np.broadcast_shapes(mu.shape, delta.shape))
