"""What students learn: for each input the weight of each class, f32 [inputs, classes], as they are made and read.

A hard label is a one-hot row, a soft label a row that sums to 1, and a row times its reliability counts so much less.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from protocols.errors import InvalidInput


def one_hot(labels: Int64[ndarray, " labels"], classes: int) -> Float32[ndarray, "labels classes"]:
    """Rows with 1 at the label and 0 elsewhere. Raises InvalidInput for a label that is no class."""
    if len(labels) and not (labels.min() >= 0 and labels.max() < classes):
        raise InvalidInput(f"labels span [{labels.min()}, {labels.max()}]; allowed: [0, {classes - 1}]")
    rows = np.zeros((len(labels), classes), np.float32)
    rows[np.arange(len(labels)), labels] = 1
    return rows


def normalised(targets: Float32[ndarray, "inputs classes"]) -> Float32[ndarray, "inputs classes"]:
    """Targets whose weights sum to the number of inputs: only ratios of weights count. One-hot rows are unchanged."""
    return targets / np.float32(targets.sum(dtype=np.float64) / len(targets))


def seen_classes(targets: Float32[ndarray, "inputs classes"]) -> Int64[ndarray, " seen"]:
    """The classes with any weight, ascending."""
    return np.flatnonzero(targets.any(axis=0))


def weighted_rows(
    inputs: Float32[ndarray, "inputs ..."], targets: Float32[ndarray, "inputs classes"]
) -> tuple[Float32[ndarray, "rows features"], Int64[ndarray, " rows"], Float32[ndarray, " rows"]]:
    """Flattened inputs, labels and weights, for models of hard labels: each input once for each class with a weight.

    For one-hot targets these are the inputs in their order, with weight 1 each.
    """
    places, labels = np.nonzero(targets)
    return inputs.reshape(len(inputs), -1)[places], labels, normalised(targets)[places, labels]
