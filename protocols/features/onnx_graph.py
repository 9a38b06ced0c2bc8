"""What an ONNX file asks its runtime to do, read before it runs: its operators, and where its numbers are.

onnxruntime takes numbers from another file of the working folder, if a model names one, even where the model itself
comes as bytes; an operator that draws at random keeps its generator from one run to the next, and a batch normalisation
that is being trained keeps its running mean, so that one record moves the features of those after it; and a sparse
tensor of a few bytes becomes as large as it says while the file is read. The limit of memory (onnx_model.py) holds for
the numbers in tensors, not for the letters of texts, nor for the empty tensors of which a loop or a sequence makes any
number; and functions that call each other become a graph as large as they like. All are refused here.

The few fields of the format (onnx.proto, IR version 3 on) that matter are declared here, so that no package is needed
but protobuf, which parses them as onnxruntime does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import Any  # messages of protobuf made at run time

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from protocols.errors import DataCorrupt

# Message -> its fields: name, number, and the message it holds, "bytes", "int", or "enum" (read as an integer).
_FORMAT = {
    "Model": (
        ("graph", 7, "Graph"),
        ("metadata_props", 14, "*Entry"),
        ("training", 20, "*Training"),
        ("functions", 25, "*Function"),
    ),
    "Training": (("initialization", 1, "Graph"), ("algorithm", 2, "Graph")),
    "Graph": (("node", 1, "*Node"), ("initializer", 5, "*Tensor"), ("sparse_initializer", 15, "*Sparse")),
    "Function": (("name", 1, "bytes"), ("node", 7, "*Node"), ("domain", 10, "bytes")),
    "Node": (
        ("input", 1, "*bytes"),
        ("output", 2, "*bytes"),
        ("op_type", 4, "bytes"),
        ("attribute", 5, "*Attribute"),
        ("domain", 7, "bytes"),
    ),
    "Attribute": (
        ("name", 1, "bytes"),
        ("i", 3, "int"),
        ("s", 4, "bytes"),
        ("t", 5, "Tensor"),
        ("g", 6, "Graph"),
        ("strings", 9, "*bytes"),
        ("tensors", 10, "*Tensor"),
        ("graphs", 11, "*Graph"),
        ("sparse_tensor", 22, "Sparse"),
        ("sparse_tensors", 23, "*Sparse"),
        ("ref_attr_name", 21, "bytes"),
    ),
    "Sparse": (("values", 1, "Tensor"), ("indices", 2, "Tensor"), ("dims", 3, "*int")),
    "Tensor": (
        ("data_type", 2, "enum"),
        ("name", 8, "bytes"),
        ("external_data", 13, "*Entry"),
        ("data_location", 14, "enum"),
    ),
    "Entry": (("key", 1, "bytes"), ("value", 2, "bytes")),
}
_DOMAINS = frozenset({b"", b"ai.onnx", b"ai.onnx.ml"})
# Domains of onnxruntime: it runs its own operator, whatever function of that name the model has.
_OF_RUNTIME = (b"com.microsoft", b"com.ms.", b"ai.onnx", b"org.pytorch")
_DRAWS = frozenset(
    {b"RandomNormal", b"RandomNormalLike", b"RandomUniform", b"RandomUniformLike", b"Multinomial", b"Bernoulli"}
)
# They take memory outside the arena that is bounded: for any number of tensors, or for a tree of a tensor's values.
_UNBOUNDED = frozenset({b"Loop", b"Scan", b"SplitToSequence", b"Unique"})
# The data type of texts, whose letters are outside of it, too.
_TEXT = 8
# Values of all sparse tensors of a model together, those that are 0 among them.
MOST_SPARSE = 2**26
# Nodes of a model once every call of a function is what the function does, and how deep such calls may go.
MOST_NODES = 2**14
_DEEPEST = 32
# Of what a model says of itself under one name, in characters.
_MOST_SAID = 200
# Operators whose work and sizes follow from the sizes of what they are given, not from its values.
_FIXED = frozenset(
    b"""Abs Add And ArgMax ArgMin ArrayFeatureExtractor AveragePool BatchNormalization Binarizer Cast CastLike Ceil Celu
    Clip Concat Conv CumSum DepthToSpace Div Dropout Einsum Elu Equal Erf Exp Flatten Floor Gather GatherElements Gelu
    Gemm GlobalAveragePool GlobalMaxPool Greater GreaterOrEqual GroupNormalization HardSigmoid HardSwish Hardmax
    Identity Imputer InstanceNormalization IsInf IsNaN LabelEncoder LayerNormalization LeakyRelu Less LessOrEqual
    LinearClassifier LinearRegressor Log LogSoftmax LpNormalization MatMul Max MaxPool Mean Min Mish Mod Mul Neg
    Normalizer Not Or PRelu Pow Reciprocal Relu Round SVMClassifier SVMRegressor Scaler ScatterElements Selu Sigmoid
    Sign Softmax Softplus Softsign SpaceToDepth Sqrt Sub Sum Tanh ThresholdedRelu Transpose TreeEnsemble
    TreeEnsembleClassifier TreeEnsembleRegressor Where Xor ZipMap""".split()
)
# The same, where only the first of their inputs depends on a record: the others are sizes.
_SIZED = frozenset(
    b"""Expand OneHot Pad ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd
    ReduceSum ReduceSumSquare Reshape Resize Slice Split Squeeze Tile TopK Unsqueeze""".split()
)
# They give sizes, whatever the values are.
_GIVE_SIZES = frozenset({b"Shape", b"Size"})
# A dropout draws only where this input of it, whether it is being trained, is given.
_TRAINS = 2


def check_onnx(content: bytes, *, where: str, own: bool) -> None:
    """Raises DataCorrupt for a file that is no ONNX model, or one whose numbers are in another file.

    where: what it is, for the message; own: whether whoever runs it made it: it may then draw at random, use operators
    outside the standard (of which nobody here knows whether they do), and take any memory.
    """
    try:
        model = _message("Model").FromString(content)
    except DecodeError:
        raise DataCorrupt(f"{where} is not a readable ONNX model") from None
    sparse = 0
    defined = {(each.domain, each.name) for each in model.functions if not each.domain.startswith(_OF_RUNTIME)}
    if not own and _inlined(model) > MOST_NODES:
        raise DataCorrupt(
            f"{where} has functions that make more than {MOST_NODES} nodes; allowed: up to so many, and calls up to "
            f"{_DEEPEST} deep"
        )
    for nodes, tensors, shapes in _parts(*_graphs(model), *model.functions):
        sparse += sum(math.prod(max(side, 0) for side in shape) for shape in shapes)
        if sparse > MOST_SPARSE:
            raise DataCorrupt(f"{where} has sparse tensors of {sparse:.3g} values; allowed: up to {MOST_SPARSE}")
        for tensor in tensors:
            if tensor.data_location or tensor.external_data:
                raise DataCorrupt(f"{where} takes numbers from another file; allowed: a model that is one file")
            if tensor.data_type == _TEXT and not own:
                raise DataCorrupt(f"{where} has a tensor of texts; allowed: of numbers")
        for node in () if own else nodes:
            known = node.domain in _DOMAINS or (node.domain, node.op_type) in defined
            named = b":".join((node.domain[:40], node.op_type[:40])).decode(errors="replace")
            if not known or _trains(node) or node.op_type in _DRAWS:
                raise DataCorrupt(
                    f"{where} has the operator {named}; allowed: those of the ONNX standard that draw nothing at "
                    "random and keep nothing, as others give a record other features each time"
                )
            if node.op_type in _UNBOUNDED or _makes_texts(node):
                raise DataCorrupt(
                    f"{where} has the operator {named}; allowed: those whose memory is bounded, so no loops, "
                    "sequences or texts"
                )


def check_even(content: bytes, *, where: str) -> None:
    """Raises DataCorrupt unless a model does as much for every record: how long somebody's model takes would else tell
    what a record holds, and no noise covers that (Haeberlen et al. 2011). For a file that check_onnx takes."""
    graph = _message("Model").FromString(content).graph
    public = {each.name for each in graph.initializer} | {each.values.name for each in graph.sparse_initializer}
    # An operator may stand before those that make what it takes.
    while True:
        known = len(public)
        for node in graph.node:
            if node.op_type in _GIVE_SIZES or public.issuperset(filter(None, node.input)):
                public.update(node.output)
        if len(public) == known:
            break
    for node in graph.node:
        private = [at for at, name in enumerate(node.input) if name and name not in public]
        even = node.op_type in _FIXED | _GIVE_SIZES or (node.op_type in _SIZED and private == [0])
        inner = any(each.HasField("g") or each.graphs for each in node.attribute)
        if inner or (private and not (even and node.domain in _DOMAINS)):
            named = node.op_type[:40].decode(errors="replace")
            raise DataCorrupt(
                f"{where} has the operator {named} of what a record holds; allowed: those that take as long for "
                "every record"
            )


def said_of_itself(content: bytes, name: str) -> str:
    """What an untrusted model says of itself under this name, as one line of printable characters; "" if nothing.

    Raises DataCorrupt for a file that is no ONNX model.
    """
    try:
        entries = _message("Model").FromString(content).metadata_props
    except DecodeError:
        raise DataCorrupt("the encoder's file is not a readable ONNX model") from None
    found = next((each.value for each in entries if each.key == name.encode()), b"").decode(errors="replace")
    return "".join(each for each in found if each.isprintable())[:_MOST_SAID]


def _trains(node: Any) -> bool:
    """Whether a node may be in training: a dropout then draws, and a batch normalisation writes its running mean into
    the model's own numbers."""
    if node.op_type == b"Dropout":
        return len(node.input) > _TRAINS and bool(node.input[_TRAINS])
    modes = [each for each in node.attribute if each.name == b"training_mode"]
    return node.op_type == b"BatchNormalization" and (
        len(node.output) > 1 or any(each.i or each.ref_attr_name for each in modes)
    )


