"""Students as ONNX graphs that are put together here: scores, several findings, and probabilities to a power.

Scores of graded votes: phi in float64, a product with B, the class; read again, and held against the sum. The graph
computes phi as protocols/sums/blocks.py does, but for the last rounding towards zero of at most one step of NORM_STEPS
an entry. Several findings: the graphs of their students beside each other, on the same inputs; it gives `label` (int64,
1 where a finding is named, a column per finding), `probabilities` of each, and its metadata hold the findings' names,
in order, as JSON under `findings`. To a power: a student's own graph with one step more; labels stay as they are.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final  # Any: onnx has no types

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from jaxtyping import Float64
from numpy import ndarray
from onnx import ModelProto, TensorProto, checker, compose, helper, numpy_helper

from coordinator.students.certainty import Raised
from coordinator.students.findings import FindingsStudent
from coordinator.students.scores import ScoresStudent
from coordinator.students.student import ONNX_FILE, Student, Written, write_with
from protocols.errors import DataCorrupt, InvalidInput
from protocols.features.feature_map import FeatureMap
from protocols.features.stage import MOST_STEPS, STEPS
from protocols.reading import read_bytes
from protocols.study.findings import PRESENT, STATES
from protocols.sums.blocks import KERNEL_STEPS, NORM_STEPS, Block, Chosen, Constant, Kernel, Linear, Nearest, Signs

# How far a score of any record may be from what the sum gives: least squares on another machine differ in last digits.
SAME_SCORE: Final = 1e-3
_OPSET: Final = 18
_IR: Final = 9
_ONNX_BYTES: Final = 2**31
_COEFFICIENTS: Final = "coefficients"
FINDINGS, THRESHOLDS = "findings", "thresholds"
_OUTPUT, _BEFORE = "probabilities", "probabilities_as_learned"


class _Graph:
    """Nodes and constants of a graph of float64, each named by its number."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, op: str, *inputs: str | ndarray | float, outputs: int = 1, **attributes: Any) -> Any:
        """The name of what an operator gives, or a list of names of several."""
        names = [f"{op}_{len(self.nodes)}_{each}" for each in range(outputs)]
        given = [each if isinstance(each, str) else self.constant(each) for each in inputs]
        self.nodes.append(helper.make_node(op, given, names, name=f"{op}_{len(self.nodes)}", **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, value: ndarray | float, name: str = "") -> str:
        """The name of a constant: whole numbers stay int64, all others are float64."""
        array = np.asarray(value)
        named = name or f"constant_{len(self.constants)}"
        held = array if array.dtype == np.int64 else array.astype(np.float64)
        self.constants.append(numpy_helper.from_array(held, named))
        return named


def write_scores(student: Student, folder: Path) -> Written:
    """Writes student.onnx: `label` and `probabilities` of the study's features."""
    if not isinstance(student, ScoresStudent):
        raise InvalidInput(f"the student is {type(student).__name__}; allowed: ScoresStudent")
    (folder / ONNX_FILE).write_bytes(_model(student).SerializeToString())
    return Written((ONNX_FILE,), (student.blocks.features.width,), tuple(range(student.coefficients.shape[1])))


def check_scores(path: Path, student: Student) -> None:
    """Raises DataCorrupt unless a file is the graph of this student, with coefficients by which no score of any record
    differs by more than SAME_SCORE: phi is of length 1, and so the length of their difference bounds it."""
    try:
        given = ModelProto.FromString(read_bytes(path, most=_ONNX_BYTES))
        found = _taken_out(given)
    except (DecodeError, ValueError, TypeError) as error:
        raise DataCorrupt(f"{path.name} is no graph of scores: {str(error)[:200]}") from None
    made = _made(student)
    wanted = _taken_out(made)
    same = given == made and found.keys() == wanted.keys()
    for name, array in wanted.items():
        if not same or found[name].shape != array.shape or not np.isfinite(found[name]).all():
            raise DataCorrupt(f"{path.name} is not the graph of the study's features and of their scores")
        worst = float(np.sqrt(((found[name] - array) ** 2).sum(axis=0)).max())
        if worst > SAME_SCORE:
            raise DataCorrupt(f"scores differ by up to {worst:.3g} from what the sums give; allowed: {SAME_SCORE:g}")


def features_of(student: Student) -> FeatureMap:
    """What scores see of a record. Raises InvalidInput for a student that has none."""
    first = student.each[0] if isinstance(student, FindingsStudent) else student
    if not isinstance(first, ScoresStudent):
        raise InvalidInput(f"the student is {type(student).__name__}; allowed: ScoresStudent")
    return first.blocks.features


def _made(student: Student) -> ModelProto:
    """The graph of scores, or of those of several findings."""
    if isinstance(student, FindingsStudent):
        models = [_made(each) for each in student.each]
        return one_model(student, models, [tuple(range(len(STATES)))] * len(models))
    assert isinstance(student, ScoresStudent)  # as features_of found
    return _model(student)


def _taken_out(model: ModelProto) -> dict[str, Float64[ndarray, "rows classes"]]:
    """The coefficients and thresholds of a model, by name, which are removed from it. Raises ValueError where it has no
    coefficients."""
    found = {}
    for each in [each for each in model.graph.initializer if each.name.endswith((_COEFFICIENTS, THRESHOLDS))]:
        array = np.asarray(numpy_helper.to_array(each))
        if array.ndim != 2 or array.dtype.kind != "f" or each.name in found:
            raise ValueError(f"{each.name[:80]} is {array.dtype} of shape {array.shape}")
        found[each.name] = array.astype(np.float64)
        model.graph.initializer.remove(each)
    if not found:
        raise ValueError("it has no array of coefficients")
    return found


def _model(student: ScoresStudent) -> ModelProto:
    blocks, classes = student.blocks, student.coefficients.shape[1]
    graph = _Graph()
    features = graph.add("Cast", "inputs", to=TensorProto.DOUBLE)
    parts = [
        _of_length(graph, _BLOCKS[type(block)](graph, block, features), length / NORM_STEPS)
        for block, length in zip(blocks.blocks, blocks.lengths, strict=True)
    ]
    phi = graph.add("Concat", *parts, axis=1)
    moved = graph.add("MatMul", phi, graph.constant(student.coefficients, _COEFFICIENTS))
    scores = graph.add("Add", moved, 1 / classes)
    label = graph.add("ArgMax", scores, axis=1, keepdims=0)
    chances = graph.add("Softmax", graph.add("Mul", scores, float(classes)), axis=1)
    graph.nodes += [
        helper.make_node("Identity", [label], ["label"], name="label"),
        helper.make_node("Cast", [chances], ["probabilities"], name="probabilities", to=TensorProto.FLOAT),
    ]
    made = helper.make_graph(
        graph.nodes,
        "scores",
        [helper.make_tensor_value_info("inputs", TensorProto.FLOAT, [None, blocks.features.width])],
        [
            helper.make_tensor_value_info("label", TensorProto.INT64, [None]),
            helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [None, classes]),
        ],
        graph.constants,
    )
    model = helper.make_model(
        made, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR, producer_name="conclave"
    )
    checker.check_model(model)
    return model


