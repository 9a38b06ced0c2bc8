"""Teachers that are small torch networks, saved as safetensors; trained one at a time, or stacked (one vmap over all).

Every random number of a teacher is drawn from a generator of its own seed before its training starts, so its result
does not depend on its neighbours. Looped training on a CPU with a fixed number of threads is exactly repeatable;
stacked training agrees with it up to the rounding of batched matrix products.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import safetensors
import safetensors.numpy
import torch
from jaxtyping import Float, Float32, Int, Int64
from numpy import ndarray
from torch import Tensor
from torch.nn import functional

from party.teachers.networks import CNN, MLP, SMALL_CNN, TeacherNetwork
from party.teachers.teacher import Shard, Teacher, TeacherKind, among_seen, check_queries, check_shards
from protocols.errors import DataCorrupt, DataUnavailable
from protocols.levels.hidden_queries.inference.model import Dense, Model
from protocols.reading import open_file, parse_json
from runtime.files import write_atomically
from runtime.torch_networks import Parameters, learning_rate_factor, planes, seen_offsets, torch_device

_ROTATION: Final = math.radians(15)
_SHIFT: Final = 0.1  # of the height and width


def draw_motions(generator: np.random.Generator, count: int) -> Float32[ndarray, "images 3"]:
    """For each image an angle in radians and shifts in x and y (in half image sizes), drawn uniformly."""
    limits = np.array([_ROTATION, 2 * _SHIFT, 2 * _SHIFT], np.float32)
    return generator.uniform(-1, 1, (count, 3)).astype(np.float32) * limits


def move(
    images: Float[Tensor, "images height width ..."], motions: Float[Tensor, "images 3"]
) -> Float[Tensor, "images height width ..."]:
    """Each image rotated and shifted by its motion; uncovered pixels repeat the border."""
    cosine, sine = torch.cos(motions[:, 0]), torch.sin(motions[:, 0])
    rows = torch.stack([cosine, -sine, motions[:, 1], sine, cosine, motions[:, 2]], dim=1)
    pixels = planes(images)
    grid = functional.affine_grid(rows.view(-1, 2, 3), list(pixels.shape), align_corners=False)
    moved = functional.grid_sample(pixels, grid, padding_mode="border", align_corners=False)
    return moved[:, 0] if images.ndim == 3 else moved.movedim(1, -1)


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


# Queries per forward pass: few enough for a CPU core's cache.
_CPU_CHUNK: Final = 64
_GPU_CHUNK: Final = 8192
_SEEN: Final = "seen"
_FILE_BYTES: Final = 2**31


@dataclass(frozen=True, eq=False)
class TorchTeacher(Teacher):
    """A trained network. `parameters` are on the CPU and include the final statistics of batch norm."""

    network: TeacherNetwork
    parameters: Parameters = field(repr=False)
    seen: Int64[ndarray, " seen"] = field(repr=False)
    input_shape: tuple[int, ...]
    classes: int
    device: torch.device

    @torch.no_grad()
    def predict(self, inputs: Float32[ndarray, "queries ..."]) -> Int64[ndarray, " queries"]:
        """The class of each query. Raises InvalidInput for queries of another shape or not finite."""
        check_queries(inputs, self.input_shape)
        parameters = {name: value.to(self.device) for name, value in self.parameters.items()}
        offsets = seen_offsets(self.seen, self.classes).to(self.device)
        chunk = _CPU_CHUNK if self.device.type == "cpu" else _GPU_CHUNK
        predicted = np.empty(len(inputs), np.int64)
        for start in range(0, len(inputs), chunk):
            queries = torch.from_numpy(np.array(inputs[start : start + chunk], order="C")).to(self.device)
            logits = self.network.logits(parameters, queries, None) + offsets
            predicted[start : start + chunk] = logits.argmax(1).cpu().numpy()
        return predicted

    def private_model(self, *, classes: int) -> Model:
        if self.network.layers is None:
            return super().private_model(classes=classes)
        *layers, scores = self.network.layers(self.parameters)
        assert isinstance(scores, Dense)  # the last layer of every network
        of_seen = Dense(scores.weights[self.seen], scores.bias[self.seen])
        return Model(self.input_shape, (*layers, among_seen(of_seen, self.seen, classes=classes)))

    def save(self, path: Path) -> None:
        """Writes a safetensors file. Raises StorageFailed."""
        arrays = {name: value.numpy() for name, value in self.parameters.items()} | {_SEEN: self.seen}
        about = {
            "teacher": self.network.name,
            "classes": str(self.classes),
            "input_shape": json.dumps(self.input_shape),
        }
        write_atomically(path, safetensors.numpy.save(arrays, about))


@dataclass(frozen=True)
class TorchKind(TeacherKind):
    """Trains networks: stacked on a CUDA device, looped on a CPU, where stacking a CNN is slower."""

    network: TeacherNetwork
    device: torch.device

    @property
    def needs_images(self) -> bool:
        return self.network.images

    @property
    def stacks(self) -> bool:
        return self.device.type == "cuda"

    def fit(self, shards: list[Shard], *, classes: int, seeds: list[int]) -> list[Teacher]:
        """Trains one teacher per shard, see TeacherKind.fit.

        On a CPU with a fixed number of torch threads the result is exactly repeatable, whatever is trained
        together. On a CUDA device it is repeatable up to the rounding of batched matrix products.
        """
        return self.fit_with(shards, classes=classes, seeds=seeds, stacked=self.stacks)

    def fit_with(self, shards: list[Shard], *, classes: int, seeds: list[int], stacked: bool) -> list[Teacher]:
        """As `fit`, but the caller chooses stacked or looped training."""
        check_shards(shards, classes, seeds)
        for inputs, _ in shards:
            self.network.trained(inputs.shape[1:], classes)
        train = train_stacked if stacked else train_looped
        trained = train(self.network, shards, classes=classes, seeds=seeds, device=self.device)
        return [
            TorchTeacher(self.network, parameters, np.unique(labels), inputs.shape[1:], classes, self.device)
            for parameters, (inputs, labels) in zip(trained, shards, strict=True)
        ]

    def load(self, path: Path) -> Teacher:
        """Reads what TorchTeacher.save wrote. Raises DataCorrupt."""
        try:
            open_file(path, most=_FILE_BYTES).close()
            with safetensors.safe_open(path, framework="numpy") as file:
                about = file.metadata() or {}
                arrays = {name: file.get_tensor(name) for name in file.keys()}
        except (safetensors.SafetensorError, DataUnavailable, DataCorrupt, OSError, ValueError) as failure:
            raise DataCorrupt(f"{path} is not a readable safetensors file: {failure}") from failure
        if about.get("teacher") != self.network.name:
            raise DataCorrupt(f"{path} holds a teacher of kind {about.get('teacher')!r}, not {self.network.name!r}")
        try:
            classes = int(about["classes"])
            input_shape = tuple(int(length) for length in parse_json(about["input_shape"], where=str(path)))
            shapes = self.network.trained(input_shape, classes) | self.network.found(input_shape)
        except (DataCorrupt, KeyError, TypeError, ValueError, OverflowError) as failure:
            raise DataCorrupt(f"{path} does not say for which classes and shape it was trained") from failure
        seen = arrays.pop(_SEEN, None)
        if seen is None or seen.dtype != np.int64 or seen.ndim != 1 or not 0 < len(seen) <= classes:
            raise DataCorrupt(f"{path} does not list the classes that its teacher has seen")
        if seen.min() < 0 or seen.max() >= classes:
            raise DataCorrupt(f"{path} lists classes in [{seen.min()}, {seen.max()}]; allowed: [0, {classes - 1}]")
        if {name: array.shape for name, array in arrays.items()} != shapes or not all(
            array.dtype == np.float32 and np.isfinite(array).all() for array in arrays.values()
        ):
            raise DataCorrupt(f"{path} does not hold the finite 32-bit parameters of a {self.network.name}")
        parameters = {name: torch.from_numpy(array) for name, array in arrays.items()}
        return TorchTeacher(self.network, parameters, seen, input_shape, classes, self.device)


def cnn(*, device: str) -> TorchKind:
    """The convolutional teacher of Individualized PATE, for grey images [height, width], each at least 8."""
    return TorchKind(CNN, torch_device(device))


def small_cnn(*, device: str) -> TorchKind:
    """Eight convolutions with stride 2, for the images that the cnn takes; it can answer hidden queries."""
    return TorchKind(SMALL_CNN, torch_device(device))


def mlp(*, device: str) -> TorchKind:
    """One hidden layer of 100 with batch norm, for inputs of any shape (flattened)."""
    return TorchKind(MLP, torch_device(device))
