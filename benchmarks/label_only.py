"""Label-only costs of 250 distinct weights at 60 orders: in the table, outside it, and again, side by side in one run.

    python benchmarks/label_only.py

The straightforward way is one supremum per pair, by branch and bound; it is timed on some pairs and scaled up.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from protocols.bounds.label_only import ORDERS, label_rdp
from protocols.bounds.label_supremum import label_supremum

WEIGHTS, SIGMA, SAMPLE = 250, 40.0, 100


def seconds(work: Callable[[], object]) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    """Prints seconds and ratios."""
    d = np.random.default_rng(0).uniform(0.2, 3.0, WEIGHTS)[:, None] / SIGMA
    inside, outside = ORDERS[20:80], np.linspace(1.31, 63.7, 60)
    few = outside[:3]
    rows = {
        "in the table, first call (reads it)": seconds(lambda: label_rdp(d, inside, classes=10)),
        "in the table": seconds(lambda: label_rdp(d, inside, classes=10)),
        "outside, all pairs, first call": seconds(lambda: label_rdp(d, outside, classes=10)),
        "outside, all pairs": seconds(lambda: label_rdp(d, outside, classes=10)),
        "outside, 750 pairs, first call": seconds(lambda: label_rdp(d, few, classes=10)),
        "outside, 750 pairs": seconds(lambda: label_rdp(d, few, classes=10)),
    }
    shifts, orders = (x.ravel()[:: d.size * 60 // SAMPLE] for x in np.broadcast_arrays(d, outside))
    plain = seconds(lambda: label_supremum(shifts, orders, tolerance=2e-5)) * d.size * 60 / len(shifts)
    for name, took in rows.items():
        print(f"{name:<40} {took:9.4f} s")
    print(f"{'one supremum a pair (extrapolated)':<40} {plain:9.4f} s, {plain / rows['outside, all pairs']:.0f} times")


if __name__ == "__main__":
    main()
