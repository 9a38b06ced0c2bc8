"""A random forest as ONNX, by skl2onnx."""

from __future__ import annotations

import math
from pathlib import Path

from skl2onnx import convert_sklearn
from skl2onnx.common.data_types import FloatTensorType

from coordinator.release.export import ONNX_FILE, Written
from coordinator.students.student import Student
from protocols.errors import InvalidInput

_OPSET = {"": 18, "ai.onnx.ml": 3}


def write(student: Student, folder: Path) -> Written:
    """Writes student.onnx; inputs are flattened, and probabilities cover only the classes that occur in the labels."""
    from coordinator.students.forest import ForestStudent

    if not isinstance(student, ForestStudent):
        raise InvalidInput(f"the student is {type(student).__name__}; allowed: ForestStudent")
    width = math.prod(student.input_shape)
    graph = convert_sklearn(
        student.model,
        initial_types=[("inputs", FloatTensorType([None, width]))],
        final_types=None,
        options={id(student.model): {"zipmap": False, "output_class_labels": False}},
        target_opset=_OPSET,
    )
    (folder / ONNX_FILE).write_bytes(graph.SerializeToString())
    return Written((ONNX_FILE,), (width,), tuple(int(each) for each in student.model.classes_))
