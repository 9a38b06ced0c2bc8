"""A student's ONNX file with one step more: its probabilities to a power, normalised. Labels stay as they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import checker, helper, numpy_helper

from coordinator.students.certainty import Raised
from coordinator.students.student import ONNX_FILE, Student, Written, write_with
from protocols.errors import InvalidInput

_OUTPUT, _BEFORE = "probabilities", "probabilities_as_learned"


def write_raised(student: Student, folder: Path) -> Written:
    """Writes what the student's own exporter does. A safetensors file has the network as it was trained."""
    if not isinstance(student, Raised):
        raise InvalidInput(f"the student is {type(student).__name__}; allowed: Raised")
    written = write_with(student.student.exporter, student.student, folder)
    model = onnx.load(folder / ONNX_FILE)
    graph = model.graph
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [_BEFORE if each == _OUTPUT else each for each in names]
    graph.initializer.append(numpy_helper.from_array(np.array(student.power, np.float32), "power"))
    graph.initializer.append(numpy_helper.from_array(np.array([1], np.int64), "along_classes"))
    graph.node.extend([
        helper.make_node("ReduceMax", [_BEFORE, "along_classes"], ["likeliest"], keepdims=1),
        helper.make_node("Div", [_BEFORE, "likeliest"], ["of_likeliest"]),
        helper.make_node("Pow", ["of_likeliest", "power"], ["raised"]),
        helper.make_node("ReduceSum", ["raised", "along_classes"], ["total"], keepdims=1),
        helper.make_node("Div", ["raised", "total"], [_OUTPUT]),
    ])  # fmt: skip
    checker.check_model(model)
    (folder / ONNX_FILE).write_bytes(model.SerializeToString())
    return written
