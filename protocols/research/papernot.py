"""Data-dependent RDP of GNMax and of its threshold test (Papernot et al. 2018, arXiv 1802.08908), individually.

Theorem 6 with Propositions 7 to 10: where the plurality is strong, a label costs much less than in the worst case, and
so does a threshold test whose outcome is nearly certain. The bound depends on the votes and holds in one direction
only, D(M(D) || M(D')); it serves to reproduce published figures and to compare. Results are Private: they may neither
stop a study nor be published.

Adjacency replace-one; view "label". q bounds the probability that the label is not the plurality's and is a property
of the histogram, with its actual weights and noise: the same for every unit. A unit of total weight s has the noise
sigma/s in place of sigma in Theorem 6, whose proof uses the neighbour through the Gaussian bound alone (Boenisch et
al. 2023, Appendix on individual RDP).
"""

from __future__ import annotations

import numpy as np
import scipy
from jaxtyping import Bool, Float64
from numpy import ndarray

from protocols.bounds.rdp import check_orders, check_sensitivity
from protocols.errors import InvalidInput
from protocols.noise import check_sigma
from protocols.research.private import Private

# Cells [queries, classes] and [queries, orders] held at a time: a few arrays of this size fit a core's cache.
_CHUNK = 200_000
# Below this sum of probabilities a row is computed in logarithms.
_TINY = 1e-280


def total_label_rdp(
    counts: Float64[ndarray, "queries classes"],
    orders: Float64[ndarray, " orders"],
    *,
    sigma: float,
    sensitivity: Float64[ndarray, " units"],
    times: Float64[ndarray, " queries"] | None = None,
) -> Private[Float64[ndarray, "units orders"]]:
    """Sum over queries of the label's RDP, for units of each total weight: Theorem 6, or the Gaussian bound if less.

    Where a condition of Theorem 6 fails, the Gaussian bound a s^2/sigma^2 stands, as in the theorem. counts: weighted
    votes, >= 0, finite, of m >= 2 classes; orders > 1; sensitivity: votes, > 0. Each query counts `times` (in [0, 1];
    None: once). Memory is bounded by chunks. Raises InvalidInput.

    times: 1 and 0 for queries that were answered and were not, or their answer probabilities for an expectation.
    """
    _check(counts, orders, sigma, sensitivity)
    often = _often(times, len(counts))
    return Private(_total(_log_q(counts, sigma), orders, sigma / sensitivity, often))


def each_label_rdp(
    counts: Float64[ndarray, "queries classes"],
    orders: Float64[ndarray, " orders"],
    *,
    sigma: float,
    sensitivity: float,
) -> Private[Float64[ndarray, "queries orders"]]:
    """Each label's RDP for one unit of this total weight: the terms of which `total_label_rdp` is the sum.

    Arguments and errors as there; one row of orders a query, held at once.
    """
    _check(counts, orders, sigma, np.array([sensitivity]))
    return Private(_theorem_6(_log_q(counts, sigma), orders, sigma / sensitivity))


def total_threshold_rdp(
    top: Float64[ndarray, " queries"],
    orders: Float64[ndarray, " orders"],
    *,
    sigma_threshold: float,
    threshold: float,
    sensitivity: Float64[ndarray, " units"],
    times: Float64[ndarray, " queries"] | None = None,
) -> Private[Float64[ndarray, "units orders"]]:
    """Sum over queries of the threshold tests' RDP, as the paper charges them: Theorem 6, or the worst case if less.

    Theorem 6 holds for any mechanism with the Gaussian's RDP curve. A test has two outcomes, the less likely one of
    probability q = min(p, 1 - p), p that of an answer; and a moved vote changes the maximum by s where it changes the
    histogram by sqrt(2) s: sqrt(2) sigma_threshold/s takes the place of the theorem's sigma. top: the largest count (or
    tested difference) of each query; times: as for labels. Raises InvalidInput.
    """
    check_orders(orders)
    check_sensitivity(sensitivity)
    often = _often(times, len(top))
    distance = _distance(top, sigma_threshold, threshold)
    logs = scipy.special.log_ndtr(-np.abs(distance))
    return Private(_total(logs, orders, np.sqrt(2.0) * sigma_threshold / sensitivity, often))


def answer_probability(
    top: Float64[ndarray, " queries"], *, sigma_threshold: float, threshold: float
) -> Private[Float64[ndarray, " queries"]]:
    """P[max + N(0, sigma_threshold^2) >= threshold] of each query; top: the largest count (or tested difference)."""
    return Private(scipy.special.ndtr(_distance(top, sigma_threshold, threshold)))


def check_counts(counts: Float64[ndarray, "queries classes"]) -> None:
    """Raises InvalidInput unless counts are finite, >= 0, of at least one query and two classes."""
    if counts.ndim != 2 or counts.shape[0] < 1 or counts.shape[1] < 2:
        raise InvalidInput(f"counts of shape {counts.shape}; allowed: [queries, classes] with 2 classes or more")
    if not (np.isfinite(counts).all() and (counts >= 0).all()):
        raise InvalidInput("counts hold a negative or non-finite number of votes; allowed: finite, >= 0")


def _check(
    counts: Float64[ndarray, "queries classes"],
    orders: Float64[ndarray, " orders"],
    sigma: float,
    sensitivity: Float64[ndarray, " units"],
) -> None:
    check_counts(counts)
    check_orders(orders)
    check_sigma("sigma", sigma)
    check_sensitivity(sensitivity)


