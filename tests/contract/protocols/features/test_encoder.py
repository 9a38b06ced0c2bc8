"""An encoder shipped as an ONNX file: what it may be, what it gives, and what is refused."""

import builtins
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from coordinator.queries.features import features_for
from protocols.errors import DataUnavailable, InvalidInput
from protocols.features.encoder import Encoder
from protocols.features.feature_map import FeatureMap
from tests.harness.refusals import refuses

WEIGHTS = np.arange(24, dtype=np.float32).reshape(12, 2) / 8
RECORDS = np.random.default_rng(0).random((300, 3, 4)).astype(np.float32)


def model(rows="records", kind=TensorProto.FLOAT):
    """Flattens [rows, 3, 4] and multiplies by WEIGHTS."""
    nodes = [helper.make_node("Flatten", ["x"], ["flat"]), helper.make_node("MatMul", ["flat", "w"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "encoder",
        [helper.make_tensor_value_info("x", kind, [rows, 3, 4])],
        [helper.make_tensor_value_info("y", kind, [rows, 2])],
        [numpy_helper.from_array(WEIGHTS.astype(helper.tensor_dtype_to_np_dtype(kind)), "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


@pytest.mark.parametrize("rows", ["records", 7])
def test_it_gives_the_models_first_output_however_many_records_a_model_takes_at_once(rows) -> None:
    made = FeatureMap((3, 4), (Encoder.of(model(rows), RECORDS[:1]),))
    assert made.width == 2
    np.testing.assert_allclose(made(RECORDS), RECORDS.reshape(300, 12) @ WEIGHTS, rtol=1e-5)
    assert made(RECORDS[:0]).shape == (0, 2)


def test_it_travels_as_a_file_and_is_named_by_its_bytes(tmp_path) -> None:
    (tmp_path / "encoder.onnx").write_bytes(model())
    made = features_for(RECORDS, f"onnx:{tmp_path / 'encoder.onnx'}", seed=0)
    read = FeatureMap.from_bytes(made.to_bytes())
    np.testing.assert_array_equal(read(RECORDS), made(RECORDS))
    other = FeatureMap((3, 4), (Encoder.of(model(7), RECORDS[:1]),))
    assert read.digest == made.digest != other.digest
    with pytest.raises(DataUnavailable):
        features_for(RECORDS, "onnx:nothing.onnx", seed=0)


def graph_of(*nodes, rows="records"):
    """A model of [rows, 3, 4] that is these nodes from "x" to "y"."""
    shown = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, 3, 4]) for name in ("x", "y")]
    made = helper.make_graph(list(nodes), "encoder", shown[:1], shown[1:])
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


@pytest.mark.parametrize("rows", ["records", 7])
def test_a_record_that_is_replaced_changes_no_other_records_features_whatever_the_model_does(rows) -> None:
    """A mean over the batch would move every record's vote, and no epsilon would hold."""
    mixing = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[0]),
        helper.make_node("Add", ["x", "mean"], ["sum"]),
        helper.make_node("Flatten", ["sum"], ["y"]),
    ]
    made = FeatureMap((3, 4), (Encoder(graph_of(*mixing, rows=rows), 12),))
    before = made(RECORDS[:20])
    other = RECORDS[:20].copy()
    other[3] += 100
    np.testing.assert_array_equal(np.delete(made(other), 3, axis=0), np.delete(before, 3, axis=0))
    np.testing.assert_array_equal(made(RECORDS[5:6])[0], before[5])


def test_a_model_that_draws_at_random_is_refused() -> None:
    noise = [
        helper.make_node("RandomNormalLike", ["x"], ["noise"]),
        helper.make_node("Add", ["x", "noise"], ["sum"]),
        helper.make_node("Flatten", ["sum"], ["y"]),
    ]
    with pytest.raises(InvalidInput, match="other features each"):
        Encoder(graph_of(*noise), 12)(RECORDS[:2])


@pytest.mark.parametrize(
    ("content", "records", "words"),
    [
        (b"no model", RECORDS, ("ONNX",)),
        (model(kind=TensorProto.DOUBLE), RECORDS, (32,)),
        (model(), RECORDS[:, :2], ("(1, 2, 4)",)),
        (model(), RECORDS * np.float32(np.finfo(np.float32).max), ("allowed: finite float32",)),
    ],
    ids=["no model", "doubles", "other records", "overflow"],
)
def test_what_is_no_encoder_of_these_records_is_refused(content, records, words) -> None:
    made = FeatureMap(records.shape[1:], (Encoder(content, 2),))
    with refuses(InvalidInput, *words):
        made(records)


def test_another_width_than_declared_is_refused() -> None:
    with refuses(InvalidInput, "(1, 2)", "(1, 3)"):
        Encoder(model(), 3)(RECORDS)


def test_without_onnxruntime_one_error_says_what_to_install(monkeypatch) -> None:
    real = builtins.__import__

    def without(name, *rest, **more):
        if name == "onnxruntime":
            raise ModuleNotFoundError("No module named 'onnxruntime'", name="onnxruntime")
        return real(name, *rest, **more)

    monkeypatch.delitem(sys.modules, "protocols.features.onnx_model", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with refuses(InvalidInput, "onnxruntime", "pip install"):
        Encoder(model(), 2)(RECORDS)
