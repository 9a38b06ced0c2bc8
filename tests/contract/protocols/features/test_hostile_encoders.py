"""An operator's ONNX file as the attacker: that reads the hospital's files, or moves other records' votes."""

import numpy as np
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from party.teachers.onnx_file import onnx
from protocols.errors import DataCorrupt, InvalidInput
from protocols.features.encoder import Encoder
from protocols.features.onnx_graph import check_even, check_onnx
from protocols.features.onnx_model import OnnxModel
from tests.harness.refusals import refuses

SECRET = np.arange(4, dtype=np.float32)


def value(name, shape=None):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def model(nodes, *, initializers=(), inputs=(), outputs=("y",), functions=()):
    """A model of [1, 2] with an output of unknown shape, as bytes."""
    graph = helper.make_graph(
        list(nodes), "g", [value("x", [1, 2]), *inputs], [value(each) for each in outputs], list(initializers)
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9, functions=functions).SerializeToString()


def elsewhere(location="secret.bin"):
    """A tensor "w" of 2 x 2 numbers that are in another file."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2, 2], data_location=TensorProto.EXTERNAL)
    for key, text in (("location", location), ("offset", "0"), ("length", "16")):
        tensor.external_data.add(key=key, value=text)
    return tensor


def constant():
    node = helper.make_node("Constant", [], ["w"])
    node.attribute.append(AttributeProto(name="value", type=AttributeProto.TENSOR, t=elsewhere()))
    return node


def branching(then, names):
    """Nodes that run `then` for a record whose largest value is above 1/2, and give other records back as they are."""
    other = helper.make_graph([helper.make_node("Identity", ["x"], ["e"])], "else", [], [value("e")])
    return [
        helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0),
        helper.make_node("Greater", ["most", "half"], ["is"]),
        helper.make_node("If", ["is"], names, then_branch=then, else_branch=other),
    ]


HALF = numpy_helper.from_array(np.float32(0.5), "half")
MOST = [helper.make_node("Max", ["x", "w"], ["y"])]
THEN = helper.make_graph([helper.make_node("Max", ["x", "w"], ["t"])], "then", [], [value("t")], [elsewhere()])
SPIES = {
    "a number that may be given": model(MOST, initializers=[elsewhere()], inputs=[value("w", [2, 2])]),
    "an output": model([helper.make_node("Identity", ["x"], ["y"])], initializers=[elsewhere()], outputs=("w", "y")),
    "a constant": model([constant(), *MOST]),
    "a branch": model(branching(THEN, ["y"]), initializers=[HALF]),
}


@pytest.mark.parametrize("spy", SPIES.values(), ids=SPIES)
def test_no_model_reads_a_file_of_the_working_folder(spy, tmp_path, monkeypatch) -> None:
    """Without the check onnxruntime 1.31 reads the file in three of these four ways."""
    (tmp_path / "secret.bin").write_bytes(SECRET.tobytes())
    (tmp_path / "model.onnx").write_bytes(spy)
    monkeypatch.chdir(tmp_path)
    with refuses(InvalidInput, "a model that is one file"):
        Encoder(spy, 2)(np.ones((1, 2), np.float32))
    with pytest.raises(DataCorrupt, match="numbers from another file"):
        onnx(device="cpu").load(tmp_path / "model.onnx")


def test_that_such_a_model_would_read_the_file_is_no_idle_fear(tmp_path, monkeypatch) -> None:
    """The positive control: the same attack, with nothing that checks the graph."""
    (tmp_path / "secret.bin").write_bytes(SECRET.tobytes())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("protocols.features.onnx_model.check_onnx", lambda *_, **__: None)
    spy = OnnxModel.of(SPIES["a number that may be given"], where="it", own=True)
    np.testing.assert_array_equal(spy.first_output(-np.ones((1, 2), np.float32)), SECRET[None, :2])


def noise(source="RandomUniform", **more):
    node = helper.make_node(source, [], ["r"], shape=[1, 2], seed=1.0, high=100.0, **more)
    return helper.make_graph([node, helper.make_node("Add", ["x", "r"], ["n"])], "then", [], [value("n")])


def test_no_record_moves_anothers_features_by_a_generator_that_goes_on() -> None:
    """A record with a mark draws; one without is the same each time, so the first record, asked again, shows nothing.

    Whoever replaces record 1 by a marked one would move all later marked ones, and with them their votes: the cost of a
    record's votes would be wrong by as many records as there are.
    """
    spy = Encoder(model(branching(noise(), ["y"]), initializers=[HALF]), 2)
    records = np.zeros((6, 2), np.float32)
    records[2:] = 1
    with refuses(InvalidInput, "RandomUniform", "ONNX"):
        spy(records)


def test_without_the_check_one_record_moves_every_later_one_unseen(monkeypatch) -> None:
    monkeypatch.setattr("protocols.features.onnx_model.check_onnx", lambda *_, **__: None)
    spy = model(branching(noise(), ["y"]), initializers=[HALF])
    records = np.zeros((6, 2), np.float32)
    records[2:] = 1
    replaced = records.copy()
    replaced[1] = 1
    moved = (Encoder(spy, 2)(records) != Encoder(spy, 2)(replaced)).any(axis=1)
    assert moved.tolist() == [False, True, True, True, True, True]


def trained(**attributes):
    """A batch normalisation whose running mean is the output."""
    node = helper.make_node("BatchNormalization", ["x", *"sbmv"], ["z", "y", "variance"], **attributes)
    ones = [numpy_helper.from_array(np.ones(2, np.float32), each) for each in "sbmv"]
    return model([node], initializers=ones)


def test_a_running_mean_goes_on_from_record_to_record_unless_it_is_refused(monkeypatch) -> None:
    """onnxruntime writes it over the model's own numbers, so a batch normalisation in training has a memory."""
    spy, record = trained(training_mode=1), np.zeros((1, 2), np.float32)
    with refuses(InvalidInput, "BatchNormalization", "ONNX"):
        Encoder(spy, 2)(record)
    monkeypatch.setattr("protocols.features.onnx_model.check_onnx", lambda *_, **__: None)
    unchecked = OnnxModel.of(spy, where="it", own=False)
    assert not np.array_equal(unchecked.first_output(record), unchecked.first_output(record))


