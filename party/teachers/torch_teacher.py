"""Teachers that are small torch networks, saved as safetensors; trained one at a time, or stacked (one vmap over all).

Every random number of a teacher is drawn from a generator of its own seed before its training starts, so its result
does not depend on its neighbours. Looped training on a CPU with a fixed number of threads is exactly repeatable;
stacked training agrees with it up to the rounding of batched matrix products. Networks are functions of their
parameters, so that torch.func can stack them.

`cnn` is the network of Individualized PATE (Boenisch et al. 2023): 32 convolutions 3x3, batch norm, max-pool, fully
connected 100, batch norm, softmax; of colour images the convolutions see all three channels. `small_cnn` has 8
convolutions with stride 2 instead of 32 and a pool; it can be computed on shares, as `mlp` can: see
protocols/levels/hidden_queries/inference. Batch norm keeps no running averages, which would be state that vmap cannot
write: in training it uses the batch's own statistics, and a last pass over the shard finds those that predictions use
("final statistics").
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
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

from party.teachers.teacher import Shard, Teacher, TeacherKind, among_seen, check_shards
from protocols.errors import DataCorrupt, DataUnavailable, InvalidInput
from protocols.levels.hidden_queries.inference.model import Convolution, Dense, Model, ReLU, fold_batch_norm
from protocols.reading import open_file, parse_json
from runtime.files import write_atomically
from runtime.models import check_queries
from runtime.torch_networks import (
    VARIANCE_FLOOR,
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

_FILTERS: Final = 32
_SMALL_FILTERS: Final = 8
_HIDDEN: Final = 100
# The row and column offsets of the four positions of a 2x2 pooling window.
_POOL_OFFSETS: Final = ((0, 0), (0, 1), (1, 0), (1, 1))


@dataclass(frozen=True)
class TeacherNetwork:
    """One architecture.

    `trained(input_shape, classes)` and `found(input_shape)` give the shapes of the parameters that gradients train and
    of the final statistics. `logits(parameters, inputs, found)` uses the statistics in `parameters` if present,
    otherwise those of `inputs`; if `found` is a dict, it writes the ones that it used there. `layers(parameters)` is
    the trained network as layers that can be computed on shares; None if that is impossible.
    """

    name: str
    trained: Callable[[tuple[int, ...], int], Shapes]
    found: Callable[[tuple[int, ...]], Shapes]
    logits: Callable[[Parameters, Tensor, Parameters | None], Tensor]
    learning_rate: float
    augmented: bool
    images: bool
    layers: Callable[[Parameters], tuple[object, ...]] | None

    def initial(self, generator: np.random.Generator, input_shape: tuple[int, ...], classes: int) -> Parameters:
        """Parameters before training, see torch_networks.initial."""
        return initial(self.trained(input_shape, classes), generator)


def _cnn_trained(input_shape: tuple[int, ...], classes: int) -> Shapes:
    if len(input_shape) not in (2, 3) or min(input_shape[:2]) < 8 or input_shape[2:] not in ((), (3,)):
        raise InvalidInput(
            f"inputs of the cnn have shape {input_shape}; allowed: (height, width) or (height, width, 3), each side at "
            "least 8"
        )
    channels = 1 if len(input_shape) == 2 else 3
    pooled = _FILTERS * ((input_shape[0] - 2) // 2) * ((input_shape[1] - 2) // 2)
    convolution = {"conv.weight": (_FILTERS, channels, 3, 3)} | norm_shapes("conv_norm", _FILTERS)
    return convolution | dense_shapes(pooled, hidden=_HIDDEN, classes=classes)


_HIDDEN_FOUND: Final[Shapes] = {"hidden_norm.mean": (_HIDDEN,), "hidden_norm.variance": (_HIDDEN,)}
_CNN_FOUND: Final[Shapes] = {"conv_norm.mean": (_FILTERS,), "conv_norm.variance": (_FILTERS,)} | _HIDDEN_FOUND

_SMALL_CNN_FOUND: Final[Shapes] = {
    "conv_norm.mean": (_SMALL_FILTERS,),
    "conv_norm.variance": (_SMALL_FILTERS,),
} | _HIDDEN_FOUND


def _cnn_logits(parameters: Parameters, inputs: Tensor, found: Parameters | None) -> Tensor:
    weight = parameters["conv.weight"]
    inputs = planes(inputs)
    scale, offset = batch_norm(parameters, "conv_norm", lambda: _convolved_statistics(inputs, weight), found)
    # Batch norm is folded into the convolution. The four positions of each pooling window become four
    # groups of filters of one convolution with stride 2: the same result as convolving, normalising and
    # max-pooling, in a third of the time on a CPU, where torch's max_pool2d is not vectorised.
    scaled = weight * scale[:, None, None, None]
    filters = torch.cat([functional.pad(scaled, (x, 1 - x, y, 1 - y)) for y, x in _POOL_OFFSETS])
    windows = functional.conv2d(inputs, filters, stride=2)
    windows = windows.view(len(inputs), 4, _FILTERS, *windows.shape[2:])
    # max keeps the winning index, which makes its gradient cheaper; without gradients amax is faster.
    pooled = windows.max(1).values if torch.is_grad_enabled() else windows.amax(1)
    return _dense_logits(parameters, torch.relu(pooled + offset[:, None, None]), found)


def _dense_logits(parameters: Parameters, inputs: Tensor, found: Parameters | None) -> Tensor:
    return dense_logits(parameters, inputs, _batch_statistics, found)


def _small_cnn_trained(input_shape: tuple[int, ...], classes: int) -> Shapes:
    if len(input_shape) != 2 or min(input_shape) < 8:
        raise InvalidInput(
            f"inputs of the small_cnn have shape {input_shape}; allowed: (height, width), each at least 8"
        )
    rows, columns = ((side - 3) // 2 + 1 for side in input_shape)
    convolution = {"conv.weight": (_SMALL_FILTERS, 1, 3, 3)} | norm_shapes("conv_norm", _SMALL_FILTERS)
    return convolution | dense_shapes(_SMALL_FILTERS * rows * columns, hidden=_HIDDEN, classes=classes)


def _small_cnn_logits(parameters: Parameters, inputs: Tensor, found: Parameters | None) -> Tensor:
    images = functional.conv2d(inputs[:, None], parameters["conv.weight"], stride=2)
    pixels = images.movedim(1, -1).flatten(0, -2)
    scale, offset = batch_norm(parameters, "conv_norm", lambda: _batch_statistics(pixels), found)
    return _dense_logits(parameters, torch.relu(images * scale[:, None, None] + offset[:, None, None]), found)


def _small_cnn_layers(parameters: Parameters) -> tuple[object, ...]:
    kernels = parameters["conv.weight"].numpy()
    convolution = Convolution(kernels, np.zeros(len(kernels), np.float32), stride=2)
    return (_folded(convolution, parameters, "conv_norm"), ReLU(), *_dense_layers(parameters))


def _dense_layers(parameters: Parameters) -> tuple[object, ...]:
    hidden = Dense(parameters["hidden.weight"].numpy().T, np.zeros(_HIDDEN, np.float32))
    scores = Dense(parameters["out.weight"].numpy().T, parameters["out.shift"].numpy())
    return _folded(hidden, parameters, "hidden_norm"), ReLU(), scores


def _folded(layer: Dense | Convolution, parameters: Parameters, norm: str) -> Dense | Convolution:
    found = {name: parameters[f"{norm}.{name}"].numpy() for name in ("scale", "shift", "mean", "variance")}
    return fold_batch_norm(layer, **found, floor=VARIANCE_FLOOR)


def _batch_statistics(values: Float[Tensor, "rows channels"]) -> Statistics:
    mean = values.mean(0)
    return mean, (values - mean).square().mean(0)


def _convolved_statistics(
    images: Float[Tensor, "rows channels height width"], weight: Float[Tensor, "filters channels 3 3"]
) -> Statistics:
    """Mean and variance of each filter's output, from the covariance of the image patches, 9x9 for grey ones.

    A filter's output is w . patch, so its mean is w . mean(patch) and its variance w' Cov(patch) w. This is
    exact, and spares a pass over the whole convolved batch.
    """
    channels, height, width = images.shape[1], images.shape[2] - 2, images.shape[3] - 2
    patches = torch.stack(
        [
            images[:, channel, y : y + height, x : x + width]
            for channel in range(channels)
            for y in range(3)
            for x in range(3)
        ]
    ).flatten(1)
    mean = patches.mean(1)
    centred = patches - mean[:, None]
    covariance = centred @ centred.T / patches.shape[1]
    filters = weight.flatten(1)
    return filters @ mean, ((filters @ covariance) * filters).sum(1)


TEACHER_CNN: Final = TeacherNetwork(
    "cnn",
    _cnn_trained,
    lambda shape: _CNN_FOUND,
    _cnn_logits,
    learning_rate=0.02,
    augmented=True,
    images=True,
    layers=None,
)
SMALL_CNN: Final = TeacherNetwork(
    "small_cnn",
    _small_cnn_trained,
    lambda shape: _SMALL_CNN_FOUND,
    _small_cnn_logits,
    learning_rate=0.02,
    augmented=False,
    images=True,
    layers=_small_cnn_layers,
)
TEACHER_MLP: Final = TeacherNetwork(
    "mlp",
    lambda shape, classes: dense_shapes(math.prod(shape), hidden=_HIDDEN, classes=classes),
    lambda shape: _HIDDEN_FOUND,
    _dense_logits,
    learning_rate=0.01,
    augmented=False,
    images=False,
    layers=_dense_layers,
)


_ROTATION: Final = math.radians(15)
_SHIFT: Final = 0.1  # of the height and width


def draw_motions(generator: np.random.Generator, count: int) -> Float32[ndarray, "images 3"]:
    """For each image an angle in radians and shifts in x and y (in half image sizes), drawn uniformly."""
    limits = np.array([_ROTATION, 2 * _SHIFT, 2 * _SHIFT], np.float32)
    return generator.uniform(-1, 1, (count, 3)).astype(np.float32) * limits


def _move(
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
    descent = Descent(parameters.values(), weight_decay=_WEIGHT_DECAY)
    for step in range(steps):
        batch = inputs[teachers, order[:, step]]
        if motions is not None:
            batch = _move(batch.flatten(0, 1), motions[:, step].flatten(0, 1)).reshape(batch.shape)
        loss = _loss(network, parameters, batch, labels[teachers, order[:, step]], offsets)
        descent.step(loss, network.learning_rate * learning_rate_factor(step, steps))
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
    return TorchKind(TEACHER_CNN, torch_device(device))


def small_cnn(*, device: str) -> TorchKind:
    """Eight convolutions with stride 2, for the images that the cnn takes; it can answer hidden queries."""
    return TorchKind(SMALL_CNN, torch_device(device))


def mlp(*, device: str) -> TorchKind:
    """One hidden layer of 100 with batch norm, for inputs of any shape (flattened)."""
    return TorchKind(TEACHER_MLP, torch_device(device))