def _makes_texts(node: Any) -> bool:
    """Whether a node may make texts of what is none."""
    for each in node.attribute:
        if b"string" in each.name and (each.s or each.strings):
            return True
        if each.name == b"to" and (each.i == _TEXT or each.ref_attr_name):
            return True
    return False


def _graphs(model: Any) -> list[Any]:
    return [model.graph, *(graph for each in model.training for graph in (each.initialization, each.algorithm))]


def _inlined(model: Any) -> int:
    """How many nodes the graphs have once functions are inlined, or more than MOST_NODES if it is more than that, or
    calls go deeper than _DEEPEST, as those of a function of itself do."""
    if not model.functions:
        return 0
    made: dict[tuple[bytes, bytes], list[tuple[bytes, bytes]]] = {}
    for function in model.functions:  # of one name there may be several
        made.setdefault(_named(function.domain, function.name), []).extend(_called(function))
    sizes = dict.fromkeys(made, 0)
    for _ in range(_DEEPEST):
        before = sizes
        sizes = {
            name: min(sum(1 + before.get(each, 0) for each in calls), MOST_NODES + 1) for name, calls in made.items()
        }
        if sizes == before:
            return sum(1 + sizes.get(each, 0) for each in _called(*_graphs(model)))
    return MOST_NODES + 1


