"""Graded votes and what a curator reaches, on the 60,000 images of Fashion-MNIST or of MNIST.

    python -m benchmarks.sixty_thousand --data-dir DATA --rows runs/sixty_thousand.csv

Pool and test images are drawn anew for each seed as in mnist_halves, and 250 parties hold the 60,000 training images.
All methods are linear in the features phi that graded votes choose for the pool, the records and epsilon. --rows is
added to: row and column of the table of benchmarks/every-method.md (a column for each epsilon), a 1, the seed, and the
share of test images that are right (of the first row, of the pool's).
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.linear import Fit, adassp, dp_sgd
from benchmarks.mnist_halves import DELTA, Half, graded_queries, of_graded
from protocols.sums.blocks import NORM_STEPS
from simulations.datasets.dataset import DatasetRequest, as_published
from simulations.datasets.published_images import load_fashion_mnist, load_mnist

_SETS: Final = {"fashion_mnist": load_fashion_mnist, "mnist": load_mnist}
_CURATORS: Final[dict[str, Fit]] = {"dp_sgd": dp_sgd, "adassp": adassp}
_METHODS: Final = ("labels of the pool", "graded_votes", "graded_twice", *_CURATORS)


def main() -> None:
    """Prints and keeps the rows of each seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--dataset", choices=_SETS, default="fashion_mnist")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--epsilons", default="0.5")
    parser.add_argument("--parties", type=int, default=250)
    parser.add_argument("--rows", type=Path, required=True)
    asked = parser.parse_args()
    data = _SETS[asked.dataset](DatasetRequest(data_dir=asked.data_dir, seed=0), as_published)
    for seed in map(int, asked.seeds.split(",")):
        half = Half(data, seed)
        for column, epsilon in enumerate(map(float, asked.epsilons.split(",")), 2):
            for method, right in _rights(half, epsilon, asked.parties):
                print(f"epsilon {epsilon:g}, seed {seed}, {method}: {right:.4f}", flush=True)
                with asked.rows.open("a", encoding="utf-8", newline="") as file:
                    row = (1 + _METHODS.index(method), column, 1, seed, f"{right:.4f}")
                    csv.writer(file, lineterminator="\n").writerow(row)


def _rights(half: Half, epsilon: float, parties: int) -> Iterator[tuple[str, float]]:
    """Each method, and how often it is right."""
    queries = graded_queries(half, epsilon)
    for method in ("graded_votes", "graded_twice"):
        soft, right = of_graded(half, epsilon, queries, parties=parties, residuals=method == "graded_twice")
        if method == "graded_votes":
            yield _METHODS[0], float((soft.argmax(axis=1) == half.truth).mean())
        yield method, right
    records, pool, test = (queries.phi(each) / NORM_STEPS for each in (half.records, half.of_pool, half.of_test))
    for method, fit in _CURATORS.items():
        rng = np.random.default_rng([half.seed, *method.encode()])
        predict = fit(records, half.labels, pool, half.classes, epsilon, DELTA, rng)
        yield method, float((predict(test) == half.test_labels).mean())


if __name__ == "__main__":
    main()
