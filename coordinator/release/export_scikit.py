"""A classifier of scikit-learn as ONNX, by skl2onnx."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

from skl2onnx import convert_sklearn
from skl2onnx.common.data_types import FloatTensorType

from coordinator.release.export import ONNX_FILE, Written
from coordinator.students.student import Student
from protocols.errors import InvalidInput

_OPSET = {"": 18, "ai.onnx.ml": 3}


def write(student: Student, folder: Path) -> Written:
    """Writes student.onnx; inputs are flattened, and probabilities cover only the classes that occur in the labels."""
    from coordinator.students.scikit import ScikitStudent

    if not isinstance(student, ScikitStudent):
        raise InvalidInput(f"the student is {type(student).__name__}; allowed: ScikitStudent")
    width = math.prod(student.input_shape)
    with warnings.catch_warnings():
        # For boosted trees skl2onnx gives protobuf a boolean where it wants an integer.
        warnings.filterwarnings("ignore", message="Field onnx.AttributeProto.ints: Expected an int, got a boolean")
        graph = convert_sklearn(
            student.model,
            initial_types=[("inputs", FloatTensorType([None, width]))],
            final_types=None,
            options={id(student.model): {"zipmap": False, "output_class_labels": False}},
            target_opset=_OPSET,
        )
    (folder / ONNX_FILE).write_bytes(graph.SerializeToString())
    return Written((ONNX_FILE,), (width,), tuple(int(each) for each in student.model.classes_))