def _called(*bodies: Any) -> list[tuple[bytes, bytes]]:
    return [_named(node.domain, node.op_type) for nodes, _, _ in _parts(*bodies) for node in nodes]


def _named(domain: bytes, name: bytes) -> tuple[bytes, bytes]:
    return (b"" if domain == b"ai.onnx" else domain), name


def _parts(*of: Any) -> Iterator[tuple[list[Any], list[Any], list[list[int]]]]:
    """The nodes, the tensors and the shapes of sparse tensors of graphs and functions, at any depth."""
    bodies = list(of)
    while bodies:
        body = bodies.pop()
        tensors: list[Any] = []
        sparse: list[Any] = []
        if body.DESCRIPTOR.name == "Graph":
            tensors += body.initializer
            sparse += body.sparse_initializer
        for node in body.node:
            for attribute in node.attribute:
                tensors += (attribute.t, *attribute.tensors)
                sparse += (attribute.sparse_tensor, *attribute.sparse_tensors)
                bodies += attribute.graphs
                if attribute.HasField("g"):
                    bodies.append(attribute.g)
        tensors += (tensor for each in sparse for tensor in (each.values, each.indices))
        yield list(body.node), tensors, [list(each.dims) for each in sparse if each.dims]


@cache
def _message(name: str) -> Any:
    """The class of a message of the format."""
    file = FileDescriptorProto(name="conclave/onnx.proto", package="conclave.onnx", syntax="proto2")
    scalars = {
        "bytes": FieldDescriptorProto.TYPE_BYTES,
        "int": FieldDescriptorProto.TYPE_INT64,
        "enum": FieldDescriptorProto.TYPE_INT32,
    }
    for message, fields in _FORMAT.items():
        declared = file.message_type.add(name=message)
        for entry, number, kind in fields:
            made = declared.field.add(name=entry, number=number)
            many, kind = kind.startswith("*"), kind.removeprefix("*")
            made.label = FieldDescriptorProto.LABEL_REPEATED if many else FieldDescriptorProto.LABEL_OPTIONAL
            made.type = scalars.get(kind, FieldDescriptorProto.TYPE_MESSAGE)
            if kind not in scalars:
                made.type_name = f".conclave.onnx.{kind}"
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(f"conclave.onnx.{name}"))
