"""Students that are small torch networks, trained by gradient descent on labels and, with a Method, on inputs without
labels.

The student is the running average of the parameters.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import torch
from jaxtyping import Float32, Int64
from numpy import ndarray
from torch import Tensor
from torch.nn import functional

from coordinator.students.augmentation import Augmentation
from coordinator.students.networks import StudentNetwork
from coordinator.students.student import Student
from coordinator.students.targets import normalised, seen_classes
from coordinator.students.validation import check_queries
from runtime.torch_networks import Parameters, learning_rate_factor, seen_offsets

_WEIGHT_DECAY: Final = 0.01
_LEARNING_RATE: Final = 5e-3
# The student is the running average of the parameters over about 1 / (1 - decay) steps.
_AVERAGING_DECAY: Final = 0.98
_STATISTICS_ROWS: Final = 2048
_CHUNK: Final = 128


@dataclass(frozen=True, eq=False)
class TorchStudent(Student):
    """A trained network with the final statistics of batch norm among its parameters."""

    network: StudentNetwork
    parameters: Parameters = field(repr=False)
    offsets: Tensor = field(repr=False)
    input_shape: tuple[int, ...]

    def predict(self, inputs: Float32[ndarray, "queries ..."]) -> Int64[ndarray, " queries"]:
        """The class of each query. Raises InvalidInput for queries of another shape or not finite."""
        return np.asarray(self.predict_proba(inputs).argmax(axis=1), np.int64)

    @torch.no_grad()
    def predict_proba(self, inputs: Float32[ndarray, "queries ..."]) -> Float32[ndarray, "queries classes"]:
        """The softmax of the network's logits. Raises InvalidInput as predict does."""
        check_queries(inputs, self.input_shape)
        probabilities = np.zeros((len(inputs), len(self.offsets)), np.float32)
        for start in range(0, len(inputs), _CHUNK):
            queries = torch.from_numpy(np.array(inputs[start : start + _CHUNK], order="C"))
            logits = self.network.logits(self.parameters, queries.to(self.offsets.device), None)
            logits = logits + self.offsets
            probabilities[start : start + _CHUNK] = logits.softmax(1).cpu().numpy()
        return probabilities

    @property
    def exporter(self) -> str:
        return "coordinator.release.export_torch:write"


Scores = Callable[[Tensor], Tensor]  # the logits of a batch, normalised with its own statistics
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
    scores: Scores
    average: Scores
    progress: float
    generator: np.random.Generator


class Method(ABC):
    """A way to learn from labelled and unlabelled inputs together; `batch` unlabelled inputs in each step."""

    batch: int

    @abstractmethod
    def begin(self, classes: int) -> Loss:
        """The loss of each step of one training, called in their order; it may keep state between them."""


def cross_entropy(logits: Tensor, goals: Tensor) -> Tensor:
    """The mean over the inputs of the cross-entropy of each class, times its weight."""
    return functional.cross_entropy(logits, goals, reduction="none").mean()


@dataclass(frozen=True)
class Schedule:
    """How long to train: `epochs` over the labels in batches, within a least and a most number of steps."""

    batch: int
    epochs: int
    fewest_steps: int
    most_steps: int

    def steps(self, labels: int) -> int:
        """Steps for this many labels."""
        return min(max(math.ceil(self.epochs * labels / self.batch), self.fewest_steps), self.most_steps)


def train(
    network: StudentNetwork,
    inputs: Float32[ndarray, "answered ..."],
    targets: Float32[ndarray, "answered classes"],
    unlabelled: Float32[ndarray, "rest ..."],
    *,
    change: Augmentation,
    method: Method | None,
    schedule: Schedule,
    classes: int,
    seed: int,
    device: torch.device,
    begun: TorchStudent | None = None,
) -> TorchStudent:
    """Trains a student; if `method` is None or `unlabelled` is empty, only on the targets. begun: a student of the same
    network, inputs and classes from whose parameters the training goes on."""
    generator = np.random.default_rng(seed)
    parameters = network.initial(generator, inputs.shape[1:], classes)
    if begun is not None:
        parameters = {name: begun.parameters[name].clone() for name in parameters}
    parameters = {name: value.to(device).requires_grad_() for name, value in parameters.items()}
    average = {name: value.detach().clone() for name, value in parameters.items()}
    seen = seen_classes(targets)
    offsets = seen_offsets(seen, classes).to(device)
    # Copies: torch can only share the memory of a writable array, and a memory-mapped file is read-only.
    arrays = (inputs, normalised(targets), unlabelled)
    known, weighted, rest = (torch.tensor(array, device=device) for array in arrays)
    optimizer = torch.optim.AdamW(parameters.values(), weight_decay=_WEIGHT_DECAY, fused=True)
    steps = schedule.steps(len(inputs)) if len(seen) > 1 else 0  # with one class there is nothing to learn
    picks = _Picks(len(inputs), schedule.batch, generator)
    unlabelled_picks = _Picks(len(rest), method.batch, generator) if method and len(rest) else None
    loss = method.begin(classes) if method else None

    def scores(batch: Tensor) -> Tensor:
        return network.logits(parameters, batch, None) + offsets

    @torch.no_grad()
    def average_scores(batch: Tensor) -> Tensor:
        return network.logits(average, batch, None) + offsets

    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = _LEARNING_RATE * learning_rate_factor(step, steps)
        rows = picks.next()
        batch, goals = change(known[rows], generator), weighted[rows]
        optimizer.zero_grad()
        if loss and unlabelled_picks:
            queries = rest[unlabelled_picks.next()]
            value = loss(
                Step(batch, goals, queries, parameters, offsets, scores, average_scores, step / steps, generator)
            )
        else:
            value = cross_entropy(scores(batch), goals)
        value.backward()  # type: ignore[no-untyped-call]  # torch declares no types for it
        optimizer.step()
        decay = min(_AVERAGING_DECAY, step / (step + 10))
        with torch.no_grad():
            torch._foreach_lerp_(list(average.values()), list(parameters.values()), 1 - decay)
    with torch.no_grad():
        known = torch.cat([known, rest]) if unlabelled_picks else known
        found: Parameters = {}
        network.logits(average, known[:: math.ceil(len(known) / _STATISTICS_ROWS)], found)
    return TorchStudent(network, average | found, offsets, inputs.shape[1:])


class _Picks:
    """Batches of row numbers: one permutation of the rows after another."""

    def __init__(self, rows: int, batch: int, generator: np.random.Generator) -> None:
        self._rows, self._batch, self._generator = rows, batch, generator
        self._left = np.empty(0, np.int64)

    def next(self) -> Tensor:
        while len(self._left) < self._batch:
            self._left = np.concatenate([self._left, self._generator.permutation(self._rows)])
        picked, self._left = self._left[: self._batch], self._left[self._batch :]
        return torch.from_numpy(picked)
