"""Papernot 2018's data-dependent RDP: vectorised against per-query code, side by side in one run.

    python benchmarks/papernot2018.py

Votes are synthetic (250 voters, strong pluralities), so that no data set is needed.
"""

from __future__ import annotations

import math
import statistics
import time

import numpy as np
from scipy.special import erfc

from protocols.research.papernot import total_label_rdp

SIGMA, QUERIES = 40.0, 9000
ORDERS = np.arange(2.0, 51.0)


def per_query(counts: np.ndarray) -> np.ndarray:
    """Theorem 6 as one would write it down: a loop over queries and orders."""
    total = np.zeros(len(ORDERS))
    for row in counts:
        top = int(row.argmax())
        q = min(0.5 * sum(erfc((row[top] - n) / (2 * SIGMA)) for i, n in enumerate(row) if i != top), 1 - 1 / len(row))
        log_q = math.log(q)
        mu2 = SIGMA * math.sqrt(-log_q)
        mu1 = mu2 + 1
        e1, e2 = mu1 / SIGMA**2, mu2 / SIGMA**2
        third = (mu2 - 1) * e2 - mu2 * (math.log(mu1 / (mu1 - 1)) + math.log(mu2 / (mu2 - 1))) if mu2 > 1 else -math.inf
        for index, a in enumerate(ORDERS):
            worst = a / SIGMA**2
            if a < mu1 and mu2 > 1 and log_q + e2 < 0 and log_q <= third:
                big_a = (1 - q) / (1 - math.exp((log_q + e2) * (1 - 1 / mu2)))
                big_b = math.exp(e1 - log_q / (mu1 - 1))
                worst = min(worst, math.log((1 - q) * big_a ** (a - 1) + q * big_b ** (a - 1)) / (a - 1))
            total[index] += worst
    return total


def main() -> None:
    """Prints seconds and the ratio for 10 and for 150 classes."""
    rng = np.random.default_rng(0)
    for classes in (10, 150):
        share = np.concatenate([[0.8], np.full(classes - 1, 0.2 / (classes - 1))])
        counts = rng.multinomial(250, share, size=QUERIES).astype(float)
        took = []
        for _ in range(7):
            start = time.perf_counter()
            total = total_label_rdp(counts, ORDERS, sigma=SIGMA, sensitivity=np.ones(1))
            took.append(time.perf_counter() - start)
        start = time.perf_counter()
        plain = per_query(counts)
        plain_s = time.perf_counter() - start
        np.testing.assert_allclose(total.for_research()[0], plain, rtol=1e-9)
        median = statistics.median(took)
        print(
            f"{QUERIES} queries x {classes} classes x {len(ORDERS)} orders: {1e3 * median:.1f} ms; "
            f"per query {plain_s:.2f} s, {plain_s / median:.0f} times slower; totals equal within 1e-9"
        )


if __name__ == "__main__":
    main()
