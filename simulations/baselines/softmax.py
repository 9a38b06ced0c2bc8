"""Softmax regression on rows of about unit length: the model of the federated and the differentially private methods.

Rows are scaled by the public pool alone, so that no private record decides how another is scaled.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float64, Int64
from numpy import ndarray
from scipy.special import log_softmax, softmax

from simulations.datasets.dataset import Dataset


def scaled_rows(dataset: Dataset, inputs: ndarray) -> Float64[ndarray, "records features+1"]:
    """Flat inputs over the root mean square length of the public pool's rows, and a column of ones."""
    pool = dataset.public_inputs.reshape(len(dataset.public_inputs), -1).astype(np.float64)
    length = float(np.sqrt((pool**2).sum(axis=1).mean())) or 1.0
    flat = inputs.reshape(len(inputs), -1).astype(np.float64) / length
    return np.hstack([flat, np.ones((len(flat), 1))])


def loss(
    weights: Float64[ndarray, "features classes"],
    rows: Float64[ndarray, "records features"],
    labels: Int64[ndarray, " records"],
) -> float:
    """The mean cross-entropy in nats."""
    return float(-log_softmax(rows @ weights, axis=1)[np.arange(len(labels)), labels].mean())


def gradient(
    weights: Float64[ndarray, "features classes"],
    rows: Float64[ndarray, "records features"],
    labels: Int64[ndarray, " records"],
) -> Float64[ndarray, "features classes"]:
    """The gradient of the mean cross-entropy."""
    residual = softmax(rows @ weights, axis=1)
    residual[np.arange(len(labels)), labels] -= 1
    return np.asarray(rows.T @ residual / len(rows))


def right_on_test(weights: Float64[ndarray, "features classes"], dataset: Dataset) -> Bool[ndarray, " test"]:
    """Whether the class with the largest score is right, of each test record."""
    scores = scaled_rows(dataset, dataset.test_inputs) @ weights
    return np.asarray(scores.argmax(axis=1) == dataset.test_labels)
