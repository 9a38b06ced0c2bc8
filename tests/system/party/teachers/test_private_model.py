"""Teachers as private models: they say what the teacher says, in a file without pickle, or are refused at once."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from benchmarks.float_inference import agreement, float_inference
from party.teachers import TEACHERS, teacher_kind
from party.teachers.teacher import PRIVATE
from party.voting.trained import load_model, save_model
from protocols.errors import DataCorrupt, DataUnavailable, InvalidInput
from protocols.levels.hidden_queries.inference.architecture import Precision
from protocols.levels.hidden_queries.inference.model import AveragePool, Convolution, Dense, Model, ReLU, quantise
from tests.harness.refusals import refuses

SOURCE = load_digits()
IMAGES, LABELS = (SOURCE.images / 16).astype(np.float32), SOURCE.target.astype(np.int64)
PRECISION = Precision(8, 10, 32, 1.0)


@pytest.mark.parametrize("name", PRIVATE)
def test_a_private_model_says_what_its_teacher_says_and_in_fixed_point_almost_always(name, tmp_path):
    teacher = teacher_kind(name, device="cpu").fit([(IMAGES[:500], LABELS[:500])], classes=10, seeds=[1])[0]
    model = teacher.private_model(classes=10)
    save_model(tmp_path / "private.npz", model)
    loaded = load_model(tmp_path / "private.npz")
    # Sums in another order may decide between two classes that score alike.
    assert (float_inference(loaded, IMAGES[500:]) == teacher.predict(IMAGES[500:])).mean() > 0.998
    assert agreement(loaded, quantise(loaded, PRECISION), IMAGES[500:]) > 0.98


@pytest.mark.parametrize("name", PRIVATE)
def test_a_class_that_a_teacher_has_not_seen_is_never_said(name):
    rows = np.isin(LABELS, [2, 7])
    teacher = teacher_kind(name, device="cpu").fit([(IMAGES[rows][:60], LABELS[rows][:60])], classes=10, seeds=[1])[0]
    model = teacher.private_model(classes=10)
    assert model.shapes()[-1].outputs == 10
    assert set(float_inference(model, IMAGES).tolist()) == {2, 7}
    only = teacher_kind(name, device="cpu").fit([(IMAGES[rows][:1], LABELS[rows][:1])], classes=10, seeds=[1])[0]
    assert set(float_inference(only.private_model(classes=10), IMAGES).tolist()) == {int(LABELS[rows][0])}


@pytest.mark.parametrize("name", sorted(set(TEACHERS) - set(PRIVATE)))
def test_other_kinds_are_refused_with_those_that_are_allowed(name):
    kind = teacher_kind(name, device="cpu").with_pool(IMAGES[60:100])
    teacher = kind.fit([(IMAGES[:60], LABELS[:60])], classes=10, seeds=[1])[0]
    with refuses(InvalidInput, "logistic_regression", "small_cnn"):
        teacher.private_model(classes=10)


def layers():
    rng = np.random.default_rng(1)
    convolution = Convolution(rng.normal(size=(2, 1, 3, 3)), rng.normal(size=2), stride=2, padding="same")
    return Model((8, 8), (convolution, ReLU(), AveragePool(2), Dense(rng.normal(size=(3, 8)), rng.normal(size=3))))


def test_every_layer_survives_its_file_which_its_owner_alone_may_read(tmp_path):
    path = tmp_path / "private.npz"
    save_model(path, layers())
    assert path.stat().st_mode & 0o777 == 0o600
    loaded, images = load_model(path), np.random.default_rng(2).normal(size=(20, 8, 8))
    assert [type(layer) for layer in loaded.layers] == [type(layer) for layer in layers().layers]
    np.testing.assert_array_equal(float_inference(loaded, images), float_inference(layers(), images))


def _changed(path: Path, **changes) -> None:
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    np.savez(path, **{name: array for name, array in (arrays | changes).items() if array is not None})


@pytest.mark.parametrize(
    "changes",
    [
        {"input_shape": None},
        {"4-bias": None},
        {"4-dense": np.zeros((3, 9))},
        {"4-dense": np.zeros((3, 8), np.int64)},
        {"4-dense": np.full((3, 8), np.nan)},
        {"1-about": np.array([0, 0])},
        {"2-relu": None},
        {"9-relu": np.zeros(0)},
        {"input_shape": np.array([8, 9])},
        {"3-pool": np.array([0])},
    ],
)
def test_a_broken_file_is_named_and_never_half_read(changes, tmp_path):
    path = tmp_path / "private.npz"
    save_model(path, layers())
    _changed(path, **changes)
    with refuses(DataCorrupt, "private.npz"):
        load_model(path)


def test_a_file_that_is_absent_or_cut_off_is_named(tmp_path):
    path = tmp_path / "private.npz"
    with refuses(DataUnavailable, "conclave-party train"):
        load_model(path)
    save_model(path, layers())
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataCorrupt):
        load_model(path)
