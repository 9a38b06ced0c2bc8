"""Smooth sensitivity: vectorised against one query and one vote at a time, in the same run; results must be equal.

    CONCLAVE_DATA=<folder> python benchmarks/smooth_sensitivity.py [queries]

The published MNIST votes (9,000 queries, 250 teachers, 10 classes) at sigma 40 and order 14. The straightforward
code follows Papernot et al. 2018, Algorithms 3-5, step by step. Bounded: it runs on `queries` (default 600) and is
scaled to all of them; give 9000 for the whole of it (about a minute).
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.optimize import brentq
from scipy.special import erfc, erfcinv, log_ndtr, logsumexp

from benchmarks.smooth import VoteSetting, distance_bounds, smooth_sensitivity

SIGMA, ORDER, BETA = 40.0, 14.0, 0.46 / 14.0


def straightforward_cost(sigma: float, order: float) -> tuple[Callable[[float], float], float]:
    """Theorem 6 as it is written, and ln q0 above which the Gaussian bound is smaller."""

    def dependent(log_q: float) -> float:
        mu2 = sigma * math.sqrt(-log_q)
        eps1, eps2 = (mu2 + 1) / sigma**2, mu2 / sigma**2
        log_rest = math.log1p(-math.exp(log_q))
        log_a = (order - 1) * (log_rest - math.log1p(-math.exp((log_q + eps2) * (1 - 1 / mu2))))
        log_b = (order - 1) * (eps1 - log_q / mu2)
        return float(np.logaddexp(log_rest + log_a, log_q + log_b)) / (order - 1)

    highest = -(max(sigma + 1, order - 0.99) ** 2) / sigma**2
    independent = order / sigma**2
    log_q0 = highest
    if dependent(highest) > independent:
        lowest = 2 * highest
        while dependent(lowest) > independent:
            lowest *= 2
        log_q0 = brentq(lambda log_q: dependent(log_q) - independent, lowest, highest, xtol=1e-14, rtol=1e-14)
    return (lambda log_q: independent if log_q >= log_q0 else dependent(log_q)), log_q0


def straightforward_bounds(histogram: list[float], *, sigma: float, order: float, teachers: int) -> list[float]:
    """A(0), ..., A(teachers) of one query, one vote at a time. Does not check C5 and C6."""
    classes = len(histogram)
    cost, log_q0 = straightforward_cost(sigma, order)

    def step(log_q: float, shift: float) -> float:
        z = erfcinv(2 * math.exp(log_q) / (classes - 1))
        return math.log(min(1.0, (classes - 1) / 2 * erfc(z + shift / sigma)))

    log_q1 = step(log_q0, 1.0)

    def local(log_q: float) -> float:
        if log_q1 <= log_q <= log_q0:
            log_q = log_q1
        # B_U(q1) is q0 but for rounding, which may not put it on the lower side of a jump.
        above = cost(log_q0) if log_q == log_q1 else cost(step(log_q, -1.0))
        return max(above - cost(log_q), cost(log_q) - cost(step(log_q, 1.0)))

    def log_q_of(votes: list[float]) -> float:
        gaps = np.array([votes[0] - other for other in votes[1:]])
        return min(float(logsumexp(log_ndtr(-gaps / (math.sqrt(2) * sigma)))), math.log1p(-1 / classes))

    votes = sorted(histogram, reverse=True)
    bounds = [local(log_q1)] * (teachers + 1)
    log_q = log_q_of(votes)
    descends = log_q > log_q0
    for d in range(teachers + 1):
        if log_q1 <= log_q <= log_q0:
            break
        bounds[d] = local(log_q)
        if descends and votes[1] == 0:
            break
        move = 1 if descends else -1
        votes[0] += move
        votes[1] -= move
        votes[1:] = sorted(votes[1:], reverse=True)
        log_q = log_q_of(votes)
    return bounds


def main(queries: int = 600) -> None:
    data = Path(os.environ["CONCLAVE_DATA"]) / "pate_votes" / "pate2018" / "mnist_250_teachers.npy"
    counts = np.load(data)
    setting = VoteSetting(sigma=SIGMA, order=ORDER, classes=10, weights=np.ones(250), sensitivity=1)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        everything = distance_bounds(counts, setting, answered=np.ones(len(counts)))
        smooth_sensitivity(everything, beta=BETA)
        times.append(time.perf_counter() - start)
    start = time.perf_counter()
    total = np.zeros(251)
    for histogram in counts[:queries]:
        total += straightforward_bounds(histogram.tolist(), sigma=SIGMA, order=ORDER, teachers=250)
    slow = (time.perf_counter() - start) * len(counts) / queries
    vectorised = distance_bounds(counts[:queries], setting, answered=np.ones(queries)).for_research()
    np.testing.assert_allclose(vectorised, total, rtol=1e-9)
    fast = sorted(times)[2]
    print(f"{len(counts)} queries, order {ORDER:g}: vectorised {fast:.3f} s (promised: 0.5 s), "
          f"straightforward {slow:.1f} s (from {queries} queries), ratio {slow / fast:.0f}; bounds equal to "
          f"{np.abs(vectorised / total - 1).max():.1e}")  # fmt: skip


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
