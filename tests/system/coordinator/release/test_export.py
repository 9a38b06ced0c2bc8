import functools
import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import safetensors.numpy
from onnx import TensorProto, helper, numpy_helper

from coordinator.labelling.training import keep_student, kept_student, train_student
from coordinator.release.export import export_student, predict_onnx
from coordinator.release.export import write_scikit as write_forest
from coordinator.release.export_graphs import check_scores
from coordinator.release.verify import verify_release
from coordinator.students import student_kind
from coordinator.students.scores import ScoresStudent
from coordinator.students.student import Student, one_hot
from party.audit import read_student
from protocols.errors import DataCorrupt, EngineFailed, InvalidInput
from protocols.features.encoder import Encoder
from protocols.features.feature_map import FeatureMap, read_features
from protocols.features.linear import Scale
from tests.harness.record_votes import GRADED
from tests.harness.refusals import refuses
from tests.harness.released import POOL


def trained(kind, shape, *, classes=3, absent=1):
    """A student of labels that never name the class `absent`."""
    inputs = np.random.default_rng(0).standard_normal((120, *shape)).astype(np.float32)
    labels = np.where(inputs.reshape(120, -1)[:, 0] > 0, 0, 2)
    targets = one_hot(labels[:60], classes)
    return student_kind(kind, device="cpu").fit(
        inputs[:60], targets, unlabelled=inputs[60:], classes=classes, seed=0
    ), inputs


@pytest.fixture(scope="module")
def exported_of(tmp_path_factory):
    """(student, its inputs, the folder, what was exported), made once of each kind and shape."""

    @functools.cache
    def made(kind, shape):
        student, inputs = trained(kind, shape)
        folder = tmp_path_factory.mktemp("exported")
        return student, inputs, folder, export_student(student, inputs, folder)

    return made


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        ("random_forest", (5,)),
        ("logistic_regression", (2, 3)),
        ("gradient_boosting", (2, 3)),
        ("mlp", (5,)),
        pytest.param("cnn", (9, 10), marks=pytest.mark.slow),
        pytest.param("cnn", (9, 8, 3), marks=pytest.mark.slow),
    ],
)
def test_onnx_predicts_as_the_student(exported_of, kind, shape):
    student, _, folder, exported = exported_of(kind, shape)
    fresh = np.random.default_rng(1).standard_normal((1500, *shape)).astype(np.float32)
    predicted = predict_onnx(folder / "student.onnx", fresh, exported.input_shape)
    assert (predicted == student.predict(fresh)).mean() > 0.999
    assert set(predicted.tolist()) == {0, 2}


def test_scores_of_every_block_of_features_are_one_graph_and_another_sum_is_told(tmp_path):
    rng = np.random.default_rng(5)
    student = ScoresStudent(GRADED, 0.2 * rng.normal(size=(GRADED.rows, 4)))
    inputs = (3 * rng.normal(size=(2000, 3))).astype(np.float32)
    export_student(student, inputs, tmp_path)
    session = onnxruntime.InferenceSession(tmp_path / "student.onnx")
    labels, chances = session.run(["label", "probabilities"], {"inputs": inputs})
    np.testing.assert_allclose(chances, student.predict_proba(inputs), atol=1e-3)
    assert (labels == student.predict(inputs)).mean() > 0.999
    check_scores(tmp_path / "student.onnx", student)
    near, far = (replace(student, coefficients=student.coefficients + each) for each in (1e-5, 1e-3))
    check_scores(tmp_path / "student.onnx", near)
    with refuses(DataCorrupt, "scores"):
        check_scores(tmp_path / "student.onnx", far)
    for content in (b"", b"no graph", (tmp_path / "student.onnx").read_bytes()[:-9]):
        (tmp_path / "other.onnx").write_bytes(content)
        with pytest.raises(DataCorrupt):
            check_scores(tmp_path / "other.onnx", student)


def test_safetensors_hold_the_networks_parameters(exported_of):
    student, _, folder, _ = exported_of("mlp", (5,))
    tensors = safetensors.numpy.load_file(folder / "student.safetensors")
    assert set(tensors) == {*student.parameters, "offsets"}
    for name, value in student.parameters.items():
        np.testing.assert_array_equal(tensors[name], value.numpy())


@pytest.mark.parametrize("kind", ["mlp", "random_forest"])
def test_a_released_student_names_no_file_of_the_operators_machine_and_holds_no_row_that_it_was_trained_on(
    exported_of, kind
):
    _, inputs, folder, _ = exported_of(kind, (5,))
    here = str(Path(__file__).parents[4])
    for file in folder.iterdir():
        content = file.read_bytes()
        assert here.encode() not in content
        assert not re.search(rb"\.py\b|stack_trace|/home/|site-packages", content)
        assert not any(row.tobytes() in content for row in inputs)


def test_a_file_that_predicts_otherwise_is_refused(tmp_path):
    student, inputs = trained("random_forest", (4,))
    other, _ = trained("random_forest", (4,))
    object.__setattr__(student, "predict", lambda queries: 2 - other.predict(queries))
    with refuses(EngineFailed, "allowed"):
        export_student(student, inputs, tmp_path)


