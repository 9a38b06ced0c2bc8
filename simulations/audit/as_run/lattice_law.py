"""The exact law of a label of integer noise, summed over all noise of one class: no formula of a mechanism's is used.

Noise is given by its probabilities on whole lattice units, so sums of several servers' or parties' noise are as exact
as a single discrete Gaussian (Canonne, Kamath, Steinke 2020, Definition 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

# Discrete Gaussians are cut off where their probability is below rounding.
_REACH = 13.0


@dataclass(frozen=True, eq=False)
class IntegerNoise:
    """Probabilities of -reach, ..., reach lattice units."""

    masses: Float64[ndarray, " values"]

    @property
    def reach(self) -> int:
        """The largest value, in lattice units."""
        return (len(self.masses) - 1) // 2

    @cached_property
    def below(self) -> Float64[ndarray, " values"]:
        """P[noise <= value] of each value."""
        return np.minimum(np.cumsum(self.masses), 1.0)

    def at_most(self, values: Int64[ndarray, "..."]) -> Float64[ndarray, "..."]:
        """P[noise <= values]."""
        padded = np.concatenate([[0.0], self.below, [1.0]])
        return padded[np.clip(values + self.reach + 1, 0, len(padded) - 1)]


@lru_cache(maxsize=32)
def summed_noise(sigma_units: float, *, sources: int) -> IntegerNoise:
    """The sum of so many independent discrete Gaussians of this sigma."""
    reach = int(np.ceil(_REACH * sigma_units))
    one = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma_units**2))
    one /= one.sum()
    total = one
    for _ in range(sources - 1):
        total = np.convolve(total, one)
    return IntegerNoise(total)


def integer_laws(
    counts: Int64[ndarray, "queries classes"],
    label: IntegerNoise,
    *,
    threshold: int | None,
    threshold_noise: IntegerNoise | None,
) -> Float64[ndarray, "queries outcomes"]:
    """The law over the classes and, last, no answer. counts, threshold: in lattice units.

    Ties go to the first class. threshold_noise: of a test of its own; None: the noisy maximum itself must reach it.
    """
    queries, classes = counts.shape
    values = np.arange(-label.reach, label.reach + 1)
    laws = np.zeros((queries, classes + 1))
    for own in range(classes):
        noisy = counts[:, own, None] + values
        won = np.broadcast_to(label.masses, noisy.shape)
        for other in range(classes):
            if other != own:
                # Of two equal noisy counts the first class wins.
                won = won * label.at_most(noisy - counts[:, other, None] - (other < own))
        if threshold is not None and threshold_noise is None:
            won = won * (noisy >= threshold)
        laws[:, own] = won.sum(axis=1)
    if threshold is not None and threshold_noise is not None:
        laws *= 1 - threshold_noise.at_most(threshold - 1 - counts.max(axis=1))[:, None]
    if threshold is not None:
        laws[:, -1] = np.clip(1 - laws[:, :-1].sum(axis=1), 0.0, 1.0)
    return laws
