"""Skewed partitions besides those of sizes and Dirichlet shares: each unit's party, from labels, features or a column.

The kinds of skew are those of Li et al. 2022, "Federated Learning on Non-IID Data Silos", section 3.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray

from protocols.errors import InvalidInput
from simulations.datasets.dataset import Dataset


def deal_classes(
    labels: Int64[ndarray, " units"], each: int, parties: int, rng: np.random.Generator
) -> Int64[ndarray, " units"]:
    """Units of at most `each` classes for each party; a class is divided evenly among the parties that drew it.

    A party draws successive classes of a random order, so classes have equally many parties, up to one. A party may be
    empty if there are more parties than units of its classes. Raises InvalidInput for more classes than there are, and
    for fewer parties than hold all classes.
    """
    present, label = np.unique(labels, return_inverse=True)
    if each > len(present):
        raise InvalidInput(f"partition classes has the parameter {each}; allowed: 1 to {len(present)}, the classes")
    if parties * each < len(present):
        raise InvalidInput(
            f"parties is {parties}, of {each} classes each; allowed: at least {-(-len(present) // each)}, "
            f"so that each of {len(present)} classes has a party"
        )
    drawn = rng.permutation(len(present))[np.arange(parties * each) % len(present)]
    holders = rng.permutation(parties).repeat(each)
    party = np.empty(len(labels), np.int64)
    for number in range(len(present)):
        units = rng.permutation(np.flatnonzero(label == number))
        party[units] = np.resize(rng.permutation(holders[drawn == number]), len(units))
    return party


def deal_in_order(key: Float64[ndarray, " units"], parties: int) -> Int64[ndarray, " units"]:
    """Successive ranges of the key, of equal size up to one unit, to successive parties; ties by position."""
    party = np.empty(len(key), np.int64)
    party[np.argsort(key, kind="stable")] = np.arange(len(key)) * parties // len(key)
    return party


def shifted_key(
    inputs: Float32[ndarray, "units ..."], strength: float, rng: np.random.Generator
) -> Float64[ndarray, " units"]:
    """strength x a random projection of the features, standardised, + N(0, 1): the larger, the more do the features of
    parties differ; 0 is a random order."""
    flat = inputs.reshape(len(inputs), -1)
    projected = flat @ rng.standard_normal(flat.shape[1])
    spread = projected.std()
    standard = (projected - projected.mean()) / spread if spread > 0 else np.zeros(len(flat))
    return np.asarray(strength * standard + rng.standard_normal(len(flat)))


def column_key(dataset: Dataset, column: str, units: Int64[ndarray, " units"]) -> Float64[ndarray, " units"]:
    """The values of a numeric column, as features. Raises InvalidInput for any other column."""
    start = 0
    for feature in dataset.columns:
        if feature.column == column and feature.kind == "numeric":
            return dataset.private_inputs[units, start].astype(np.float64)
        start += feature.width
    numeric = ", ".join(feature.column for feature in dataset.columns if feature.kind == "numeric")
    raise InvalidInput(
        f"partition by-column has the column {column!r}; allowed with {dataset.name}: {numeric or 'no column'}"
    )


def time_key(dataset: Dataset, column: str, unit: Int64[ndarray, " records"]) -> Float64[ndarray, " units"]:
    """When each unit was first seen: the earliest of its records. unit: of each private record. Raises InvalidInput for
    data without a column of time.
    """
    if dataset.private_times is None:
        raise InvalidInput(f"partition by-time has the column {column!r}; allowed: with a table of your own")
    first = np.full(int(unit.max()) + 1, np.inf)
    np.minimum.at(first, unit, dataset.private_times)
    return first
