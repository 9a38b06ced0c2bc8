"""Teachers that are small torch networks, saved as safetensors."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import safetensors
import safetensors.numpy
import torch
from jaxtyping import Float32, Int64
from numpy import ndarray

from party.teachers.networks import CNN, MLP, SMALL_CNN, TeacherNetwork
from party.teachers.teacher import Teacher, TeacherKind, among_seen
from party.teachers.training import train_looped, train_stacked
from party.teachers.validation import Shard, check_queries, check_shards
from protocols.errors import DataCorrupt, DataUnavailable
from protocols.levels.hidden_queries.inference.model import Dense, Model
from protocols.reading import open_file, parse_json
from runtime.files import write_atomically
from runtime.torch_networks import Parameters, seen_offsets, torch_device

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
