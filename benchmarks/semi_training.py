"""How a student of labelled and unlabelled inputs is trained: a method says what the loss of a step is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from coordinator.students.student import Released, normalised, seen_classes
from coordinator.students.torch_student import (
    LEARNING_RATE,
    WEIGHT_DECAY,
    Augmentation,
    Picks,
    Schedule,
    StudentNetwork,
    TorchStudent,
    averaged,
    cross_entropy,
    finished,
)
from runtime.torch_networks import Parameters, learning_rate_factor, seen_offsets

_Scores = Callable[[Tensor], Tensor]  # the logits of a batch, normalised with its own statistics
Loss = Callable[["Step"], Tensor]


@dataclass(frozen=True, eq=False)
class Step:
    """What the loss of one training step is computed from.

    known: changed labelled inputs [labelled, ...]; goals: the weight of each class for them, >= 0; queries: unlabelled
    inputs, unchanged. `scores` are those of the `parameters` in training, `average` those of their running average,
    without gradients; `offsets` are added to both, see seen_offsets. progress: the share of the training that is done,
    in [0, 1).
    """

    known: Tensor = field(repr=False)
    goals: Tensor = field(repr=False)
    queries: Tensor = field(repr=False)
    parameters: Parameters = field(repr=False)
    offsets: Tensor = field(repr=False)
    scores: _Scores
    average: _Scores
    progress: float
    generator: np.random.Generator


class Method(ABC):
    """A way to learn from labelled and unlabelled inputs together; `batch` unlabelled inputs in each step."""

    batch: int

    @abstractmethod
    def begin(self, classes: int) -> Loss:
        """The loss of each step of one training, called in their order; it may keep state between them."""


def train_with(
    network: StudentNetwork,
    released: Released,
    *,
    change: Augmentation,
    method: Method,
    schedule: Schedule,
    device: torch.device,
) -> TorchStudent:
    """Trains a student by a method; where nothing is unlabelled, only on the targets."""
    inputs, targets, classes = released.inputs, released.targets, released.classes
    generator = np.random.default_rng(released.seed)
    parameters = network.initial(generator, inputs.shape[1:], classes)
    parameters = {name: value.to(device).requires_grad_() for name, value in parameters.items()}
    average = {name: value.detach().clone() for name, value in parameters.items()}
    seen = seen_classes(targets)
    offsets = seen_offsets(seen, classes).to(device)
    # Copies: torch can only share the memory of a writable array, and a memory-mapped file is read-only.
    arrays = (inputs, normalised(targets), released.unlabelled)
    known, weighted, rest = (torch.tensor(array, device=device) for array in arrays)
    optimizer = torch.optim.AdamW(parameters.values(), weight_decay=WEIGHT_DECAY, fused=True)
    steps = schedule.steps(len(inputs)) if len(seen) > 1 else 0  # with one class there is nothing to learn
    picks = Picks(len(inputs), schedule.batch, generator)
    unlabelled_picks = Picks(len(rest), method.batch, generator) if len(rest) else None
    loss = method.begin(classes)

    def scores(batch: Tensor) -> Tensor:
        return network.logits(parameters, batch, None) + offsets

    @torch.no_grad()
    def average_scores(batch: Tensor) -> Tensor:
        return network.logits(average, batch, None) + offsets

    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * learning_rate_factor(step, steps)
        rows = picks.next()
        batch, goals = change(known[rows], generator), weighted[rows]
        optimizer.zero_grad()
        if unlabelled_picks:
            queries = rest[unlabelled_picks.next()]
            value = loss(
                Step(batch, goals, queries, parameters, offsets, scores, average_scores, step / steps, generator)
            )
        else:
            value = cross_entropy(scores(batch), goals)
        value.backward()  # type: ignore[no-untyped-call]  # torch declares no types for it
        optimizer.step()
        averaged(average, parameters, step)
    return finished(
        network, average, torch.cat([known, rest]) if unlabelled_picks else known, offsets, inputs.shape[1:]
    )
