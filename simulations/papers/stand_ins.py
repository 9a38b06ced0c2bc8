"""Teachers that stand in for those of the papers, cheap enough to train hundreds on two cores.

Images: kernel ridge regression. A teacher may see a random part of the features only (Ho 1998, random subspaces), which
lowers the accuracy of single teachers and leaves that of the plurality. Rows of tables: random forests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from protocols.crypto.randomness import simulation_rng

_RIDGE: Final = 0.1
_TREES: Final = 100
_SEED: Final = 0


@dataclass(frozen=True)
class KernelRidge:
    """A teacher of images: Gaussian kernel of width the mean squared distance of its records, on a random part of the
    features. part: in (0, 1]."""

    part: float

    def __call__(
        self,
        inputs: Float32[ndarray, "records features"],
        labels: Int64[ndarray, " records"],
        queries: Float32[ndarray, "queries features"],
        teacher: int,
    ) -> Int64[ndarray, " queries"]:
        """The teacher's class of each query, among the classes that it has seen."""
        width = inputs.shape[1]
        chosen = np.sort(simulation_rng(_SEED, "part", teacher).permutation(width)[: round(self.part * width)])
        records, asked = inputs[:, chosen], queries[:, chosen]
        apart = _apart(records, records)
        scale = -1 / apart.mean()
        kernel = np.exp(scale * apart) + _RIDGE * np.eye(len(records), dtype=np.float32)
        seen, target = np.unique(labels, return_inverse=True)
        fitted = np.linalg.solve(kernel, np.eye(len(seen), dtype=np.float32)[target] - np.float32(1 / len(seen)))
        near = _apart(asked, records)
        near *= scale
        np.exp(near, out=near)
        return np.asarray(seen[(near @ fitted).argmax(axis=1)], np.int64)


def _apart(
    one: Float32[ndarray, "rows features"], other: Float32[ndarray, "columns features"]
) -> Float32[ndarray, "rows columns"]:
    """Squared distances."""
    found = one @ other.T
    found *= -2
    found += (one * one).sum(axis=1)[:, None]
    found += (other * other).sum(axis=1)
    return found


@dataclass(frozen=True)
class Forest:
    """A teacher of rows: a random forest of 100 trees, as scikit-learn has them."""

    def __call__(
        self,
        inputs: Float32[ndarray, "records features"],
        labels: Int64[ndarray, " records"],
        queries: Float32[ndarray, "queries features"],
        teacher: int,
    ) -> Int64[ndarray, " queries"]:
        """The teacher's class of each query, among the classes that it has seen."""
        from sklearn.ensemble import RandomForestClassifier

        forest = RandomForestClassifier(_TREES, random_state=teacher, n_jobs=1)
        return np.asarray(forest.fit(inputs, labels).predict(queries), np.int64)


Teacher = KernelRidge | Forest
