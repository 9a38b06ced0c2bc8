"""Methods that only stand in tables of `conclave-simulate baselines`: a softmax regression, federated or with privacy.

    pip install ./benchmarks

- FedAvg, with every party in every round.
- DP-FedAvg (McMahan et al. 2018), in which no party's data change the model by much. Every party takes part in every
  round, so no secret of who was sampled is needed.
- DP-FTRL over parties (Kairouz et al. 2021): noise on running sums of updates, from trees that restart. Few parties
  take part in each round: in every epoch each party takes part in one.
- Output perturbation (Chaudhuri, Monteleoni and Sarwate 2011, Algorithm 1), on pooled records: the minimum of a
  regularised loss moves little when one record is replaced, so noise on it hides every record. Here with Gaussian
  noise, and with the softmax loss for several classes.

Secure aggregation is assumed: a server sees the noisy sum of a round, and the noise is as large as if one trusted
server had added it.
"""

from __future__ import annotations

from math import sqrt
from typing import Final

import numpy as np
from jaxtyping import Bool, Float64, Int64
from numpy import ndarray
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from benchmarks.linear import noise_multiplier_for, public_rows
from protocols.errors import InvalidInput
from simulations.baselines.method import Score, Task


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


def right_on_test(weights: Float64[ndarray, "features classes"], task: Task) -> Bool[ndarray, " test"]:
    """Whether the class with the largest score is right, of each test record."""
    scores = public_rows(task)(task.dataset.test_inputs) @ weights
    return np.asarray(scores.argmax(axis=1) == task.dataset.test_labels)


_ROUNDS: Final = 50
_LOCAL_STEPS: Final = 5
_LEARNING_RATE: Final = 2.0


def fedavg(task: Task) -> Score:
    """Federated averaging without privacy (McMahan et al. 2017, Algorithm 1), weighted by the parties' records."""
    parties = held(task)
    sizes = np.array([len(labels) for _, labels in parties], dtype=np.float64)
    weights = start(parties, task.dataset.classes)
    for _ in range(_ROUNDS):
        updates = np.stack([local_update(rows, labels, weights) for rows, labels in parties])
        weights = weights + np.tensordot(sizes / sizes.sum(), updates, axes=1)
    return Score(right_on_test(weights, task), details={"rounds": _ROUNDS})


def held(task: Task) -> list[tuple[Float64[ndarray, "records features"], Int64[ndarray, " records"]]]:
    """The rows and the labels of each party."""
    rows, labels = public_rows(task)(task.dataset.private_inputs), task.dataset.private_labels
    return [(rows[records], labels[records]) for records in task.holdings]


def start(
    parties: list[tuple[Float64[ndarray, "records features"], Int64[ndarray, " records"]]], classes: int
) -> Float64[ndarray, "features classes"]:
    """The first model: zeros."""
    return np.zeros((parties[0][0].shape[1], classes))


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


# Few rounds: each adds noise, and parties are few.
_PRIVATE_ROUNDS: Final = 5
_LARGEST_UPDATE: Final = 1.0


def dp_fedavg(task: Task) -> Score:
    """DP-FedAvg of a softmax regression (McMahan et al. 2018, Algorithm 1, with equal weights of the parties).

    Its epsilon is of replacing all of a party's data. The number of parties is public.
    """
    noise = noise_multiplier_for(task.budget, rate=1.0, steps=_PRIVATE_ROUNDS, delta=task.settings.delta)
    rng = np.random.default_rng([task.seed, *b"dp_fedavg"])
    parties = held(task)
    weights = start(parties, task.dataset.classes)
    for _ in range(_PRIVATE_ROUNDS):
        updates = [local_update(rows, labels, weights) for rows, labels in parties]
        weights = weights + noisy_mean(updates, noise_multiplier=noise, rng=rng)
    return Score(right_on_test(weights, task), details={"noise_multiplier": noise})


def noisy_mean(
    updates: list[Float64[ndarray, "features classes"]], *, noise_multiplier: float, rng: np.random.Generator
) -> Float64[ndarray, "features classes"]:
    """The mean of updates, each cut to _LARGEST_UPDATE, with noise of noise_multiplier * _LARGEST_UPDATE on the sum."""
    total = sum(update / max(1.0, float(np.linalg.norm(update)) / _LARGEST_UPDATE) for update in updates)
    noise = noise_multiplier * _LARGEST_UPDATE * rng.standard_normal(updates[0].shape)
    return np.asarray((total + noise) / len(updates))


