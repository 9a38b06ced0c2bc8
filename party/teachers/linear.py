"""Teachers whose score of a class is linear in the inputs, saved as npz; however they were trained."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from party.teachers.teacher import PRIVATE, Teacher, among_seen
from party.teachers.validation import check_queries
from protocols.array_files import read_arrays
from protocols.errors import DataCorrupt, DataUnavailable
from protocols.levels.hidden_queries.inference.model import Dense, Model
from runtime.files import write_atomically


@dataclass(frozen=True, eq=False)
class LinearTeacher(Teacher):
    """The class with the largest score inputs @ weights + offsets, among the classes seen.

    kind: as the table of teachers names it; a file is of one kind.
    """

    kind: str
    weights: Float32[ndarray, "features seen"] = field(repr=False)
    offsets: Float32[ndarray, " seen"] = field(repr=False)
    seen: Int64[ndarray, " seen"] = field(repr=False)
    input_shape: tuple[int, ...]

    def predict(self, inputs: Float32[ndarray, "queries ..."]) -> Int64[ndarray, " queries"]:
        """The class of each query. Raises InvalidInput for queries of another shape or not finite."""
        check_queries(inputs, self.input_shape)
        scores = inputs.reshape(len(inputs), len(self.weights)) @ self.weights + self.offsets
        return np.asarray(self.seen[scores.argmax(axis=1)], np.int64)

    def private_model(self, *, classes: int) -> Model:
        if self.kind not in PRIVATE:
            return super().private_model(classes=classes)
        return Model(self.input_shape, (among_seen(Dense(self.weights.T, self.offsets), self.seen, classes=classes),))

    def save(self, path: Path) -> None:
        """Writes an npz file. Raises StorageFailed."""
        content = io.BytesIO()
        np.savez(
            content,
            kind=np.array(self.kind),
            weights=self.weights,
            offsets=self.offsets,
            seen=self.seen,
            input_shape=np.array(self.input_shape, np.int64),
        )
        write_atomically(path, content.getvalue())


def read_linear(path: Path, *, kind: str) -> LinearTeacher:
    """Reads what LinearTeacher.save wrote of this kind. Raises DataCorrupt."""
    try:
        file = read_arrays(path, ["kind", "weights", "offsets", "seen", "input_shape"])
        said, weights, offsets, seen, input_shape = file.values()
    except (DataUnavailable, DataCorrupt) as failure:
        raise DataCorrupt(f"{path} is not a readable linear teacher: {failure}") from failure
    if said.dtype.kind != "U" or said.shape != () or said.item() != kind:
        raise DataCorrupt(f"{path} is a teacher of another kind; allowed: {kind}")
    types = (weights.dtype, offsets.dtype, seen.dtype, input_shape.dtype)
    if types != (np.dtype(np.float32),) * 2 + (np.dtype(np.int64),) * 2:
        raise DataCorrupt(f"{path} holds {types}; allowed: float32 weights and offsets, int64 classes and shape")
    if seen.ndim != 1 or input_shape.ndim != 1 or not len(seen) or (seen < 0).any():
        raise DataCorrupt(f"{path} does not list the classes and the shape that its teacher was trained on")
    if weights.shape != (input_shape.prod(), len(seen)) or offsets.shape != seen.shape:
        raise DataCorrupt(f"{path}: weights {weights.shape}, offsets {offsets.shape}, classes {seen.shape} differ")
    if not (np.isfinite(weights).all() and np.isfinite(offsets).all()):
        raise DataCorrupt(f"{path} holds NaN or infinite weights; allowed: finite numbers")
    return LinearTeacher(kind, weights, offsets, seen, tuple(int(length) for length in input_shape))
