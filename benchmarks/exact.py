"""Exact per-instance accounting on the PATE 2018 MNIST votes: against a plain quadrature, and beside Papernot 2018.

    CONCLAVE_DATA=... python benchmarks/exact.py

Confident-GNMax, T = 200, sigma1 = 150, sigma2 = 40, 640 queries, 250 votes of weight one, delta 1e-5, view label, unit
record. Both directions, joint over the threshold bit and the label. The plain quadrature computes the distribution of
every neighbour by itself; it is timed on some queries and scaled up. All figures depend on the votes.
"""

from __future__ import annotations

import os
import statistics
import time
from itertools import permutations
from pathlib import Path

import numpy as np
from scipy.special import log_ndtr, logsumexp

from benchmarks.exact_per_instance import QuerySetting, total_rdp
from benchmarks.papers.students import published_threshold_rdp
from protocols.bounds.rdp import rdp_to_epsilon
from protocols.research.data_dependent import answer_probability, total_label_rdp

ORDERS, QUERIES, SAMPLE, DELTA = np.arange(2.0, 51.0), 640, 8, 1e-5
SETTING = QuerySetting(sigma=40.0, threshold=200.0, sigma_threshold=150.0)
NODES = np.linspace(-9.0, 9.0, 361)


def plain_law(counts: np.ndarray) -> np.ndarray:
    """Log-probabilities of every label and of the refusal, by a trapezoid over the winner's noise."""
    gaps = (counts[:, None] - counts[None, :]) / SETTING.sigma
    np.fill_diagonal(gaps, np.inf)
    others = log_ndtr(NODES[:, None, None] + gaps).sum(axis=2)
    label = logsumexp(others - NODES[:, None] ** 2 / 2, axis=0) + np.log(NODES[1] - NODES[0]) - np.log(2 * np.pi) / 2
    gap = (counts.max() - 200.0) / 150.0
    return np.array([*(label + log_ndtr(gap)), log_ndtr(-gap)])


def plain(counts: np.ndarray) -> np.ndarray:
    """Both directions, every move by itself."""
    worst = np.zeros((2, len(ORDERS)))
    before, order = plain_law(counts), ORDERS[:, None]
    for a, b in permutations(range(len(counts)), 2):
        if counts[a] >= 1:
            move = np.zeros(len(counts))
            move[a], move[b] = -1.0, 1.0
            after = plain_law(counts + move)
            for d, (p, q) in enumerate(((before, after), (after, before))):
                worst[d] = np.maximum(worst[d], logsumexp(order * p + (1 - order) * q, axis=1) / (ORDERS - 1))
    return worst


def main() -> None:
    """Prints seconds, their ratio, the figure and its ratio to Papernot 2018's."""
    path = Path(os.environ["CONCLAVE_DATA"]) / "pate_votes" / "pate2018" / "mnist_250_teachers.npy"
    votes, one = np.load(path)[:QUERIES], np.ones(1)
    took = []
    for _ in range(3):
        start = time.perf_counter()
        exact = total_rdp(votes, ORDERS, setting=SETTING, sensitivity=one).for_research()[0]
        took.append(time.perf_counter() - start)
    start = time.perf_counter()
    some = votes[:: QUERIES // SAMPLE]
    slow = np.sum([plain(row) for row in some], axis=0)
    plain_s = (time.perf_counter() - start) * QUERIES / len(some)
    quick = total_rdp(some, ORDERS, setting=SETTING, sensitivity=one).for_research()[0]
    np.testing.assert_allclose(quick, slow.max(axis=0), rtol=1e-6, atol=1e-9)
    fast_s = statistics.median(took)
    print(f"640 x 10 x 49, joint, two-sided: {fast_s:.2f} s; quadrature {plain_s:.1f} s, {plain_s / fast_s:.0f} times")
    answers = answer_probability(votes.max(axis=1), threshold=200.0, sigma_threshold=150.0).for_research()
    label = total_label_rdp(votes, ORDERS, sigma=40.0, sensitivity=one, times=answers).for_research()[0]
    papernot = label + QUERIES * published_threshold_rdp(ORDERS, sigma_threshold=150.0, sensitivity=one)[0]
    for name in ("Mironov 2017", "Canonne et al. 2020"):
        older = name == "Mironov 2017"
        pair = [
            rdp - np.log(DELTA) / (ORDERS - 1) if older else rdp_to_epsilon(rdp, ORDERS, delta=DELTA)
            for rdp in (exact, papernot)
        ]
        best = [e.min() for e in pair]
        orders = [ORDERS[e.argmin()] for e in pair]
        print(
            f"{name}: exact per-instance {best[0]:.4f} (order {orders[0]:g}), Papernot 2018 expected {best[1]:.4f} "
            f"(order {orders[1]:g}), ratio {best[0] / best[1]:.3f}"
        )
    at = int(np.flatnonzero(ORDERS == 14)[0])
    print(f"RDP at order 14: {exact[at]:.4f} against {papernot[at]:.4f}, ratio {exact[at] / papernot[at]:.3f}")


if __name__ == "__main__":
    main()
