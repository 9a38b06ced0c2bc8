"""Teachers that the hospital trained elsewhere and brings as ONNX files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from party.teachers.teacher import Shard, Teacher, TeacherKind
from protocols.errors import InvalidInput
from protocols.features.onnx_model import OnnxModel
from protocols.reading import read_bytes
from runtime.files import write_atomically

_FILE_BYTES = 2 * 2**30


@dataclass(frozen=True, eq=False)
class OnnxTeacher(Teacher):
    """One input, queries first; the first output is class ids [queries] or scores [queries, classes]."""

    content: bytes = field(repr=False)
    model: OnnxModel = field(repr=False)

    def predict(self, inputs: Float32[ndarray, "queries ..."]) -> Int64[ndarray, " queries"]:
        """The class of each query. Raises InvalidInput if the model cannot take the queries or returns no class ids."""
        if not len(inputs):
            return np.empty(0, np.int64)
        output = self.model.first_output(inputs)
        if output.ndim == 2 and output.dtype.kind == "f":
            output = output.argmax(axis=1)
        if output.shape != (len(inputs),) or output.dtype.kind not in "iu":
            raise InvalidInput(
                f"the ONNX model gives {output.dtype} of shape {output.shape}; allowed: class ids [queries] or scores "
                "[queries, classes]"
            )
        return output.astype(np.int64)

    def save(self, path: Path) -> None:
        """Writes the model unchanged. Raises StorageFailed."""
        write_atomically(path, self.content)


@dataclass(frozen=True)
class OnnxKind(TeacherKind):
    """Reads trained models; cannot train."""

    def fit(self, shards: list[Shard], *, classes: int, seeds: list[int]) -> list[Teacher]:
        """Raises InvalidInput: an ONNX file is trained already."""
        raise InvalidInput("teachers.kind is 'onnx', whose models are trained elsewhere; name their files in node.toml")

    def load(self, path: Path) -> Teacher:
        """Reads an ONNX file that needs no other file and no custom operators. Raises DataUnavailable, DataCorrupt."""
        content = read_bytes(path, most=_FILE_BYTES)
        return OnnxTeacher(content, OnnxModel.of(content, where=str(path), own=True))


def onnx(*, device: str) -> OnnxKind:
    """Models from ONNX files, on the CPU."""
    return OnnxKind()
