"""Federated averaging of a softmax regression, with every party in every round."""

from __future__ import annotations

from typing import Final

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from simulations.baselines.method import Score, Task
from simulations.baselines.softmax import gradient, right_on_test, scaled_rows

_ROUNDS: Final = 50
_LOCAL_STEPS: Final = 5
_LEARNING_RATE: Final = 2.0


def fedavg(task: Task) -> Score:
    """Federated averaging without privacy (McMahan et al. 2017, Algorithm 1), weighted by the parties' records."""
    parties = held(task)
    sizes = np.array([len(labels) for _, labels in parties], dtype=np.float64)
    weights = start(task)
    for _ in range(_ROUNDS):
        updates = np.stack([local_update(rows, labels, weights) for rows, labels in parties])
        weights = weights + np.tensordot(sizes / sizes.sum(), updates, axes=1)
    return Score(right_on_test(weights, task.dataset), details={"rounds": _ROUNDS})


def held(task: Task) -> list[tuple[Float64[ndarray, "records features"], Int64[ndarray, " records"]]]:
    """The scaled rows and the labels of each party."""
    rows, labels = scaled_rows(task.dataset, task.dataset.private_inputs), task.dataset.private_labels
    return [(rows[records], labels[records]) for records in task.holdings]


def start(task: Task) -> Float64[ndarray, "features classes"]:
    """The first model: zeros, one row for each feature and one for the intercept."""
    features = int(np.prod(task.dataset.public_inputs.shape[1:]))
    return np.zeros((features + 1, task.dataset.classes))


def local_update(
    rows: Float64[ndarray, "records features"],
    labels: Int64[ndarray, " records"],
    weights: Float64[ndarray, "features classes"],
) -> Float64[ndarray, "features classes"]:
    """How a party's records move the model in _LOCAL_STEPS steps of gradient descent."""
    moved = weights
    for _ in range(_LOCAL_STEPS):
        moved = moved - _LEARNING_RATE * gradient(moved, rows, labels)
    return moved - weights
