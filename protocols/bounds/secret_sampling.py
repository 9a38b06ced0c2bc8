"""Worst-case RDP of a vote that enters a query by a secret coin: privacy amplification under replace-one adjacency.

With probability g a party's vote of weight s enters a query, and nobody but its node knows. The pair to compare is
(1-g) N(0) + g N(s e_a) against (1-g) N(0) + g N(s e_b), per query: docs/explanation/mathematics.md, section 6.2.
Libraries' Poisson-sampled Gaussian is for add/remove; the replace pair is computed here, exactly. Limits and checks:
docs/explanation/secret-sampling.md.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from protocols.bounds.rdp import check_orders
from protocols.errors import InvalidInput

# The trapezoid rule reaches this many standard deviations beyond every peak of the integrand.
_REACH = 13.0
# Its steps: of the standard normal, and of the mixture's own scale 1/(d sqrt(a)).
_STEP = 0.2
_MIXTURE_STEP = 0.3
# Quadrature and rounding stay below this relative error (tests compare with mpmath); the bound is raised by it.
_MARGIN = 1e-9
# The largest d^2 a^1.5 for which the integral is computed: beyond it many nodes are needed, and for nothing, as one
# query would already cost about a d^2 / 2, over 70 nats.
_HARDEST = 5e3
_SERIES_BELOW = 0.25
_SERIES_TERMS = 10
# Cells [orders, nodes] held at a time.
_CHUNK = 4_000_000


def sampled_label_gaussian_rdp(
    d: Float64[ndarray, " units"], rate: Float64[ndarray, " units"], orders: Float64[ndarray, " orders"]
) -> Float64[ndarray, "units orders"]:
    """RDP of one noisy histogram into which each unit's vote enters by a secret coin: exact, rounded up.

    d = s/sigma >= 0; rate: the coin's probability, in (0, 1]; orders > 1. The pair's likelihood ratio is p(x_a)/p(x_b)
    with p(x) = 1 - g + g exp(d x - d^2/2) and independent standard normal x under the common base N(0), so
    e^((a-1) D_a) = E[p^a] E[p^(1-a)]: the sum of the two directions of the add/remove pair. Never above a d^2, the cost
    of a vote that always enters. Raises InvalidInput for a value out of range.
    """
    forward, reverse = _both_directions(d, rate, orders)
    return np.minimum((forward + reverse) * (1 + _MARGIN), orders[None, :] * d[:, None] ** 2)


def sampled_bit_gaussian_rdp(
    d: Float64[ndarray, " units"], rate: Float64[ndarray, " units"], orders: Float64[ndarray, " orders"]
) -> Float64[ndarray, "units orders"]:
    """RDP of one threshold bit into which each unit's vote enters by a secret coin: an upper bound.

    d = s/sigma1. The bit is Bernoulli with a parameter between Phi(t) and (1-g) Phi(t) + g Phi(t + d) for either
    vote; a Renyi divergence of Bernoullis grows as their parameters move apart, so it is at most that of the ends, and
    that at most the add/remove pair's (data processing), in the larger of both directions. Never above a d^2/2.
    """
    forward, reverse = _both_directions(d, rate, orders)
    return np.minimum(np.maximum(forward, reverse) * (1 + _MARGIN), orders[None, :] * d[:, None] ** 2 / 2)


def _both_directions(
    d: Float64[ndarray, " units"], rate: Float64[ndarray, " units"], orders: Float64[ndarray, " orders"]
) -> tuple[Float64[ndarray, "units orders"], Float64[ndarray, "units orders"]]:
    """D_a(mixture || N(0)) and D_a(N(0) || mixture), the add/remove pair of Mironov, Talwar & Zhang 2019."""
    check_orders(orders)
    if not (np.isfinite(d).all() and (d >= 0).all()):
        raise InvalidInput(f"d spans [{d.min()}, {d.max()}]; allowed: finite, >= 0")
    if not ((rate > 0).all() and (rate <= 1).all()):
        raise InvalidInput(f"rates span [{rate.min()}, {rate.max()}]; allowed: in (0, 1]")
    pairs, member = np.unique(np.stack([d, rate]), axis=1, return_inverse=True)
    values = np.stack([_pair(shift, g, tuple(orders.tolist())) for shift, g in pairs.T.tolist()], axis=1)
    return values[0, member], values[1, member]


@lru_cache(maxsize=1024)
def _pair(shift: float, g: float, orders: tuple[float, ...]) -> Float64[ndarray, "directions orders"]:
    """Both directions of one unit, kept: a study is planned and then made, with the same shifts and rates."""
    values = np.zeros((2, len(orders)))
    every = np.array(orders)
    # Orders within an octave share their nodes.
    octave = np.floor(np.log2(every)).astype(int)
    for group in np.unique(octave) if shift else ():
        chosen = octave == group
        a = every[chosen]
        if shift**2 * a.max() ** 1.5 > _HARDEST:
            # Far beyond any budget, so the cost of a vote that always enters is good enough.
            values[:, chosen] = a * shift**2 / 2
            continue
        values[0, chosen] = _log_moment(a, a.max(), shift, g) / (a - 1)
        values[1, chosen] = _log_moment(1 - a, a.max(), shift, g) / (a - 1)
    values.flags.writeable = False
    return values


def _log_moment(powers: Float64[ndarray, " powers"], largest: float, d: float, g: float) -> Float64[ndarray, " powers"]:
    """ln E[p(X)^b] for every power b outside (0, 1), X standard normal, by the trapezoid rule.

    As E[p] = 1, it is ln(1 + E[p^b - 1 - b (p - 1)]); the integrand is never negative (p^b is convex in p), so nothing
    cancels. The rule converges exponentially for this analytic integrand.
    """
    step = min(_STEP, _MIXTURE_STEP / (d * np.sqrt(largest)))
    peak = largest * d
    low, high = (-_REACH, peak + _REACH) if powers[0] > 1 else (-peak - _REACH, _REACH)
    count = int(np.ceil((high - low) / step)) + 1
    total = np.full(len(powers), -np.inf)
    chunk = max(1, _CHUNK // len(powers))
    for start in range(0, count, chunk):
        x = low + step * np.arange(start, min(start + chunk, count))
        log_weight = -x * x / 2 + np.log(step) - 0.5 * np.log(2 * np.pi)
        terms = _log_excess(powers[:, None], d * x - d * d / 2, g) + log_weight
        top = terms.max(axis=1)
        total = np.logaddexp(total, top + np.log(np.exp(terms - top[:, None]).sum(axis=1)))
    return np.logaddexp(0.0, total)


def _log_excess(
    b: Float64[ndarray, "powers 1"], exponent: Float64[ndarray, " nodes"], g: float
) -> Float64[ndarray, "powers nodes"]:
    """ln(p^b - 1 - b (p - 1)) for p = 1 - g + g e^exponent: a binomial series where b (p - 1) is small."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        u = g * np.expm1(np.minimum(exponent, 700.0))
        # 1 + u cancels where p is far below 1, as for rates next to 1: there logarithms of both parts are added.
        both = np.logaddexp(np.log1p(-g), np.log(g) + exponent)
        log_p = np.where(np.abs(exponent - 14.5) > 15.5, both, np.log1p(np.maximum(u, -1.0)))
        if g == 1.0:
            log_p = exponent
        near = (np.abs(b) + _SERIES_TERMS) * np.abs(u) < _SERIES_BELOW
        # p^b (1 - (1 + b u) p^-b) where p^b is large; the difference itself where it is not.
        grown = b * log_p
        linear = 1.0 + b * u
        rest = np.where(exponent > 500.0, 0.0, np.clip(linear * np.exp(-grown), -np.inf, 1.0))
        large = grown + np.log1p(-np.minimum(rest, 1.0))
        plain = np.log(np.maximum(np.exp(np.minimum(grown, 1.0)) - linear, 0.0))
        value = np.where(grown > 0.0, large, plain)
        # The series, only where it is used: the remainder is below 1e-14 of it.
        v, power_of = np.broadcast_to(u, near.shape)[near], np.broadcast_to(b, near.shape)[near]
        term = power_of * (power_of - 1) / 2 * v * v
        series = term.copy()
        for power in range(3, 3 + _SERIES_TERMS):
            term *= (power_of - power + 1) / power * v
            series += term
        value[near] = np.log(np.maximum(series, 0.0))
        return value
