"""A student as files that outlive this software: ONNX for every kind, safetensors for networks; checked with ONNX
Runtime.

Neither format is pickle: they hold only numbers and a graph of known operators.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import onnxruntime
from jaxtyping import Float32, Int64
from numpy import ndarray

from coordinator.students.student import Student
from protocols.errors import EngineFailed, InvalidInput
from protocols.reading import read_bytes

ONNX_FILE, SAFETENSORS_FILE = "student.onnx", "student.safetensors"
# An export with a smaller share of equal predictions has failed.
_LEAST_AGREEMENT: Final = 0.99
_CHUNK: Final = 1024
_ONNX_BYTES: Final = 2**31


@dataclass(frozen=True)
class Exported:
    """What was written. input_shape: the shape of one query for ONNX; classes: the class ids of the columns of
    `probabilities`; agreement: the share of the pool's queries on which the ONNX file predicts the student's class."""

    files: tuple[str, ...]
    input_shape: tuple[int, ...]
    classes: tuple[int, ...]
    agreement: float


@dataclass(frozen=True)
class Written:
    """What a student's exporter wrote into the folder, ONNX_FILE among it; fields as in Exported."""

    files: tuple[str, ...]
    input_shape: tuple[int, ...]
    classes: tuple[int, ...]


def export_student(student: Student, pool: Float32[ndarray, "queries ..."], folder: Path) -> Exported:
    """Writes the student's files and compares ONNX's predictions with its own on the pool.

    The ONNX graph has one input, `inputs` (float32, queries first), and two outputs, `label` (int64 class ids) and
    `probabilities`. Raises InvalidInput for a student without an exporter, EngineFailed if predictions differ.
    """
    if not student.exporter:
        raise InvalidInput(f"a {type(student).__name__} cannot be exported; allowed: a student with an exporter")
    module, _, name = student.exporter.partition(":")
    write: Callable[[Student, Path], Written] = getattr(importlib.import_module(module), name)
    written = write(student, folder)
    inputs = pool.reshape(len(pool), *written.input_shape)
    agreement = float((predict_onnx(folder / ONNX_FILE, inputs) == student.predict(pool)).mean())
    if agreement < _LEAST_AGREEMENT:
        raise EngineFailed(
            f"{ONNX_FILE} agrees with the student on {agreement:.1%} of the pool; allowed: at least 99 %"
        )
    return Exported(written.files, written.input_shape, written.classes, agreement)


def predict_onnx(path: Path, inputs: Float32[ndarray, "queries ..."]) -> Int64[ndarray, " queries"]:
    """The class that an exported student predicts for each query, computed on the CPU with one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        read_bytes(path, most=_ONNX_BYTES), options, providers=["CPUExecutionProvider"]
    )
    chunks = [
        session.run(["label"], {"inputs": np.ascontiguousarray(inputs[start : start + _CHUNK], dtype=np.float32)})[0]
        for start in range(0, len(inputs), _CHUNK)
    ]
    return np.concatenate(chunks).astype(np.int64)
