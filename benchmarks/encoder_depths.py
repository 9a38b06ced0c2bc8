"""What the depths of `efficientnet_lite0` are worth: its last layer alone, without its first depth, and all of them.

For each, 64 principal components of the pool: how many labels of the pool are right that noisy sums of record votes
give (four partitions, a cluster for six public records), and a logistic regression of all private records on the test
part, without noise. A record has one unit of weight; sigma is the noise of a cell for that, 5.276 at epsilon 1 and
0.849 at epsilon 8 (docs/decisions/0034-record-votes-charge-the-sums.md).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from sklearn.decomposition import PCA

from coordinator.encoders import encoder_maker
from coordinator.encoders.efficientnet import DEPTHS
from coordinator.labelling.soft_labels import NoisySums, propagated_labels
from coordinator.queries.choice import clusters
from coordinator.students import student_kind
from coordinator.students.student import one_hot
from protocols.features.encoder import Encoder
from simulations import datasets
from simulations.datasets.dataset import DatasetRequest

_PARTITIONS, _COMPONENTS = 4, 64


def main() -> None:
    """Prints a line for each choice of depths: shares over all seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="breastmnist")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--sigma", type=float, default=0.849)
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    found: dict[str, list[tuple[float, float]]] = {}
    for seed in range(asked.seeds):
        data = datasets.load(asked.dataset, DatasetRequest(seed=seed, data_dir=asked.data_dir))
        content = encoder_maker("efficientnet_lite0", side=asked.side)(data.public_inputs)
        encoder = Encoder.of(content, data.public_inputs[:1])
        wide = [encoder(part) for part in (data.private_inputs, data.public_inputs, data.test_inputs)]
        for name, first in (("last", sum(DEPTHS[:-1])), ("without the first", DEPTHS[0]), ("all", 0)):
            fitted = PCA(_COMPONENTS, svd_solver="full").fit(wide[1][:, first:])
            private, pool, test = (fitted.transform(each[:, first:]).astype(np.float32) for each in wide)
            labels = labels_of(private, data.private_labels, pool, data.classes, asked.sigma, seed)
            pooled = student_kind("logistic_regression", device="cpu").fit(
                private,
                one_hot(data.private_labels, data.classes),
                unlabelled=pool[:0],
                classes=data.classes,
                seed=seed,
            )
            right = (labels == data.public_labels).mean(), (pooled.predict(test) == data.test_labels).mean()
            found.setdefault(name, []).append((float(right[0]), float(right[1])))
    for name, rights in found.items():
        labels_right, pooled_right = np.mean(rights, axis=0)
        print(f"{asked.dataset}; side {asked.side}; {name}; labels {labels_right:.3f}; pooled {pooled_right:.3f}")


def labels_of(
    private: np.ndarray, truth: np.ndarray, pool: np.ndarray, classes: int, sigma: float, seed: int
) -> np.ndarray:
    """The likeliest class of each record of the pool, of noisy sums of the private records' votes."""
    rng = np.random.default_rng([seed, *b"depths"])
    cells, members, before = [], [], 0
    for _ in range(_PARTITIONS):
        centres = clusters(pool, len(pool) // 6, drawn=int(rng.integers(2**31)))
        counts = np.zeros((len(centres), classes))
        np.add.at(counts, (_nearest(private, centres), truth), 1)
        cells.append(counts)
        members.append(before + _nearest(pool, centres))
        before += len(centres)
    spread = sigma * _PARTITIONS**0.5  # in records: each has 1 / sqrt(partitions) in each of its cells
    noisy = np.concatenate(cells) + rng.normal(0, spread, (before, classes))
    soft = propagated_labels(NoisySums(noisy, len(private), spread), np.stack(members, axis=1), pool)
    return soft.probabilities.argmax(axis=1)


def _nearest(rows: np.ndarray, centres: np.ndarray) -> np.ndarray:
    return ((centres**2).sum(axis=1) - 2 * rows @ centres.T).argmin(axis=1)


if __name__ == "__main__":
    main()
