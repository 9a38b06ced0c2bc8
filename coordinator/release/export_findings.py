"""A student of several findings as one ONNX file: the graphs of its students beside each other, on the same inputs.

It gives `label` (int64, 1 where a finding is named, a column per finding), `probabilities` of each, and its metadata
hold the findings' names, in order, as JSON under `findings`.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any  # onnx has no types

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, checker, compose, helper, numpy_helper

from coordinator.students.findings import FindingsStudent
from coordinator.students.student import ONNX_FILE, Student, Written, write_with
from protocols.errors import InvalidInput
from protocols.study.findings import PRESENT

FINDINGS, THRESHOLDS = "findings", "thresholds"


def write_findings(student: Student, folder: Path) -> Written:
    """Writes student.onnx."""
    if not isinstance(student, FindingsStudent):
        raise InvalidInput(f"the student is {type(student).__name__}; allowed: FindingsStudent")
    made, written = [], []
    for each in student.each:
        with tempfile.TemporaryDirectory() as one:
            written.append(write_with(each.exporter, each, Path(one)))
            made.append(onnx.load(Path(one) / ONNX_FILE))
    (folder / ONNX_FILE).write_bytes(one_model(student, made, [each.classes for each in written]).SerializeToString())
    return Written((ONNX_FILE,), written[0].input_shape, tuple(range(len(made))))


def one_model(student: FindingsStudent, models: Sequence[ModelProto], classes: Sequence[tuple[int, ...]]) -> ModelProto:
    """One model of the students' own, in order; classes: of the columns of the probabilities of each."""
    count = len(models)
    graph = helper.make_graph([], "findings", [models[0].graph.input[0]], [
        helper.make_tensor_value_info("label", TensorProto.INT64, [None, count]),
        helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [None, count]),
    ])  # fmt: skip

    def constant(name: str, value: np.ndarray) -> str:
        graph.initializer.append(numpy_helper.from_array(value, name))
        return name

    parts: list[str] = []
    domains: dict[str, int] = {}
    functions: dict[tuple[str, str], Any] = {}
    for at, (model, columns) in enumerate(zip(models, classes, strict=True)):
        named = compose.add_prefix(model, f"{at}_", rename_inputs=False, rename_functions=False)
        graph.node.extend(named.graph.node)
        graph.initializer.extend(named.graph.initializer)
        graph.value_info.extend(named.graph.value_info)
        domains |= {each.domain: each.version for each in model.opset_import}
        functions |= {(each.domain, each.name): each for each in model.functions}
        column = columns.index(PRESENT) if PRESENT in columns else 0
        place = constant(f"column_{at}", np.array([column], np.int64))
        there = constant(f"there_{at}", np.array([float(PRESENT in columns)], np.float32))
        graph.node.append(helper.make_node("Gather", [f"{at}_probabilities", place], [f"told_{at}"], axis=1))
        graph.node.append(helper.make_node("Mul", [f"told_{at}", there], [f"present_{at}"]))
        parts.append(f"present_{at}")
    limits = constant(THRESHOLDS, np.array([student.thresholds], np.float32))
    graph.node.extend([
        helper.make_node("Concat", parts, ["probabilities"], axis=1),
        helper.make_node("GreaterOrEqual", ["probabilities", limits], ["named"]),
        helper.make_node("Cast", ["named"], ["label"], to=TensorProto.INT64),
    ])  # fmt: skip
    opsets = [helper.make_opsetid(domain, version) for domain, version in domains.items()]
    made = helper.make_model(
        graph, opset_imports=opsets, ir_version=max(each.ir_version for each in models), producer_name="conclave",
        functions=list(functions.values()),
    )  # fmt: skip
    helper.set_model_props(made, {FINDINGS: json.dumps(student.names, ensure_ascii=False)})
    checker.check_model(made)
    return made
