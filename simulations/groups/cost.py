"""What privacy costs a group: the accuracy of the pooled model without privacy minus the student's, on its records.

Private training costs small and difficult groups more (Bagdasaryan, Poursaeed and Shmatikov 2019, "Differential Privacy
Has Disparate Impact on Model Accuracy"); PATE does, too, less than DP-SGD in the experiments of Uniyal et al. 2021,
"DP-SGD vs PATE: Which Has Less Disparate Impact on Model Accuracy?".

Both models are scored on the same records, so the difference is a mean over records. Its interval is a percentile
bootstrap (Efron and Tibshirani 1993, section 13.3) that draws records, and seeds where there are several, each with
replacement (the pigeonhole bootstrap of Owen 2007, "The Pigeonhole Bootstrap"). Seeds are drawn once for all groups, so
that groups are compared in the same worlds. With one seed it covers the choice of test records alone. Records are taken
as independent: where a patient has several, the interval is too short.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64
from numpy import ndarray

REPLICATES = 4000


@dataclass(frozen=True)
class Cost:
    """A difference of accuracies in [-1, 1], with the ends of its interval."""

    value: float
    low: float
    high: float


class Replicates:
    """Bootstrap replicates of costs: the same seeds for every group. Deterministic in what it is given."""

    def __init__(self, seeds: int) -> None:
        self._rng = np.random.default_rng([*b"the cost of privacy", seeds])
        self._seed_shares = self._rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=REPLICATES) / seeds

    def of(
        self, pooled: Bool[ndarray, " records"], students: Bool[ndarray, "seeds records"]
    ) -> Float64[ndarray, " replicates"]:
        """The cost in each replicate, of at least one record. pooled, students: whether each model is right."""
        # Records that all models get alike are drawn together: what counts is how many of each kind are drawn.
        kinds, times = np.unique(np.vstack([pooled, students]).T, axis=0, return_counts=True)
        drawn = self._rng.multinomial(len(pooled), times / len(pooled), size=REPLICATES) / len(pooled)
        private = np.einsum("rk,ks,rs->r", drawn, kinds[:, 1:], self._seed_shares, optimize=True)
        costs: Float64[ndarray, " replicates"] = drawn @ kinds[:, 0] - private
        return costs


def cost_of(pooled: Bool[ndarray, " records"], students: Bool[ndarray, "seeds records"]) -> float:
    """The cost on these records, of which there is at least one; a mean over seeds."""
    return float(pooled.mean() - students.mean())


def between(replicates: Float64[ndarray, " replicates"], *, level: float) -> tuple[float, float]:
    """The ends of a percentile interval that leaves out `1 - level`, half of it on each side; level: in (0, 1)."""
    low, high = np.quantile(replicates, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