# Few epochs: a party pays for each. Parties are few, so a round has a quarter of them.
EPOCHS: Final = 2
ROUNDS: Final = 4
_LARGEST_FTRL_UPDATE: Final = 1.0


def dp_ftrl(task: Task) -> Score:
    """DP-FTRL of a softmax regression (Kairouz et al. 2021, Algorithm 1, with a tree for each epoch).

    Its epsilon is of replacing all of a party's data. A party is in one leaf of each tree, and so in depth() of its
    noisy sums: the whole is as private as EPOCHS * depth() Gaussian sums of all parties. No score for fewer parties
    than rounds.
    """
    parties = held(task)
    if len(parties) < ROUNDS:
        return Score(None, note=f"needs at least {ROUNDS} parties, one for each round of an epoch")
    noise = noise_multiplier_for(task.budget, rate=1.0, steps=EPOCHS * depth(ROUNDS), delta=task.settings.delta)
    rng = np.random.default_rng([task.seed, *b"dp_ftrl"])
    weights = start(parties, task.dataset.classes)
    for _ in range(EPOCHS):
        before, total = weights, np.zeros_like(weights)
        noisy = prefix_noise(ROUNDS, weights.shape, scale=noise * _LARGEST_FTRL_UPDATE, rng=rng)
        for at, chosen in enumerate(np.array_split(rng.permutation(len(parties)), ROUNDS)):
            for party in chosen:
                rows, labels = parties[party]
                update = local_update(rows, labels, weights)
                total += update / max(1.0, float(np.linalg.norm(update)) / _LARGEST_FTRL_UPDATE)
            # A round has a share of the parties, so the sum of its updates is over that share.
            weights = before + (total + noisy[at]) * ROUNDS / len(parties)
    return Score(right_on_test(weights, task), details={"noise_multiplier": noise})


def depth(leaves: int) -> int:
    """How many nodes of the tree over these leaves a leaf is in, at most."""
    return (leaves - 1).bit_length() + 1


def prefix_noise(
    leaves: int, shape: tuple[int, ...], *, scale: float, rng: np.random.Generator
) -> Float64[ndarray, "leaves ..."]:
    """The noise of each running sum over the leaves: that of the fewest nodes of the tree that make the sum up.

    Every node has Gaussian noise of standard deviation `scale` (Dwork et al. 2010; Chan et al. 2011).
    """
    node: dict[tuple[int, int], ndarray] = {}
    sums = np.zeros((leaves, *shape))
    for done in range(1, leaves + 1):
        end = done
        while end:
            size = end & -end
            if (end, size) not in node:
                node[end, size] = scale * rng.standard_normal(shape)
            sums[done - 1] += node[end, size]
            end -= size
    return sums


# The length of a record's gradient of the softmax loss, of a row in the unit ball: that of probabilities less one-hot.
_LIPSCHITZ: Final = sqrt(2)
# The fit stops below this length of the gradient, and counts as moved by as much as that allows.
_GRADIENT_LEFT: Final = 1e-6
_LEAST_REGULARISATION: Final = 1e-4
# The standard deviation of each weight's noise that decides how much is regularised, where that is more.
_USUAL_NOISE: Final = 0.3


def output_perturbation(task: Task) -> Score:
    """The minimum of the regularised softmax loss, and Gaussian noise on it (the calibration: Balle and Wang 2018).

    Rows have length 1. How much is regularised follows from the number of records and epsilon, which are public.
    """
    dataset = task.dataset
    multiplier = noise_multiplier_for(task.budget, rate=1.0, steps=1, delta=task.settings.delta)
    rows, labels = public_rows(task)(dataset.private_inputs), dataset.private_labels
    # A multiplier is over how far one record moves the minimum, which is half of what replacing it does.
    strength = max(_LEAST_REGULARISATION, multiplier * moved_by(len(rows), 1.0) / 2 / _USUAL_NOISE)
    noise = multiplier * moved_by(len(rows), strength) / 2
    weights = minimum(rows, labels, classes=dataset.classes, strength=strength)
    rng = np.random.default_rng([task.seed, *b"output perturbation"])
    noisy = weights + noise * rng.standard_normal(weights.shape)
    return Score(right_on_test(noisy, task), details={"noise_multiplier": multiplier})


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