def test_a_model_that_fails_on_a_value_does_not_show_it() -> None:
    """onnxruntime names the index that a table does not have: here a value of a hospital's record."""
    nodes = [
        helper.make_node("Cast", ["x"], ["index"], to=TensorProto.INT64),
        helper.make_node("Gather", ["table", "index"], ["y"]),
    ]
    spy = Encoder(model(nodes, initializers=[numpy_helper.from_array(np.zeros(9, np.float32), "table")]), 2)
    with refuses(InvalidInput, "(1, 2)") as refused:
        spy(np.array([[3.0, 4711.0]], np.float32))
    assert "4711" not in str(refused.value)
    assert refused.value.__suppress_context__


DROPOUT = helper.make_node("Dropout", ["x", "", "training"], ["y"])
HIDDEN = helper.make_function(
    "own", "Hidden", ["x"], ["y"], [helper.make_node("RandomNormalLike", ["x"], ["y"])], [helper.make_opsetid("", 17)]
)
DRAWING = {
    "multinomial": (model([helper.make_node("Multinomial", ["x"], ["y"])]), "Multinomial"),
    "bernoulli": (model([helper.make_node("Bernoulli", ["x"], ["y"])]), "Bernoulli"),
    "a dropout that trains": (
        model([DROPOUT], initializers=[numpy_helper.from_array(np.array(True), "training")]),
        "Dropout",
    ),
    "in a function": (model([helper.make_node("Hidden", ["x"], ["y"], domain="own")], functions=[HIDDEN]), "Normal"),
    "in a subgraph of a subgraph": (
        model(
            branching(helper.make_graph(branching(noise(), ["z"]), "then", [], [value("z")]), ["y"]),
            initializers=[HALF],
        ),
        "RandomUniform",
    ),
    "a batch normalisation with a memory": (trained(), "BatchNormalization"),
    "a function in the place of an operator outside the standard": (
        model(
            [helper.make_node("BiasDropout", ["x"], ["y"], domain="com.microsoft")],
            functions=[
                helper.make_function(
                    "com.microsoft",
                    "BiasDropout",
                    ["x"],
                    ["y"],
                    [helper.make_node("Identity", ["x"], ["y"])],
                    [helper.make_opsetid("", 17)],
                )
            ],
        ),
        "com.microsoft:BiasDropout",
    ),
    "outside the standard": (
        model([helper.make_node("BiasDropout", ["x"], ["y"], domain="com.microsoft")]),
        "com.microsoft:BiasDropout",
    ),
}


