"""The best model of all private records without privacy: as good as each of those that are compared."""

import dataclasses

import numpy as np
import pytest

from coordinator.students import student_kind, torch_student
from coordinator.students.student import one_hot
from simulations import pipeline
from simulations.progress import Reporter
from simulations.setup.experiment import experiment
from simulations.stages.ceiling import Ceiling
from simulations.stages.inputs import Host, read_inputs


@pytest.fixture
def inputs_of(tmp_path):
    def read(name, **more):
        host = Host(data_dir=None, cache_dir=tmp_path, engine="in_process", workers=1)
        return read_inputs(experiment(dataset=name, parties=5, **more), host=host, reporter=Reporter(quiet=True))

    return read


def accuracy(kind, dataset):
    targets = one_hot(dataset.private_labels, dataset.classes)
    pool = dataset.private_inputs
    student = student_kind(kind).fit(pool, targets, unlabelled=pool[:0], classes=dataset.classes, seed=0)
    return (student.predict(dataset.test_inputs) == dataset.test_labels).mean()


@pytest.mark.parametrize(("name", "network"), [("digits", "mlp"), ("breast_cancer", "mlp")])
def test_the_ceiling_is_nearly_as_good_as_the_better_of_a_linear_model_and_a_network(
    inputs_of, tmp_path, name, network
):
    inputs = inputs_of(name)
    ceiling = Ceiling(inputs.dataset, lambda: inputs.as_rows, "hog", "usual", 0, tmp_path)
    better = max(accuracy("logistic_regression", inputs.as_rows), accuracy(network, inputs.dataset))
    assert ceiling.accuracy() >= better - 0.02


def test_test_records_choose_no_model_and_what_is_cached_is_the_same(inputs_of, tmp_path, monkeypatch):
    inputs = inputs_of("breast_cancer")
    found = Ceiling(inputs.dataset, lambda: inputs.as_rows, "hog", "usual", 0, tmp_path).test_probabilities
    other = dataclasses.replace(inputs.dataset, test_labels=1 - inputs.dataset.test_labels)
    for cache in (tmp_path, tmp_path / "empty"):
        again = Ceiling(other, lambda: other, "hog", "usual", 0, cache).test_probabilities
        np.testing.assert_array_equal(again, found)
    monkeypatch.setattr(Ceiling, "_fit", None)
    # A student for which the same kinds are compared finds what they said.
    np.testing.assert_array_equal(Ceiling(other, lambda: other, "hog", "mlp", 0, tmp_path).test_probabilities, found)


def test_another_process_trains_the_network_of_many_records_and_it_is_the_same(inputs_of, tmp_path, monkeypatch):
    inputs, cache = inputs_of("digits", student="label_spreading"), tmp_path / "beside"
    host = dataclasses.replace(inputs.host, cache_dir=cache, workers=2)
    monkeypatch.setattr(pipeline, "_MANY_VALUES", 1)
    with pipeline._pooled_beside(inputs, host) as awaited, monkeypatch.context() as patch:
        assert awaited is not None
        awaited()
        patch.setattr(Ceiling, "_fit", None)
        found = pipeline._pooled(inputs.settings, inputs, host).network_said
    np.testing.assert_allclose(pipeline._pooled(inputs.settings, inputs, inputs.host).network_said, found, atol=1e-4)
    with pipeline._pooled_beside(inputs, host) as awaited:
        assert awaited is None


@pytest.mark.parametrize("kind", ["mlp", "cnn"])
def test_a_network_is_not_worse_for_having_labels_that_are_many(monkeypatch, inputs_of, kind):
    dataset = inputs_of("digits").dataset
    few = accuracy(kind, dataset)
    monkeypatch.setattr(torch_student, "_MANY", len(dataset.private_labels))
    assert accuracy(kind, dataset) >= few - 0.02


@pytest.mark.parametrize(
    ("name", "given", "seen"),
    [("digits", {"student": "logistic_regression"}, True), ("digits", {"student": "logistic_regression+equal"}, True),
     ("digits", {"student": "logistic_regression", "student_features": False}, False),
     ("digits", {"student": "cnn"}, False), ("breast_cancer", {"student": "logistic_regression"}, False)],
)  # fmt: skip
def test_a_linear_student_of_images_sees_features_unless_told_otherwise(inputs_of, name, given, seen):
    inputs = inputs_of(name, **given)
    assert (inputs.studied.kind == "table") == (seen or name == "breast_cancer")
    assert (inputs.studied is inputs.dataset) == (not seen)
