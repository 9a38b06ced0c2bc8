import numpy as np
import pytest
import safetensors.numpy

from coordinator.release.export import export_student, predict_onnx
from coordinator.students import student_kind
from coordinator.students.student import Student
from protocols.errors import EngineFailed, InvalidInput


def trained(kind, shape, *, classes=3, absent=1):
    """A student of labels that never name the class `absent`."""
    inputs = np.random.default_rng(0).standard_normal((120, *shape)).astype(np.float32)
    labels = np.where(inputs.reshape(120, -1)[:, 0] > 0, 0, 2)
    student = student_kind(kind, device="cpu").fit(
        inputs[:60], labels[:60], unlabelled=inputs[60:], classes=classes, seed=0
    )
    return student, inputs


@pytest.mark.parametrize(
    ("kind", "shape"), [("random_forest", (2, 3)), ("mlp", (5,)), pytest.param("cnn", (9, 10), marks=pytest.mark.slow)]
)
def test_onnx_predicts_as_the_student(tmp_path, kind, shape):
    student, inputs = trained(kind, shape)
    exported = export_student(student, inputs, tmp_path)
    assert exported.agreement == 1.0
    fresh = np.random.default_rng(1).standard_normal((1500, *shape)).astype(np.float32)
    predicted = predict_onnx(tmp_path / "student.onnx", fresh.reshape(len(fresh), *exported.input_shape))
    assert (predicted == student.predict(fresh)).mean() > 0.999
    assert set(predicted.tolist()) == {0, 2}


def test_safetensors_hold_the_networks_parameters(tmp_path):
    student, inputs = trained("mlp", (5,))
    export_student(student, inputs, tmp_path)
    tensors = safetensors.numpy.load_file(tmp_path / "student.safetensors")
    assert set(tensors) == {*student.parameters, "offsets"}
    for name, value in student.parameters.items():
        np.testing.assert_array_equal(tensors[name], value.numpy())


def test_a_file_that_predicts_otherwise_is_refused(tmp_path):
    student, inputs = trained("random_forest", (4,))
    other, _ = trained("random_forest", (4,))
    object.__setattr__(student, "predict", lambda queries: 2 - other.predict(queries))
    with pytest.raises(EngineFailed, match="allowed"):
        export_student(student, inputs, tmp_path)


def test_a_kind_without_a_writer_is_named(tmp_path):
    class Guess(Student):
        def predict(self, inputs):
            return np.zeros(len(inputs), dtype=np.int64)

        def predict_proba(self, inputs):
            return np.ones((len(inputs), 1), dtype=np.float32)

    with pytest.raises(InvalidInput, match="Guess"):
        export_student(Guess(), np.zeros((3, 2), dtype=np.float32), tmp_path)
