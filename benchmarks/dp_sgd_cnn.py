"""DP-SGD of a small convolutional network on pooled images (Abadi et al. 2016), by Opacus.

Opacus clips each record's gradient and adds the noise. All settings are usual values, not tuned; as De et al. 2022
advise, samples are large and the model is small. The noise is real-valued and its generator is seeded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy import ndarray
from torch import nn

from benchmarks.linear import noise_multiplier_for
from simulations.baselines.method import Score, Task
from simulations.datasets.dataset import Dataset


@dataclass(frozen=True, kw_only=True)
class Steps:
    """rate: the share of records in a Poisson sample; largest: the length that a record's gradient is cut to;
    learning_rate: of the mean of gradients over the largest length, so that it does not depend on that.
    """

    rate: float
    steps: int
    largest: float
    learning_rate: float


NETWORK: Final = Steps(rate=0.1, steps=100, largest=0.1, learning_rate=0.2)
_MOMENTUM: Final = 0.9
_FILTERS: Final = (16, 32)
_HIDDEN: Final = 32
_SMALLEST_IMAGE: Final = 16
_TESTED_AT_ONCE: Final = 1000


def dp_sgd_cnn(task: Task) -> Score:
    """DP-SGD of a small convolutional network on images; no score for tables and small images.

    The network is that of Papernot et al. 2021 (tempered sigmoids), with strides in the place of pooling.
    """
    dataset = task.inputs.dataset
    if dataset.kind != "image" or min(dataset.private_inputs.shape[1:3]) < _SMALLEST_IMAGE:
        return Score(None, note=f"needs images of at least {_SMALLEST_IMAGE} x {_SMALLEST_IMAGE} pixels")
    private, test = (_planes(dataset, part) for part in (dataset.private_inputs, dataset.test_inputs))
    torch_seed = int(np.random.SeedSequence([task.seed, *b"dp_sgd_cnn"]).generate_state(1)[0])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed)
        model = _network(private.shape[1:], dataset.classes)
    return _score(task, model, NETWORK, private, test)


def _score(task: Task, model: nn.Module, how: Steps, private: ndarray, test: ndarray) -> Score:
    labels, delta = task.dataset.private_labels, task.settings.delta
    noise = noise_multiplier_for(task.budget, rate=how.rate, steps=how.steps, delta=delta)
    trained(model, private, labels, how=how, noise_multiplier=noise, seed=task.seed)
    with torch.no_grad():
        scores = [model(torch.from_numpy(rows)) for rows in np.array_split(test, -(-len(test) // _TESTED_AT_ONCE))]
    predicted = torch.cat(scores).argmax(dim=1).numpy()
    return Score(predicted == task.dataset.test_labels, details={"noise_multiplier": noise})


def trained(
    model: nn.Module,
    inputs: Float[ndarray, "records ..."],
    labels: Int64[ndarray, " records"],
    *,
    how: Steps,
    noise_multiplier: float,
    seed: int,
) -> None:
    """Trains the model in place; its parameters become the mean over the second half of the steps, which is less noisy.

    noise_multiplier: see noise_multiplier_for.
    """
    # Opacus takes seconds to import.
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    samples = np.random.default_rng([seed, *b"dp_sgd samples"])
    watched = GradSampleModule(model, loss_reduction="sum")
    parameters = list(model.parameters())
    optimizer = DPOptimizer(
        torch.optim.SGD(parameters, lr=how.learning_rate / (how.largest * how.rate * len(inputs)), momentum=_MOMENTUM),
        noise_multiplier=noise_multiplier,
        max_grad_norm=how.largest,
        expected_batch_size=None,
        loss_reduction="sum",
        generator=torch.Generator().manual_seed(int(np.random.SeedSequence(seed).generate_state(1)[0])),
    )
    all_inputs, all_labels = torch.from_numpy(inputs), torch.from_numpy(labels)
    totals = [torch.zeros_like(each) for each in parameters]
    for step in range(how.steps):
        sampled = torch.from_numpy(samples.random(len(inputs)) < how.rate)
        # Opacus warns of hooks on inputs that have no gradient.
        scores = watched(all_inputs[sampled].requires_grad_())
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(scores, all_labels[sampled], reduction="sum")
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no type here
        optimizer.step()
        if step >= how.steps // 2:
            for total, each in zip(totals, parameters, strict=True):
                total += each.detach()
    watched.remove_hooks()
    with torch.no_grad():
        for total, each in zip(totals, parameters, strict=True):
            each.copy_(total / (how.steps - how.steps // 2))


def _planes(dataset: Dataset, images: Float[ndarray, "images ..."]) -> Float[ndarray, "images channels height width"]:
    """Images with an axis of channels before their sides, centred and scaled by the public pool alone."""
    pool = dataset.public_inputs
    centred = (images - pool.mean()) / (pool.std() or 1.0)
    return np.ascontiguousarray(centred[:, None] if images.ndim == 3 else np.moveaxis(centred, -1, 1), np.float32)


def _network(shape: tuple[int, ...], classes: int) -> nn.Module:
    """For images of this shape (channels, height, width)."""
    first, second = _FILTERS
    convolutions = nn.Sequential(
        nn.Conv2d(shape[0], first, 8, stride=2, padding=2), nn.Tanh(), nn.Conv2d(first, second, 4, stride=2), nn.Tanh()
    )
    with torch.no_grad():
        width = int(convolutions(torch.zeros(1, *shape)).numel())
    return nn.Sequential(convolutions, nn.Flatten(), nn.Linear(width, _HIDDEN), nn.Tanh(), nn.Linear(_HIDDEN, classes))