def _of_length(graph: _Graph, values: str, length: float) -> str:
    """Rows scaled to a length; a row of zeros stays."""
    # By its largest entry first: squares of large whole numbers lose digits that the others still have.
    largest = graph.add("ReduceMax", graph.add("Abs", values), np.array([1]), keepdims=1)
    scaled = graph.add("Div", values, graph.add("Max", largest, 1.0))
    norm = graph.add("ReduceL2", scaled, np.array([1]), keepdims=1)
    some = graph.add("Where", graph.add("Greater", norm, 0.0), norm, 1.0)
    return str(graph.add("Mul", graph.add("Div", scaled, some), length))


def _steps(graph: _Graph, block: Chosen, features: str) -> str:
    chosen = graph.add("Gather", features, block.columns.astype(np.int64), axis=1)
    rounded = graph.add("Round", graph.add("Mul", chosen, block.scales[None] * STEPS))
    return str(graph.add("Clip", rounded, -float(MOST_STEPS), float(MOST_STEPS)))


def _constant(graph: _Graph, block: Constant, features: str) -> str:
    first = graph.add("Gather", features, np.array([0]), axis=1)
    return str(graph.add("Add", graph.add("Mul", first, 0.0), 1.0))


def _linear(graph: _Graph, block: Linear, features: str) -> str:
    moved = graph.add("Sub", _steps(graph, block, features), block.centre[None].astype(np.float64))
    return str(graph.add("MatMul", moved, block.matrix.T.astype(np.float64))) if len(block.matrix) else str(moved)


def _signs(graph: _Graph, block: Signs, features: str) -> str:
    above = graph.add("Greater", _steps(graph, block, features), block.centre[None].astype(np.float64))
    return str(graph.add("Where", above, 1.0, -1.0))


def _squared_distances(graph: _Graph, block: Kernel | Nearest, features: str, *, own: bool) -> str:
    """Of each record to each centre; without the record's own square, which all centres have in common."""
    steps, centres = _steps(graph, block, features), block.centres.astype(np.float64)
    products = graph.add("MatMul", steps, -2 * centres.T)
    found = graph.add("Add", products, (centres * centres).sum(axis=1)[None])
    if not own:
        return str(found)
    return str(graph.add("Add", found, graph.add("ReduceSumSquare", steps, np.array([1]), keepdims=1)))


def _kernel(graph: _Graph, block: Kernel, features: str) -> str:
    left = graph.add("Sub", float(block.width), _squared_distances(graph, block, features, own=True))
    root = graph.add("Floor", graph.add("Mul", graph.add("Div", graph.add("Max", left, 0.0), float(block.width)),
                                        float(KERNEL_STEPS)))  # fmt: skip
    square = graph.add("Mul", root, root)
    value = graph.add("Floor", graph.add("Div", graph.add("Mul", square, square), float(KERNEL_STEPS) ** 3))
    moved = graph.add("Sub", value, block.means[None].astype(np.float64))
    return str(graph.add("MatMul", moved, block.matrix.T.astype(np.float64)))


def _nearest(graph: _Graph, block: Nearest, features: str) -> str:
    distances = _squared_distances(graph, block, features, own=False)
    _, places = graph.add("TopK", distances, np.array([block.nearest]), outputs=2, axis=1, largest=0)
    return str(graph.add("ReduceSum", graph.add("Gather", np.eye(block.rows), places, axis=0), np.array([1]),
                         keepdims=0))  # fmt: skip


_BLOCKS: Final[Mapping[type[Block], Callable[..., str]]] = {
    Constant: _constant, Linear: _linear, Signs: _signs, Kernel: _kernel, Nearest: _nearest,
}  # fmt: skip


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