@pytest.mark.parametrize(("content", "named"), DRAWING.values(), ids=DRAWING)
def test_an_operator_that_draws_is_found_wherever_it_is(content, named) -> None:
    with pytest.raises(DataCorrupt, match=named):
        check_onnx(content, where="it", own=False)
    check_onnx(content, where="it", own=True)


def test_operators_that_do_not_train_and_a_function_of_the_models_own_are_allowed() -> None:
    function = helper.make_function(
        "own", "Twice", ["x"], ["y"], [helper.make_node("Add", ["x", "x"], ["y"])], [helper.make_opsetid("", 17)]
    )
    nodes = [
        helper.make_node("Dropout", ["x"], ["z"]),
        helper.make_node("BatchNormalization", ["z", *"sbmv"], ["n"], training_mode=0),
        helper.make_node("Twice", ["n"], ["y"], domain="own"),
    ]
    ones = [numpy_helper.from_array(np.ones(2, np.float32), each) for each in "sbmv"]
    made = Encoder(model(nodes, initializers=ones, functions=[function]), 2)
    np.testing.assert_array_equal(made(np.ones((1, 2), np.float32)), [[2.0, 2.0]])


def test_bytes_that_are_no_model_are_refused_and_so_are_names_that_are_no_text() -> None:
    for content in (b"\x0a", bytes(range(256)), b"\x3a\x05\x0a\xff\xff\xff\xff"):
        with refuses(DataCorrupt, "ONNX"):
            check_onnx(content, where="it", own=True)
    no_text = DRAWING["outside the standard"][0].replace(b"com.microsoft", b"\xff" * 13)
    with refuses(DataCorrupt, "operator"):
        check_onnx(no_text, where="it", own=False)


TAKES_LONGER = {
    "a size": [
        helper.make_node("Cast", ["x"], ["sides"], to=TensorProto.INT64),
        helper.make_node("Flatten", ["sides"], ["flat"], axis=0),
        helper.make_node("Squeeze", ["flat"], ["shape"]),
        helper.make_node("ConstantOfShape", ["shape"], ["y"]),
    ],
    "a number of copies": [
        helper.make_node("Cast", ["x"], ["times"], to=TensorProto.INT64),
        helper.make_node("Tile", ["x", "times"], ["y"]),
    ],
    "a branch": branching(helper.make_graph([helper.make_node("Exp", ["x"], ["t"])], "then", [], [value("t")]), ["y"]),
    "those that are not 0": [helper.make_node("NonZero", ["x"], ["y"])],
}


@pytest.mark.parametrize("nodes", TAKES_LONGER.values(), ids=TAKES_LONGER)
def test_no_model_that_judges_score_takes_longer_for_some_records(nodes):
    content = model(nodes, initializers=[HALF])
    check_onnx(content, where="the model", own=False)
    with pytest.raises(DataCorrupt, match="as long for every record"):
        check_even(content, where="the model")


def test_sizes_that_follow_from_sizes_are_even():
    nodes = [
        helper.make_node("Reshape", ["copy", "shape"], ["y"]),
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Relu", ["x"], ["copy"]),
    ]
    check_even(model(nodes), where="the model")
