"""An encoder that asks for more memory or time than a hospital has."""

import numpy as np
import pytest
from onnx import SparseTensorProto, TensorProto, helper

from protocols.errors import DataCorrupt, InvalidInput
from protocols.features import onnx_model
from protocols.features.encoder import Encoder
from protocols.features.onnx_graph import MOST_SPARSE, check_onnx
from protocols.features.onnx_model import BATCH, MOST_ROWS, OnnxModel
from tests.harness.refusals import refuses

RECORD = np.ones((1, 2), np.float32)
SUM = [helper.make_node("ReduceSum", ["big"], ["sum"], keepdims=0), helper.make_node("Add", ["x", "sum"], ["y"])]


def whole(name, values):
    return helper.make_node("Constant", [], [name], value=helper.make_tensor(name, TensorProto.INT64, [1], [values]))


def model(*nodes, rows="records", sparse=()):
    """A model of [rows, 2] that is these nodes from "x" to "y"."""
    shown = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, 2]) for name in ("x", "y")]
    graph = helper.make_graph(list(nodes), "encoder", shown[:1], shown[1:], sparse_initializer=list(sparse))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


def endless():
    """A loop of 2**62 rounds that changes nothing."""
    shown = [
        helper.make_tensor_value_info(name, kind, shape)
        for name, kind, shape in (
            ("round", TensorProto.INT64, []), ("go", TensorProto.BOOL, []), ("value", TensorProto.FLOAT, None),
            ("on", TensorProto.BOOL, []), ("same", TensorProto.FLOAT, None),
        )
    ]  # fmt: skip
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Identity", ["value"], ["same"])],
        "body", shown[:3], shown[3:],
    )  # fmt: skip
    return model(whole("rounds", 2**62), helper.make_node("Loop", ["rounds", "", "x"], ["y"], body=body))


def sparse(size):
    """A tensor "big" of zeros and one 1."""
    values, places = (helper.make_tensor(*each, [1], [1]) for each in (("big", 1), ("places", TensorProto.INT64)))
    return SparseTensorProto(values=values, indices=places, dims=[size])


def test_an_encoder_that_never_ends_is_given_up(monkeypatch) -> None:
    """A loop of a hospital's own is what never ends here; in an encoder no operator is allowed that could."""
    made = OnnxModel.of(endless(), where="it", own=True)  # read before the limit is lowered
    monkeypatch.setattr(onnx_model, "LONGEST_S", 0.01)
    with refuses(InvalidInput, "(1, 2)"):
        made.first_output(RECORD)


def test_a_file_that_is_not_read_in_time_is_given_up(monkeypatch) -> None:
    def never(*_, limit_s):
        raise TimeoutError

    monkeypatch.setattr(onnx_model, "in_time", never)
    with refuses(DataCorrupt, 300):
        OnnxModel.of(model(helper.make_node("Identity", ["x"], ["y"])), where="it", own=False)


@pytest.mark.parametrize("name", ["ConstantOfShape", "Expand"])
def test_an_encoder_that_wants_a_terabyte_gets_none(name) -> None:
    """Neither as the file is read, when constants would be computed, nor as it runs."""
    grown = ["x", "size"] if name == "Expand" else ["size"]
    size = helper.make_node(
        "Constant", [], ["size"], value=helper.make_tensor("size", TensorProto.INT64, [3], [2**19, 2**19, 2])
    )
    with refuses(InvalidInput, 4, "GiB"):
        Encoder(model(size, helper.make_node(name, grown, ["big"]), *SUM), 2)(RECORD)


def test_a_sparse_tensor_is_refused_before_it_is_filled_up() -> None:
    """One value of it would be 4 GiB of zeros as onnxruntime reads the file."""
    check_onnx(model(*SUM, sparse=[sparse(MOST_SPARSE)]), where="it", own=True)
    for many in ([sparse(2**30)], [sparse(MOST_SPARSE), sparse(1)]):
        with refuses(DataCorrupt, 67108864):
            check_onnx(model(*SUM, sparse=many), where="it", own=True)
    within = Encoder(model(*SUM, sparse=[sparse(4)]), 2)
    np.testing.assert_array_equal(within(RECORD), RECORD + 1)


