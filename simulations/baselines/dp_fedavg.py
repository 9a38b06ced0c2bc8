"""DP-FedAvg (McMahan et al. 2018): federated averaging in which no party's data change the model by much.

Every party takes part in every round, so no secret of who was sampled is needed. Secure aggregation is assumed: a
server sees the noisy sum of a round, and the noise is as large as if one trusted server had added it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from simulations.baselines.federated import held, local_update, start
from simulations.baselines.method import Score, Task
from simulations.baselines.noise_multiplier import noise_multiplier_for
from simulations.baselines.softmax import right_on_test

# Few rounds: each adds noise, and parties are few.
_ROUNDS: Final = 5
_LARGEST_UPDATE: Final = 1.0


def dp_fedavg(task: Task) -> Score:
    """DP-FedAvg of a softmax regression (McMahan et al. 2018, Algorithm 1, with equal weights of the parties).

    Its epsilon is of replacing all of a party's data. The number of parties is public.
    """
    noise = noise_multiplier_for(task.budget, rate=1.0, steps=_ROUNDS, delta=task.settings.delta)
    rng = np.random.default_rng([task.seed, *b"dp_fedavg"])
    parties, weights = held(task), start(task)
    for _ in range(_ROUNDS):
        updates = [local_update(rows, labels, weights) for rows, labels in parties]
        weights = weights + noisy_mean(updates, noise_multiplier=noise, rng=rng)
    return Score(right_on_test(weights, task.dataset), details={"noise_multiplier": noise})


def noisy_mean(
    updates: list[Float64[ndarray, "features classes"]], *, noise_multiplier: float, rng: np.random.Generator
) -> Float64[ndarray, "features classes"]:
    """The mean of updates, each cut to _LARGEST_UPDATE, with noise of noise_multiplier * _LARGEST_UPDATE on the sum."""
    total = sum(update / max(1.0, float(np.linalg.norm(update)) / _LARGEST_UPDATE) for update in updates)
    noise = noise_multiplier * _LARGEST_UPDATE * rng.standard_normal(updates[0].shape)
    return np.asarray((total + noise) / len(updates))
