"""Students that are small torch networks, trained by gradient descent on the released labels. The student is the
running average of the parameters, which networks take as arguments.

Training changes inputs at random so that they keep their class: images by an affine map, contrast and Cutout (DeVries &
Taylor 2017), table rows, which must be standardised, by noise and by features set to their mean, zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import numpy as np
import torch
from jaxtyping import Float32, Int64
from numpy import ndarray
from torch import Tensor
from torch.nn import functional

from coordinator.students.student import (
    SMALLEST_IMAGE,
    Released,
    Student,
    StudentKind,
    is_image,
    normalised,
    seen_classes,
)
from protocols.errors import InvalidInput
from runtime.models import check_queries
from runtime.torch_networks import (
    Descent,
    Parameters,
    Shapes,
    Statistics,
    batch_norm,
    dense_logits,
    dense_shapes,
    initial,
    learning_rate_factor,
    norm_shapes,
    planes,
    seen_offsets,
    torch_device,
)


class Augmentation(Protocol):
    """A random change of a batch of inputs."""

    def __call__(self, inputs: Tensor, generator: np.random.Generator) -> Tensor:
        """Changed inputs of the same shape; all randomness comes from the generator."""
        ...


@dataclass(frozen=True)
class ImageChange:
    """Uniform within +- of each: rotation in degrees, shift in image sizes, log of the scale, shear, log of
    the contrast; and the side of the square that is cut out, in image sizes."""

    rotation: float
    shift: float
    scale: float = 0.0
    shear: float = 0.0
    contrast: float = 0.0
    cutout: float = 0.0

    def __call__(self, inputs: Tensor, generator: np.random.Generator) -> Tensor:
        """Changed images [images, height, width], or with a last axis of 3 colours; uncovered pixels repeat the
        border."""
        count = len(inputs)
        limits = [math.radians(self.rotation), 2 * self.shift, 2 * self.shift, self.scale, self.shear, self.contrast]
        angle, right, down, scale, shear, contrast = (
            generator.uniform(-1, 1, (6, count)) * np.array(limits)[:, None]
        ).astype(np.float32)
        cosine, sine, size = np.cos(angle), np.sin(angle), np.exp(scale)
        rows = np.stack(
            [size * cosine, size * (shear * cosine - sine), right, size * sine, size * (shear * sine + cosine), down]
        )
        maps = torch.from_numpy(rows.T.reshape(count, 2, 3)).to(inputs.device)
        pixels = planes(inputs)
        grid = functional.affine_grid(maps, list(pixels.shape), align_corners=False)
        moved = functional.grid_sample(pixels, grid, padding_mode="border", align_corners=False)
        if self.contrast:
            moved = moved * torch.from_numpy(np.exp(contrast)).to(inputs.device)[:, None, None, None]
        if self.cutout:
            moved = moved * self._kept(inputs.shape, generator).to(inputs.device)[:, None]
        return moved[:, 0] if inputs.ndim == 3 else moved.movedim(1, -1)

    def _kept(self, shape: torch.Size, generator: np.random.Generator) -> Tensor:
        """0 inside a square at a random place of each image, 1 elsewhere."""
        inside = []
        for axis in (1, 2):
            length = shape[axis]
            centre = generator.uniform(0, length, (shape[0], 1))
            inside.append(np.abs(np.arange(length) + 0.5 - centre) < self.cutout * length / 2)
        hidden = inside[0][:, :, None] & inside[1][:, None, :]
        return torch.from_numpy(np.where(hidden, 0, 1).astype(np.float32))


@dataclass(frozen=True)
class RowChange:
    """Gaussian noise of a standard deviation, then each feature set to zero with a probability."""

    noise: float
    dropout: float = 0.0

    def __call__(self, inputs: Tensor, generator: np.random.Generator) -> Tensor:
        """Changed rows of any shape."""
        noise = generator.standard_normal(tuple(inputs.shape), np.float32) * np.float32(self.noise)
        kept = generator.random(tuple(inputs.shape), np.float32) >= self.dropout
        return (inputs + torch.from_numpy(noise).to(inputs.device)) * torch.from_numpy(kept).to(inputs.device)


LABELLED_IMAGES: Final = ImageChange(rotation=15, shift=0.1, scale=0.15, shear=0.15)
WEAK_IMAGES: Final = ImageChange(rotation=5, shift=0.07)
WEAK_ROWS: Final = RowChange(noise=0.05)


_FILTERS: Final = (32, 64)
_HIDDEN: Final = 128


@dataclass(frozen=True)
class StudentNetwork:
    """One architecture: the shapes of its parameters for (input_shape, classes), and its logits.

    `logits(parameters, inputs, found)` normalises with the statistics in `parameters` if present,
    otherwise with those of `inputs`; if `found` is a dict, it writes the ones that it used there.
    """

    name: str
    shapes: Callable[[tuple[int, ...], int], Shapes]
    logits: Callable[[Parameters, Tensor, Parameters | None], Tensor]

    def initial(self, generator: np.random.Generator, input_shape: tuple[int, ...], classes: int) -> Parameters:
        """Parameters before training, see torch_networks.initial."""
        return initial(self.shapes(input_shape, classes), generator)


def convolutions(name: str, input_shape: tuple[int, ...]) -> tuple[Shapes, int]:
    """The weights of two convolutions, and how many values the second makes of an image, see _cnn_logits.

    Raises InvalidInput, with the network's name, for what is no image.
    """
    if not is_image(input_shape):
        raise InvalidInput(
            f"inputs of the {name} have shape {input_shape}; allowed: (height, width) or (height, width, 3), each side "
            f"at least {SMALLEST_IMAGE}"
        )
    first, second = _FILTERS
    height, width = ((length - 3) // 2 for length in input_shape[:2])
    channels = 1 if len(input_shape) == 2 else 3
    weights: Shapes = {"first.weight": (first, channels, 5, 5), "second.weight": (second, first, 3, 3)}
    return weights, second * ((height + 1) // 2) * ((width + 1) // 2)


def _cnn_shapes(input_shape: tuple[int, ...], classes: int) -> Shapes:
    weights, features = convolutions("cnn", input_shape)
    return (
        weights
        | norm_shapes("first_norm", _FILTERS[0])
        | norm_shapes("second_norm", _FILTERS[1])
        | dense_shapes(features, hidden=_HIDDEN, classes=classes)
    )


def _cnn_logits(parameters: Parameters, inputs: Tensor, found: Parameters | None) -> Tensor:
    """Two convolutions with stride 2, each with batch norm, then two dense layers."""
    # Strides instead of pooling: torch's max_pool2d is not vectorised on a CPU and takes most of the time.
    first = functional.conv2d(planes(inputs), parameters["first.weight"], stride=2)
    scale, offset = batch_norm(parameters, "first_norm", lambda: _batch_statistics(first), found)
    maps = torch.relu(first * scale.view(-1, 1, 1) + offset.view(-1, 1, 1))
    second = functional.conv2d(maps, parameters["second.weight"], stride=2, padding=1)
    scale, offset = batch_norm(parameters, "second_norm", lambda: _batch_statistics(second), found)
    return _dense_logits(parameters, torch.relu(second * scale.view(-1, 1, 1) + offset.view(-1, 1, 1)), found)


def _dense_logits(parameters: Parameters, inputs: Tensor, found: Parameters | None) -> Tensor:
    return dense_logits(parameters, inputs, _batch_statistics, found)


def _batch_statistics(values: Tensor) -> Statistics:
    """Mean and variance of each channel of [rows, channels, ...]."""
    variance, mean = torch.var_mean(values, [0, *range(2, values.ndim)], correction=0)
    return mean, variance


CNN: Final = StudentNetwork("cnn", _cnn_shapes, _cnn_logits)
MLP: Final = StudentNetwork(
    "mlp", lambda shape, classes: dense_shapes(math.prod(shape), hidden=_HIDDEN, classes=classes), _dense_logits
)


WEIGHT_DECAY: Final = 0.01
LEARNING_RATE: Final = 5e-3
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
    released: Released,
    *,
    change: Augmentation,
    schedule: Schedule,
    device: torch.device,
    begun: TorchStudent | None = None,
) -> TorchStudent:
    """Trains a student on the targets. begun: a student of the same network, inputs and classes from whose parameters
    the training goes on."""
    inputs, targets, classes = released.inputs, released.targets, released.classes
    generator = np.random.default_rng(released.seed)
    parameters = network.initial(generator, inputs.shape[1:], classes)
    if begun is not None:
        parameters = {name: begun.parameters[name].clone() for name in parameters}
    parameters = {name: value.to(device).requires_grad_() for name, value in parameters.items()}
    average = {name: value.detach().clone() for name, value in parameters.items()}
    seen = seen_classes(targets)
    offsets = seen_offsets(seen, classes).to(device)
    # Copies: torch can only share the memory of a writable array, and a memory-mapped file is read-only.
    known, weighted = (torch.tensor(array, device=device) for array in (inputs, normalised(targets)))
    descent = Descent(parameters.values(), weight_decay=WEIGHT_DECAY)
    steps = schedule.steps(len(inputs)) if len(seen) > 1 else 0  # with one class there is nothing to learn
    picks = Picks(len(inputs), schedule.batch, generator)
    for step in range(steps):
        rows = picks.next()
        batch, goals = change(known[rows], generator), weighted[rows]
        value = cross_entropy(network.logits(parameters, batch, None) + offsets, goals)
        descent.step(value, LEARNING_RATE * learning_rate_factor(step, steps))
        averaged(average, parameters, step)
    return finished(network, average, known, offsets, inputs.shape[1:])


def averaged(average: Parameters, parameters: Parameters, step: int) -> None:
    """Moves the running average by one step."""
    decay = min(_AVERAGING_DECAY, step / (step + 10))
    with torch.no_grad():
        torch._foreach_lerp_(list(average.values()), list(parameters.values()), 1 - decay)


@torch.no_grad()
def finished(
    network: StudentNetwork, average: Parameters, inputs: Tensor, offsets: Tensor, input_shape: tuple[int, ...]
) -> TorchStudent:
    """The student of the running average, with the statistics of batch norm of these inputs."""
    found: Parameters = {}
    network.logits(average, inputs[:: math.ceil(len(inputs) / _STATISTICS_ROWS)], found)
    return TorchStudent(network, average | found, offsets, input_shape)


class Picks:
    """Batches of row numbers: one permutation of the rows after another."""

    def __init__(self, rows: int, batch: int, generator: np.random.Generator) -> None:
        self._rows, self._batch, self._generator = rows, batch, generator
        self._left = np.empty(0, np.int64)

    def next(self) -> Tensor:
        while len(self._left) < self._batch:
            self._left = np.concatenate([self._left, self._generator.permutation(self._rows)])
        picked, self._left = self._left[: self._batch], self._left[self._batch :]
        return torch.from_numpy(picked)


_SCHEDULE: Final = Schedule(batch=32, epochs=16, fewest_steps=150, most_steps=3000)
# From this many labels on, 16 passes are more steps than there are: inputs are not changed then, and rounds of twice as
# many steps, each with a learning rate that falls to zero (Loshchilov & Hutter 2017, "SGDR"), go on until labels that
# are held out are no better predicted.
_MANY: Final = 6_000
_FIRST_ROUND: Final = 200
# So many of ten are held out, up to so many labels.
_HELD, _MOST_HELD = 0.1, 2_000


@dataclass(frozen=True)
class SupervisedKind(StudentKind):
    """Trains a network on randomly changed copies of the labelled inputs; on the inputs themselves where they are many.

    most_rounds: of _FIRST_ROUND steps and then twice as many each, where labels are many; what bounds the time.
    """

    network: StudentNetwork
    change: Augmentation
    device: torch.device
    most_rounds: int

    @property
    def needs_images(self) -> bool:
        return self.network is CNN

    def learn(self, released: Released) -> Student:
        """Trains on the targets; `unlabelled` is not used."""
        released = replace(released, unlabelled=released.inputs[:0])
        if len(released.inputs) >= _MANY:
            return self._converged(released)
        return self._trained(released, _SCHEDULE, self.change)

    def _converged(self, released: Released) -> TorchStudent:
        """The student of the last round after which labels that were held out were better predicted."""
        inputs, targets, seed = released.inputs, released.targets, released.seed
        shuffled = np.random.default_rng([seed, *b"held out"]).permutation(len(inputs))
        count = min(int(_HELD * len(inputs)), _MOST_HELD)
        held, rest = np.sort(shuffled[:count]), np.sort(shuffled[count:])
        best: TorchStudent | None = None
        most = -1.0
        for each in range(self.most_rounds):
            steps = _FIRST_ROUND * 2**each
            schedule = Schedule(batch=_SCHEDULE.batch, epochs=0, fewest_steps=steps, most_steps=steps)
            told = replace(released, inputs=inputs[rest], targets=targets[rest], seed=seed + each)
            student = self._trained(told, schedule, _unchanged, begun=best)
            predicted = student.predict(inputs[held])
            agreed = float(np.take_along_axis(targets[held], predicted[:, None], axis=1).sum())
            if agreed <= most:
                break
            best, most = student, agreed
        assert best is not None  # agreement is at least 0
        return best

    def _trained(
        self, released: Released, schedule: Schedule, change: Augmentation, *, begun: TorchStudent | None = None
    ) -> TorchStudent:
        return train(self.network, released, change=change, schedule=schedule, device=self.device, begun=begun)


def _unchanged(inputs: torch.Tensor, generator: np.random.Generator) -> torch.Tensor:
    return inputs


def cnn(*, device: str) -> SupervisedKind:
    """Two convolutions and two dense layers, for images [height, width] or [height, width, 3], each side at least 8."""
    return SupervisedKind(CNN, LABELLED_IMAGES, torch_device(device), most_rounds=3)


def mlp(*, device: str) -> SupervisedKind:
    """One hidden layer, for inputs of any shape (flattened), table rows standardised."""
    return SupervisedKind(MLP, WEAK_ROWS, torch_device(device), most_rounds=5)