# Each took 8 GiB or more where 12 were to be had, or 3 GiB in 20 s (onnxruntime 1.32); the last three make texts.
UNBOUNDED = {
    "Loop": endless(),
    "SplitToSequence": model(helper.make_node("SplitToSequence", ["x", "x"], ["y"])),
    "Unique": model(helper.make_node("Unique", ["x"], ["y"])),
    "Cast": model(helper.make_node("Cast", ["x"], ["text"], to=TensorProto.STRING)),
    "Constant": model(helper.make_node("Constant", [], ["text"], value_string="x")),
    "ai.onnx.ml:LabelEncoder": model(
        helper.make_node(
            "LabelEncoder", ["x"], ["text"], domain="ai.onnx.ml", keys_floats=[0.0], values_strings=["x" * 16]
        )
    ),
}


@pytest.mark.parametrize(("named", "content"), UNBOUNDED.items())
def test_an_operator_whose_memory_is_not_bounded_is_refused_unless_it_is_ones_own(named, content) -> None:
    with refuses(DataCorrupt, named):
        check_onnx(content, where="it", own=False)
    check_onnx(content, where="it", own=True)


def test_a_tensor_of_texts_is_refused_unless_it_is_ones_own() -> None:
    text = TensorProto(name="text", data_type=TensorProto.STRING, dims=[1], string_data=[b"0123456789abcdef"])
    content = model(helper.make_node("Constant", [], ["text"], value=text))
    with refuses(DataCorrupt, "of numbers"):
        check_onnx(content, where="it", own=False)
    check_onnx(content, where="it", own=True)


def doubling(depth, *, last="Neg"):
    """A model whose functions call the one before twice: 2**depth nodes of the last kind."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]

    def twice(place):
        op, domain = (last, "" if last == "Neg" else "own") if place == 0 else (f"f{place - 1}", "own")
        calls = [helper.make_node(op, [one], [two], domain=domain) for one, two in (("x", "z"), ("z", "y"))]
        return helper.make_function("own", f"f{place}", ["x"], ["y"], calls, opsets)

    shown = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["records", 2]) for name in ("x", "y")]
    graph = helper.make_graph(
        [helper.make_node(f"f{depth - 1}", ["x"], ["y"], domain="own")], "g", shown[:1], shown[1:]
    )
    functions = [twice(place) for place in range(depth)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9, functions=functions).SerializeToString()


def test_functions_that_grow_without_bound_are_refused_before_they_are_read() -> None:
    """2**24 nodes were read for as long as they were given (onnxruntime 1.32); 2**12, and their calls, are within."""
    np.testing.assert_array_equal(Encoder(doubling(4), 2)(RECORD), RECORD)
    check_onnx(doubling(12), where="it", own=False)
    for content in (doubling(24), doubling(40), doubling(2, last="f1")):
        with refuses(DataCorrupt, 16384):
            check_onnx(content, where="it", own=False)
        check_onnx(content, where="it", own=True)


@pytest.mark.parametrize("rows", [0, MOST_ROWS + 1, 2**40])
def test_a_file_that_fixes_too_many_records_is_refused(rows) -> None:
    """A single record would be copied as often."""
    with refuses(InvalidInput, rows, 1, 4096):
        Encoder(model(helper.make_node("Identity", ["x"], ["y"]), rows=rows), 2)(RECORD)


def test_many_records_are_run_in_batches() -> None:
    """A mean over all that is run at once shows what was."""
    mean = helper.make_node("ReduceMean", ["x"], ["mean"], axes=[0])
    made = OnnxModel.of(model(mean, helper.make_node("Sub", ["x", "mean"], ["y"])), where="it", own=False)
    records = np.arange(2 * BATCH + 4, dtype=np.float32).reshape(-1, 2)
    wanted = [part - part.mean(axis=0) for part in (records[:BATCH], records[BATCH:])]
    np.testing.assert_array_equal(made.first_output(records), np.concatenate(wanted))
