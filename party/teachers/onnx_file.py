"""Teachers that the hospital trained elsewhere and brings as ONNX files: the one file that imports onnxruntime."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnxruntime
from jaxtyping import Float32, Int64
from numpy import ndarray
from onnxruntime.capi import onnxruntime_pybind11_state

from party.teachers.teacher import Teacher, TeacherKind
from party.teachers.validation import Shard
from protocols.errors import DataCorrupt, InvalidInput
from protocols.reading import read_bytes
from runtime.files import write_atomically

_FILE_BYTES = 2 * 2**30
# onnxruntime's own exceptions share no base class; besides them its bindings raise these three.
_FAILURES: tuple[type[Exception], ...] = (
    ValueError,
    TypeError,
    RuntimeError,
    *(
        each
        for each in vars(onnxruntime_pybind11_state).values()
        if isinstance(each, type) and issubclass(each, Exception)
    ),
)


@dataclass(frozen=True, eq=False)
class OnnxTeacher(Teacher):
    """One input, queries first; the first output is class ids [queries] or scores [queries, classes]."""

    content: bytes = field(repr=False)
    session: onnxruntime.InferenceSession = field(repr=False)

    def predict(self, inputs: Float32[ndarray, "queries ..."]) -> Int64[ndarray, " queries"]:
        """The class of each query. Raises InvalidInput if the model cannot take the queries or returns no class ids."""
        wanted = self.session.get_inputs()[0]
        fixed = wanted.shape[0] if wanted.shape and isinstance(wanted.shape[0], int) else None
        chunks = []
        for start in range(0, len(inputs), fixed or max(1, len(inputs))):
            chunk = np.ascontiguousarray(inputs[start : start + (fixed or len(inputs))])
            short = (fixed or len(chunk)) - len(chunk)
            if short:
                chunk = np.concatenate([chunk, np.repeat(chunk[-1:], short, axis=0)])
            chunks.append(self._ids(wanted.name, chunk)[: len(chunk) - short])
        return np.concatenate(chunks) if chunks else np.empty(0, np.int64)

    def _ids(self, name: str, inputs: Float32[ndarray, "queries ..."]) -> Int64[ndarray, " queries"]:
        try:
            output = self.session.run([self.session.get_outputs()[0].name], {name: inputs})[0]
        except _FAILURES as error:
            raise InvalidInput(
                f"the ONNX model cannot take inputs of shape {inputs.shape}: {str(error)[:200]}"
            ) from None
        output = np.asarray(output)
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
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        try:
            # From bytes, so that the model cannot name other files.
            session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
            # The names in a model are bytes, decoded only when they are read.
            taken = [(each.name, each.type) for each in session.get_inputs()]
            given = [each.name for each in session.get_outputs()]
        except _FAILURES as error:
            raise DataCorrupt(f"{path} is not a readable ONNX model: {str(error)[:200]}") from None
        if len(taken) != 1 or taken[0][1] != "tensor(float)" or not given:
            raise DataCorrupt(
                f"{path} takes {len(taken)} inputs; allowed: one of 32-bit floats, and at least one output"
            )
        return OnnxTeacher(content, session)


def onnx(*, device: str) -> OnnxKind:
    """Models from ONNX files, on the CPU."""
    return OnnxKind()