def _distance(
    top: Float64[ndarray, " queries"], sigma_threshold: float, threshold: float
) -> Float64[ndarray, " queries"]:
    """By how many standard deviations of the test's noise each tested number exceeds the threshold."""
    check_sigma("sigma_threshold", sigma_threshold)
    if not (np.isfinite(top).all() and np.isfinite(threshold)):
        raise InvalidInput(f"the threshold is {threshold} or a tested count is not finite; allowed: finite numbers")
    return (top - threshold) / sigma_threshold


def _often(times: Float64[ndarray, " queries"] | None, queries: int) -> Float64[ndarray, " queries"]:
    often = np.ones(queries) if times is None else times
    if often.shape != (queries,) or not ((often >= 0).all() and (often <= 1).all()):
        raise InvalidInput(
            f"times of shape {often.shape} span [{often.min()}, {often.max()}]; allowed: one in [0, 1] each"
        )
    return often


def _total(
    logs: Float64[ndarray, " queries"],
    orders: Float64[ndarray, " orders"],
    sigmas: Float64[ndarray, " units"],
    often: Float64[ndarray, " queries"],
) -> Float64[ndarray, "units orders"]:
    """The sum of Theorem 6 over queries, in chunks; sigmas: of each unit, at sensitivity 1."""
    total = np.zeros((len(sigmas), len(orders)))
    step = max(1, _CHUNK // len(orders))
    for unit, sigma in enumerate(sigmas.tolist()):
        for start in range(0, len(logs), step):
            part = slice(start, start + step)
            total[unit] += often[part] @ _theorem_6(logs[part], orders, sigma)
    return total


def _log_q(counts: Float64[ndarray, "queries classes"], sigma: float) -> Float64[ndarray, " queries"]:
    """ln q, q = min(1/2 sum_{j != i*} erfc((n_i* - n_j)/(2 sigma)), 1 - 1/m) (Papernot et al. 2018, Prop. 7).

    q is at least the probability that GNMax's label differs from the plurality i*. Exact down to ln q = -1e12. In
    chunks: erfc is summed directly, and in logarithms for rows where all terms underflow.
    """
    queries, classes = counts.shape
    logs = np.empty(queries)
    step = max(1, _CHUNK // classes)
    for start in range(0, queries, step):
        part = counts[start : start + step]
        row = np.arange(len(part))
        top = part.argmax(axis=1)
        gap = part[row, top][:, None] - part
        gap *= 0.5 / sigma
        # The plurality itself is left out of the sum.
        gap[row, top] = np.inf
        total = 0.5 * scipy.special.erfc(gap).sum(axis=1)
        tiny = total < _TINY
        with np.errstate(divide="ignore"):
            logs[start : start + step] = np.log(total)
        if tiny.any():
            each = scipy.special.log_ndtr(-gap[tiny] * np.sqrt(2.0))
            largest = each.max(axis=1)
            logs[start + np.flatnonzero(tiny)] = largest + np.log(np.exp(each - largest[:, None]).sum(axis=1))
    return np.minimum(logs, np.log1p(-1 / classes))


def _theorem_6(
    logs: Float64[ndarray, " queries"], orders: Float64[ndarray, " orders"], sigma: float
) -> Float64[ndarray, "queries orders"]:
    """Theorem 6 for sensitivity 1 and noise `sigma`, given ln q; the Gaussian bound where it does not apply."""
    worst = orders / sigma**2
    rdp = np.tile(worst, (len(logs), 1))
    mu2 = sigma * np.sqrt(-logs)
    valid = _conditions(logs, mu2, sigma) & (mu2 + 1 > orders.min())
    if not valid.any():
        return rdp
    logs, mu2 = logs[valid], mu2[valid]
    mu1 = mu2 + 1
    # ln(1 - q) and ln(1 - (q e^e2)^((mu2 - 1)/mu2)), of which A is the quotient (Prop. 8).
    log_1q = np.log1p(-np.exp(logs))
    log_1w = np.log1p(-np.exp((logs + mu2 / sigma**2) * (1 - 1 / mu2)))
    log_b = mu1 / sigma**2 - logs / (mu1 - 1)
    order = orders[None, :]
    stays = order * log_1q[:, None] - (order - 1) * log_1w[:, None]
    leaves = logs[:, None] + (order - 1) * log_b[:, None]
    # Far above the Gaussian bound the value does not matter; the cap keeps exp finite.
    power = np.expm1(np.minimum(stays, 600.0)) + np.exp(np.minimum(leaves, 600.0))
    bound = np.log1p(np.maximum(power, 0.0)) / (order - 1)
    large = np.maximum(stays, leaves) > 500.0
    if large.any():
        bound[large] = (np.logaddexp(stays, leaves) / (order - 1))[large]
    rdp[valid] = np.where(order < mu1[:, None], np.minimum(bound, worst), worst)
    return rdp


def _conditions(
    logs: Float64[ndarray, " queries"], mu2: Float64[ndarray, " queries"], sigma: float
) -> Bool[ndarray, " queries"]:
    """Theorem 6's conditions on q (Prop. 10), except a < mu1: mu2 > 1, q e^e2 < 1, and q below the third bound."""
    possible = mu2 > 1
    safe = np.where(possible, mu2, 2.0)
    e2 = safe / sigma**2
    third = (safe - 1) * e2 - safe * (np.log1p(1 / safe) + np.log(safe / (safe - 1)))
    return possible & (logs + e2 < 0) & (logs <= third)
