"""DP-SGD on pooled records (Abadi et al. 2016): the only file that imports Opacus.

Opacus clips each record's gradient and adds the noise; dp-accounting says how much noise an epsilon needs.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from jaxtyping import Float64, Int64
from numpy import ndarray
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from torch import nn

from simulations.baselines.method import Score, Task
from simulations.baselines.noise_multiplier import noise_multiplier_for
from simulations.baselines.softmax import accuracy, scaled_rows

SAMPLING_RATE: Final = 0.1
STEPS: Final = 200
_LARGEST_GRADIENT: Final = 1.0
_LEARNING_RATE: Final = 4.0


def dp_sgd(task: Task) -> Score:
    """DP-SGD of a softmax regression, with Poisson samples (Abadi et al. 2016, Algorithm 1).

    The number of private records is public, as neighbours replace one record. The noise is real-valued and its
    generator is seeded: good for a comparison, not for a release.
    """
    dataset, delta = task.dataset, task.settings.delta
    noise = noise_multiplier_for(task.budget, rate=SAMPLING_RATE, steps=STEPS, delta=delta)
    rows = scaled_rows(dataset, dataset.private_inputs)
    weights = trained(rows, dataset.private_labels, classes=dataset.classes, noise_multiplier=noise, seed=task.seed)
    return Score(accuracy(weights, dataset), details={"noise_multiplier": noise})


def trained(
    rows: Float64[ndarray, "records features"],
    labels: Int64[ndarray, " records"],
    *,
    classes: int,
    noise_multiplier: float,
    seed: int,
) -> Float64[ndarray, "features classes"]:
    """The weights after STEPS noisy steps from zero. noise_multiplier: see noise_multiplier_for."""
    samples = np.random.default_rng([seed, *b"dp_sgd samples"])
    model = GradSampleModule(_zeros(rows.shape[1], classes), loss_reduction="sum")
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=_LEARNING_RATE / (SAMPLING_RATE * len(rows))),
        noise_multiplier=noise_multiplier,
        max_grad_norm=_LARGEST_GRADIENT,
        expected_batch_size=None,
        loss_reduction="sum",
        generator=torch.Generator().manual_seed(int(np.random.SeedSequence(seed).generate_state(1)[0])),
    )
    all_rows, all_labels = torch.from_numpy(rows), torch.from_numpy(labels)
    for _ in range(STEPS):
        sampled = torch.from_numpy(samples.random(len(rows)) < SAMPLING_RATE)
        # Opacus warns of hooks on inputs that have no gradient.
        scores = model(all_rows[sampled].requires_grad_())
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(scores, all_labels[sampled], reduction="sum")
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no type here
        optimizer.step()
    return np.asarray(next(iter(model.parameters())).detach().numpy().T)


def _zeros(features: int, classes: int) -> nn.Linear:
    """A linear layer without intercept, as rows have a column of ones, whose weights are 0."""
    layer = nn.Linear(features, classes, bias=False, dtype=torch.float64)
    nn.init.zeros_(layer.weight)
    return layer