class ForestStudent(Student):
    """Another distribution's student, under the name of a built-in one."""

    def __init__(self, forest):
        self.forest = forest

    def predict(self, inputs):
        return self.forest.predict(inputs)

    def predict_proba(self, inputs):
        return self.forest.predict_proba(inputs)


class ReleasedStudent(ForestStudent):
    """The same with an exporter of its own."""

    @property
    def exporter(self):
        return f"{__name__}:write_forest_of"


def write_forest_of(student, folder):
    return write_forest(student.forest, folder)


def test_a_student_without_an_exporter_is_named_even_if_it_is_called_like_another(tmp_path):
    forest, inputs = trained("random_forest", (4,))
    with refuses(InvalidInput, "ForestStudent"):
        export_student(ForestStudent(forest), inputs, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_student_of_another_distribution_is_exported_by_its_own_exporter(tmp_path):
    forest, inputs = trained("random_forest", (4,))
    exported = export_student(ReleasedStudent(forest), inputs, tmp_path)
    assert exported.files == ("student.onnx",)
    assert (predict_onnx(tmp_path / "student.onnx", inputs, (4,)) == forest.predict(inputs)).mean() > 0.99


@pytest.mark.parametrize("kind", ["random_forest", pytest.param("mlp", marks=pytest.mark.slow)])
def test_a_student_is_released_with_files_that_predict_as_it_does(signed, tmp_path, kind):
    consortium, labelled, _ = signed
    trained = train_student(labelled, POOL, kind=kind, seed=1, device="cpu")
    folder = consortium.release(labelled, tmp_path / "student", trained=trained)
    figures = json.loads((folder / "student.json").read_text())
    assert figures["agreement"] == trained.agreement
    assert (folder / "student.safetensors").exists() == (kind == "mlp")
    card, made = (folder / "model_card.md").read_text(), json.loads((folder / "privacy.json").read_text())
    assert f"{100 * trained.agreement:.1f} %" in card
    assert "- Unit record, adjacency replace-one, view label, " in card
    epsilon = max(seat["guarantee"]["epsilon"] for seat in made["seats"])
    stated = re.search(rf"epsilon of one record \({made['protected']['unit_in_words']}\): up to ([0-9.]+); a pat", card)
    assert stated is not None
    assert float(stated[1]) == pytest.approx(epsilon, rel=1e-3)
    # Which data left the hospitals, and which did not.
    page = (folder / "privacy.html").read_text()
    assert "votes on every query that it answered; which hospital was absent or refused; sizes of ledgers. " in page
    assert "No record and no teacher." in page
    assert [check for check in verify_release(folder, None) if check.passed is False] == []


def encoder_of(weights, *, licence):
    """A model that multiplies records by the weights, and says under which licence."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "encoder",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["records", weights.shape[0]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["records", weights.shape[1]])],
        [numpy_helper.from_array(weights, "w")],
    )
    made = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    made.metadata_props.add(key="licence", value=licence)
    return made.SerializeToString()


def test_a_student_of_features_is_released_with_them_and_is_both_one_after_the_other(signed, tmp_path):
    consortium, labelled, _ = signed
    mixed = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    content = encoder_of(mixed, licence="MIT\n# not a heading")
    features = FeatureMap((4,), (Encoder(content, 3),)).then(Scale.of(np.zeros(3), np.full(3, 0.5)))
    trained = train_student(labelled, POOL, kind="logistic_regression", seed=1, device="cpu", features=features)
    keep_student(tmp_path / "kept", labelled, trained)
    kept = kept_student(tmp_path / "kept", labelled, POOL)
    folder = consortium.release(labelled, tmp_path / "release", trained=kept)
    assert [check for check in verify_release(folder, None) if check.passed is False] == []

    seen = read_features(folder / "features.npz", features.digest)(POOL)
    np.testing.assert_allclose(seen, POOL @ mixed / 2, atol=1e-2)
    session = onnxruntime.InferenceSession(folder / "student.onnx", providers=["CPUExecutionProvider"])
    given = session.run(["probabilities"], {"inputs": seen})[0]
    parts = trained.student.predict_proba(features(POOL))
    np.testing.assert_allclose(given, parts[:, trained.student.model.classes_], atol=1e-5)
    student = read_student(folder, authority=consortium.authority, coordinator="centre")
    np.testing.assert_array_equal(student.predict(POOL), trained.student.predict(features(POOL)))

    card = (folder / "model_card.md").read_text()
    assert f"Encoder in `features.npz`, SHA-256 {hashlib.sha256(content).hexdigest()}: weights: not stated" in card
    assert "licence of the weights, as its file says: MIT# not a heading\n" in card
    (folder / "features.npz").write_bytes(FeatureMap((4,)).to_bytes())
    with refuses(DataCorrupt, "features.npz"):
        read_student(folder, authority=consortium.authority, coordinator="centre")
