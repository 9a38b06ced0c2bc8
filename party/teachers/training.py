"""Gradient training of teachers: one at a time, or stacked (one vmap over all teachers of equal shape).

Every random number of a teacher is drawn from a generator of its own seed before its training starts, so
its result does not depend on its neighbours. Looped training on a CPU with a fixed number of threads is
exactly repeatable; stacked training agrees with it up to the rounding of batched matrix products.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from party.teachers.augmentation import draw_motions, move
from party.teachers.networks import TeacherNetwork
from party.teachers.validation import Shard
from runtime.torch_networks import Parameters, learning_rate_factor, seen_offsets

_BATCH: Final = 32
_EPOCHS: Final = 8
# The minimum number of steps, for a tiny shard, and the maximum, for a very large one.
_FEWEST_STEPS: Final = 60
_MOST_STEPS: Final = 2000
_WEIGHT_DECAY: Final = 0.01
# Rows from which the final statistics of batch norm are computed; more would change them little and cost memory.
_STATISTICS_ROWS: Final = 1024
# Teachers in one stack; bounds device memory (cnn on 28x28 images: 5 GiB, estimated, not measured).
_STACK: Final = 256


def train_looped(
    network: TeacherNetwork, shards: list[Shard], *, classes: int, seeds: list[int], device: torch.device
) -> list[Parameters]:
    """Trains one teacher after another; the fastest way on a CPU."""
    return [_train([shard], network, classes, [seed], device)[0] for shard, seed in zip(shards, seeds, strict=True)]


def train_stacked(
    network: TeacherNetwork, shards: list[Shard], *, classes: int, seeds: list[int], device: torch.device
) -> list[Parameters]:
    """Trains teachers whose shards have equal shape together, the others one by one."""
    by_shape: dict[tuple[int, ...], list[int]] = {}
    for position, (inputs, _) in enumerate(shards):
        by_shape.setdefault(inputs.shape, []).append(position)
    trained: list[Parameters] = [{} for _ in shards]
    for alike in by_shape.values():
        for start in range(0, len(alike), _STACK):
            stack = alike[start : start + _STACK]
            results = _train([shards[i] for i in stack], network, classes, [seeds[i] for i in stack], device)
            for position, parameters in zip(stack, results, strict=True):
                trained[position] = parameters
    return trained


def _train(
    shards: list[Shard], network: TeacherNetwork, classes: int, seeds: list[int], device: torch.device
) -> list[Parameters]:
    """Trains shards of equal shape; all tensors have a leading axis of teachers."""
    records, *input_shape = shards[0][0].shape
    steps = min(max(math.ceil(_EPOCHS * records / _BATCH), _FEWEST_STEPS), _MOST_STEPS)
    generators = [np.random.default_rng(seed) for seed in seeds]
    initial = [network.initial(generator, tuple(input_shape), classes) for generator in generators]
    parameters = {
        name: torch.stack([start[name] for start in initial]).to(device).requires_grad_() for name in initial[0]
    }
    inputs = torch.from_numpy(np.stack([shard[0] for shard in shards])).to(device)
    labels = torch.from_numpy(np.stack([shard[1] for shard in shards])).to(device)
    offsets = torch.stack([seen_offsets(np.unique(shard[1]), classes) for shard in shards]).to(device)
    order = _stack([_draw_order(generator, records, steps) for generator in generators], device)
    motions = None
    if network.augmented:
        drawn = [draw_motions(generator, steps * _BATCH) for generator in generators]
        motions = _stack(drawn, device).view(len(shards), steps, _BATCH, -1)
    teachers = torch.arange(len(shards), device=device)[:, None]
    optimizer = torch.optim.AdamW(parameters.values(), weight_decay=_WEIGHT_DECAY, fused=True)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = network.learning_rate * learning_rate_factor(step, steps)
        batch = inputs[teachers, order[:, step]]
        if motions is not None:
            batch = move(batch.flatten(0, 1), motions[:, step].flatten(0, 1)).reshape(batch.shape)
        optimizer.zero_grad()
        loss = _loss(network, parameters, batch, labels[teachers, order[:, step]], offsets)
        loss.backward()  # type: ignore[no-untyped-call]  # torch declares no types for it
        optimizer.step()
    rows = slice(None, None, math.ceil(records / _STATISTICS_ROWS))
    return [
        _with_final_statistics(
            network, {name: value[i].detach() for name, value in parameters.items()}, inputs[i, rows]
        )
        for i in range(len(shards))
    ]


def _loss(
    network: TeacherNetwork,
    parameters: Parameters,
    inputs: Float[Tensor, "teachers batch ..."],
    labels: Int[Tensor, "teachers batch"],
    offsets: Float[Tensor, "teachers classes"],
) -> Float[Tensor, ""]:
    """The sum over teachers of their mean cross-entropies: its gradient is each teacher's own gradient."""

    def one(own: Parameters, batch: Tensor, targets: Tensor, offset: Tensor) -> Tensor:
        return functional.cross_entropy(network.logits(own, batch, None) + offset, targets)

    if len(inputs) == 1:
        own = {name: value.squeeze(0) for name, value in parameters.items()}
        return one(own, inputs[0], labels[0], offsets[0])
    losses: Tensor = torch.func.vmap(one)(parameters, inputs, labels, offsets)
    return losses.sum()


@torch.no_grad()
def _with_final_statistics(network: TeacherNetwork, parameters: Parameters, rows: Tensor) -> Parameters:
    found: Parameters = {}
    network.logits(parameters, rows, found)
    return {name: value.cpu().contiguous() for name, value in (parameters | found).items()}


def _draw_order(generator: np.random.Generator, records: int, steps: int) -> Int[np.ndarray, "steps batch"]:
    """The records of each batch: permutations of the shard one after another, also across batch boundaries."""
    passes = math.ceil(steps * _BATCH / records)
    permutations = generator.permuted(np.tile(np.arange(records), (passes, 1)), axis=1)
    return permutations.ravel()[: steps * _BATCH].reshape(steps, _BATCH)


def _stack(draws: list[np.ndarray], device: torch.device) -> Tensor:
    return torch.from_numpy(np.stack(draws)).to(device)
