"""Runs in which teachers, and students, learn from features of records."""

import json

import numpy as np
import pytest

from coordinator.encoders import denoising
from protocols.errors import InvalidInput
from simulations.commands.group import run_command
from simulations.progress import Reporter
from simulations.setup.experiment import experiment
from simulations.stages.inputs import Host, read_inputs
from tests.harness.refusals import refuses

SMALL = "--dataset digits --parties 6 --private-size 240 --budgets 8 --engine in_process --workers 1 --quiet".split()


@pytest.fixture
def run(monkeypatch, tmp_path, capsys, here, undrawn):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONCLAVE_CACHE", str(tmp_path / "cache"))

    def call(command, *flags):
        code = run_command([command, *flags])
        return code, capsys.readouterr()

    return call


def test_teachers_and_students_learn_from_features_and_the_pool(run):
    def right(*flags):
        code, said = run("run", *SMALL, "--student", "logistic_regression", "--no-baselines", "--json", *flags)
        assert code == 0, said.err
        return json.loads(said.out)

    plain = right("--out", "a")
    flags = "--teacher label_spreading --features hog+standard+pca:40 --teacher-features --student-features"
    better = right("--out", "b", *flags.split())
    assert better["plurality_accuracy"] > plain["plurality_accuracy"]
    assert better["live_checked"]
    assert better["student_accuracy"] != plain["student_accuracy"]


def test_a_denoising_encoder_of_the_pool_is_a_file_that_a_run_takes(run, monkeypatch):
    monkeypatch.setattr(denoising, "_STEPS", 2)
    data = ["--dataset", "breast_cancer"]
    code, said = run("encoder", "denoising", *data, "--out", "rows.onnx", "--quiet")
    assert code == 0, said.err
    assert "rows.onnx: SHA-256 " in said.out
    flags = "--parties 6 --budgets 8 --engine in_process --workers 1 --quiet --student none --no-baselines".split()
    code, said = run("run", *data, *flags, "--features", "onnx:rows.onnx", "--teacher-features", "--json", "--out", "c")
    assert code == 0, said.err
    code, said = run("encoder", "denoising", *data, "--out", "rows.onnx", "--quiet")
    assert "rows.onnx exists" in said.err


@pytest.fixture
def inputs(tmp_path):
    host = Host(data_dir=None, cache_dir=tmp_path, engine="in_process", workers=1)

    def read(**settings):
        made = experiment(dataset="digits", parties=4, private_size=80, **settings)
        return read_inputs(made, host=host, reporter=Reporter(quiet=True))

    return read


def test_who_sees_features_is_what_the_settings_say_and_they_are_kept(inputs, tmp_path):
    plain = inputs()
    assert plain.taught is plain.studied is plain.dataset
    taught = inputs(features="pca:5", teacher_features=True)
    assert taught.studied is taught.dataset
    assert (taught.taught.kind, taught.taught.private_inputs.shape) == ("table", (80, 5))
    np.testing.assert_array_equal(taught.taught.test_inputs, taught.features(taught.dataset.test_inputs))
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "features").iterdir()}
    both = inputs(features="pca:5", teacher_features=True, student_features=True)
    assert both.studied is both.taught
    assert both.fingerprint == taught.fingerprint != plain.fingerprint, "an encoder's file is no setting"
    assert both.settings.student == "usual"
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "features").iterdir()} == kept
    voting = inputs(votes_by="record", record_queries="clusters:10", features="hog", student_features=True, budgets="1")
    assert voting.taught is voting.dataset
    assert voting.studied.public_inputs.shape[1] == voting.query_map.features.width


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"features": "pca:5", "teacher_features": True, "teacher": "cnn"}, ("teacher", "cnn")),
        ({"features": "hog", "student_features": True, "student": "cnn"}, ("student", "cnn")),
        ({"student_features": True}, ("teacher_features", "student_features")),
        ({"features": "hog"}, ("teacher_features", "student_features")),
        ({"features": "hog+huge", "teacher_features": True}, ("hog+huge",)),
    ],
)
def test_features_that_somebody_cannot_learn_from_are_refused(inputs, settings, words):
    with refuses(InvalidInput, *words):
        inputs(**settings)
