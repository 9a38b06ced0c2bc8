"""Exact discrete Gaussian noise: time of a batch and of a million draws, beside rounded normals of NumPy.

python benchmarks/discrete_gaussian.py [--draws 1000000]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from protocols.crypto.discrete_gaussian import discrete_gaussian, lattice_sigma
from protocols.crypto.prg import expanded_source
from protocols.crypto.randomness import RandomSource, system_source

SIGMAS_VOTES = (0.01, 1.0, 40.3, 1000.0, 1e5)
BATCH = 1000 * 11


def seconds(action: Callable[[], object]) -> float:
    """The best of three runs."""
    took = []
    for _ in range(3):
        start = time.perf_counter()
        action()
        took.append(time.perf_counter() - start)
    return min(took)


def drawing(source: RandomSource, sigma: Fraction, size: int) -> float:
    return seconds(lambda: discrete_gaussian(source, sigma=sigma, size=size))


def main() -> None:
    """One row per sigma: seconds from the operating system's bytes and from an expanded seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=1_000_000)
    draws = parser.parse_args().draws
    rng = np.random.default_rng(0)
    print(f"{'sigma (votes)':>13} {'batch, system':>14} {'batch, seed':>12} {'system':>12} {'seed':>10} {'/ NumPy':>8}")
    for votes in SIGMAS_VOTES:
        sigma = lattice_sigma(votes, units=64)
        sources = (system_source, expanded_source(bytes(32), label="benchmark"))
        batch = [drawing(source, sigma, BATCH) for source in sources]
        whole = [drawing(source, sigma, draws) for source in sources]
        rounded = rounding(rng, float(sigma), draws)
        print(
            f"{votes:13g} {1e3 * batch[0]:11.1f} ms {1e3 * batch[1]:9.1f} ms {whole[0]:10.2f} s {whole[1]:8.2f} s"
            f" {whole[0] / rounded:8.1f}"
        )
    print(
        f"batch: 1,000 queries x 11 draws; else {draws:,} draws; / NumPy: against rounded normals, which are not exact"
    )


def rounding(rng: np.random.Generator, sigma: float, size: int) -> float:
    return seconds(lambda: np.rint(sigma * rng.standard_normal(size)).astype(np.int64))


if __name__ == "__main__":
    main()
