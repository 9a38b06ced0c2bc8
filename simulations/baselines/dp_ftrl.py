"""DP-FTRL over parties (Kairouz et al. 2021): noise on running sums of updates, from trees that restart.

Unlike DP-FedAvg, few parties take part in each round, and no secret of who was sampled is needed: in every epoch each
party takes part in one round. Secure aggregation is assumed, as for DP-FedAvg.
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

# Few epochs: a party pays for each. Parties are few, so a round has a quarter of them.
EPOCHS: Final = 2
ROUNDS: Final = 4
_LARGEST_UPDATE: Final = 1.0


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
    weights = start(task)
    for _ in range(EPOCHS):
        before, total = weights, np.zeros_like(weights)
        noisy = prefix_noise(ROUNDS, weights.shape, scale=noise * _LARGEST_UPDATE, rng=rng)
        for at, chosen in enumerate(np.array_split(rng.permutation(len(parties)), ROUNDS)):
            for party in chosen:
                rows, labels = parties[party]
                update = local_update(rows, labels, weights)
                total += update / max(1.0, float(np.linalg.norm(update)) / _LARGEST_UPDATE)
            # A round has a share of the parties, so the sum of its updates is over that share.
            weights = before + (total + noisy[at]) * ROUNDS / len(parties)
    return Score(right_on_test(weights, task.dataset), details={"noise_multiplier": noise})


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
