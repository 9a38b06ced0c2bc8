"""A hospital's own torch module as a teacher: trained with AdamW, kept as safetensors."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final  # a hospital's own class has no types

import numpy as np
import safetensors.torch
import torch
from jaxtyping import Float32, Int64
from numpy import ndarray
from torch.nn import functional

from party.teachers.teacher import Shard, Teacher, TeacherKind, check_shards
from protocols.errors import DataCorrupt, DataUnavailable, InvalidInput
from protocols.reading import open_file, parse_json
from runtime.files import write_atomically
from runtime.models import check_queries

_FILE_BYTES: Final = 2**31
# What torch and safetensors raise for a file that is not the module's.
_FAILURES: Final = (
    safetensors.SafetensorError,
    DataCorrupt,
    DataUnavailable,
    OSError,
    KeyError,
    TypeError,
    ValueError,
    RuntimeError,
    OverflowError,
)
_BATCH: Final = 32
_STEPS: Final = 400
_LEARNING_RATE: Final = 1e-3
_WEIGHT_DECAY: Final = 0.01
_CHUNK: Final = 256


@dataclass(frozen=True, eq=False)
class OwnTorchTeacher(Teacher):
    """A trained module with the shape and the number of classes that it was made for."""

    module: torch.nn.Module = field(repr=False)
    input_shape: tuple[int, ...]
    classes: int

    @torch.no_grad()
    def predict(self, inputs: Float32[ndarray, "queries ..."]) -> Int64[ndarray, " queries"]:
        """The class of each query. Raises InvalidInput for queries of another shape."""
        check_queries(inputs, self.input_shape)
        predicted = np.empty(len(inputs), np.int64)
        for start in range(0, len(inputs), _CHUNK):
            chunk = torch.from_numpy(np.ascontiguousarray(inputs[start : start + _CHUNK]))
            predicted[start : start + _CHUNK] = self.module(chunk).argmax(1).numpy()
        return predicted

    def save(self, path: Path) -> None:
        """Writes a safetensors file. Raises StorageFailed."""
        about = {"input_shape": json.dumps(self.input_shape), "classes": str(self.classes)}
        state = {name: value.contiguous() for name, value in self.module.state_dict().items()}
        write_atomically(path, safetensors.torch.save(state, about))


@dataclass(frozen=True)
class OwnTorchKind(TeacherKind):
    """Trains modules made by kind(input_shape=..., classes=...), which return logits [queries, classes]."""

    kind: Any

    def fit(self, shards: list[Shard], *, classes: int, seeds: list[int]) -> list[Teacher]:
        """Trains one teacher per shard, see TeacherKind.fit."""
        check_shards(shards, classes, seeds)
        return [self._fit_one(shard, classes, seed) for shard, seed in zip(shards, seeds, strict=True)]

    def _fit_one(self, shard: Shard, classes: int, seed: int) -> OwnTorchTeacher:
        inputs, labels = torch.from_numpy(shard[0]), torch.from_numpy(shard[1])
        shape = tuple(shard[0].shape[1:])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed % 2**63)
            module = self._make(shape, classes)
            order = np.random.default_rng(seed)
            optimizer = torch.optim.AdamW(module.parameters(), lr=_LEARNING_RATE, weight_decay=_WEIGHT_DECAY)
            module.train()
            # Layers that average over a batch cannot take a batch of one.
            size = max(2, min(_BATCH, len(labels)))
            for _ in range(_STEPS):
                rows = torch.from_numpy(order.integers(0, len(labels), size))
                optimizer.zero_grad()
                logits = module(inputs[rows])
                if logits.shape != (size, classes):
                    raise InvalidInput(
                        f"the hospital's own module gives shape {tuple(logits.shape)}; allowed: {(size, classes)}"
                    )
                functional.cross_entropy(logits, labels[rows]).backward()  # type: ignore[no-untyped-call]  # torch
                optimizer.step()
        module.eval()
        return OwnTorchTeacher(module, shape, classes)

    def load(self, path: Path) -> Teacher:
        """Reads what OwnTorchTeacher.save wrote. Raises DataCorrupt."""
        try:
            open_file(path, most=_FILE_BYTES).close()
            with safetensors.safe_open(path, framework="pt") as file:
                about = file.metadata() or {}
                state = {name: file.get_tensor(name) for name in file.keys()}
            shape = tuple(int(length) for length in parse_json(about["input_shape"], where=str(path)))
            classes = int(about["classes"])
            module = self._make(shape, classes)
            module.load_state_dict(state)
        except _FAILURES as error:
            raise DataCorrupt(f"{path} does not hold a {self.kind.__name__}: {str(error)[:200]}") from error
        module.eval()
        return OwnTorchTeacher(module, shape, classes)

    def _make(self, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        module: torch.nn.Module = self.kind(input_shape=shape, classes=classes)
        return module
