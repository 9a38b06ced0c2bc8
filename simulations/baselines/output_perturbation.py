"""Differentially private logistic regression by output perturbation, on pooled records.

Chaudhuri, Monteleoni and Sarwate 2011, Algorithm 1: the minimum of a regularised loss moves little when one record is
replaced, so noise on it hides every record. Here with Gaussian noise, and with the softmax loss for several classes.
"""

from __future__ import annotations

from math import sqrt
from typing import Final

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray
from scipy.optimize import minimize

from protocols.errors import InvalidInput
from simulations.baselines.method import Score, Task
from simulations.baselines.noise_multiplier import noise_multiplier_for
from simulations.baselines.softmax import gradient, loss, right_on_test, scaled_rows

# The length of a record's gradient of the softmax loss, of a row in the unit ball: that of probabilities less one-hot.
_LIPSCHITZ: Final = sqrt(2)
# The fit stops below this length of the gradient, and counts as moved by as much as that allows.
_GRADIENT_LEFT: Final = 1e-6
_LEAST_REGULARISATION: Final = 1e-4
# The standard deviation of each weight's noise that decides how much is regularised, where that is more.
_USUAL_NOISE: Final = 0.3


def output_perturbation(task: Task) -> Score:
    """The minimum of the regularised softmax loss, and Gaussian noise on it (the calibration: Balle and Wang 2018).

    Rows are cut to the unit ball. How much is regularised follows from the number of records and epsilon, which are
    public.
    """
    dataset = task.dataset
    multiplier = noise_multiplier_for(task.budget, rate=1.0, steps=1, delta=task.settings.delta)
    rows, labels = unit_rows(scaled_rows(dataset, dataset.private_inputs)), dataset.private_labels
    # A multiplier is over how far one record moves the minimum, which is half of what replacing it does.
    strength = max(_LEAST_REGULARISATION, multiplier * moved_by(len(rows), 1.0) / 2 / _USUAL_NOISE)
    noise = multiplier * moved_by(len(rows), strength) / 2
    weights = minimum(rows, labels, classes=dataset.classes, strength=strength)
    rng = np.random.default_rng([task.seed, *b"output perturbation"])
    noisy = weights + noise * rng.standard_normal(weights.shape)
    # A test row's length changes no class's rank, so it is not cut.
    return Score(right_on_test(noisy, dataset), details={"noise_multiplier": multiplier})


def unit_rows(rows: Float64[ndarray, "records features"]) -> Float64[ndarray, "records features"]:
    """The rows, each no longer than 1."""
    return rows / np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))


def moved_by(records: int, strength: float) -> float:
    """How far the minimum moves at most when one of the records is replaced, as the fit finds it.

    Chaudhuri et al. 2011, Corollary 8, with the Lipschitz constant of the softmax loss; and twice how far the fit may
    end from the minimum, as the loss is `strength`-strongly convex.
    """
    return 2 * _LIPSCHITZ / (records * strength) + 2 * _GRADIENT_LEFT / strength


def minimum(
    rows: Float64[ndarray, "records features"], labels: Int64[ndarray, " records"], *, classes: int, strength: float
) -> Float64[ndarray, "features classes"]:
    """The weights that minimise the mean cross-entropy plus strength / 2 times their squared length.

    Raises InvalidInput where the fit does not end near enough to the minimum.
    """
    shape = (rows.shape[1], classes)

    def regularised(flat: Float64[ndarray, " weights"]) -> float:
        return loss(flat.reshape(shape), rows, labels) + strength / 2 * float(flat @ flat)

    def slope(flat: Float64[ndarray, " weights"]) -> Float64[ndarray, " weights"]:
        return gradient(flat.reshape(shape), rows, labels).ravel() + strength * flat

    found = minimize(
        regularised,
        np.zeros(shape[0] * shape[1]),
        jac=slope,
        method="L-BFGS-B",
        options={"gtol": _GRADIENT_LEFT / sqrt(shape[0] * shape[1]), "ftol": 0.0, "maxiter": 10_000, "maxfun": 20_000},
    )
    left = float(np.linalg.norm(slope(found.x)))
    if left > _GRADIENT_LEFT:
        raise InvalidInput(f"the fit of output perturbation ends at a gradient of {left}; allowed: {_GRADIENT_LEFT}")
    return np.asarray(found.x.reshape(shape))
