"""What every kind of student makes of hard, soft and weighted targets."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from numpy import ndarray
from sklearn.datasets import load_digits
from torch.nn import functional

from coordinator.release.export import export_student
from coordinator.students import STUDENTS, scikit, student_kind, torch_student
from coordinator.students.certainty import calibrated
from coordinator.students.student import Released, Student, StudentKind, one_hot

# Rows in two classes by their first feature; as 8x8 images for the kind that takes nothing else.
ROWS = np.random.default_rng(3).standard_normal((300, 64)).astype(np.float32)
ROWS[:, 0] += np.sign(ROWS[:, 0]) * 2
HIGH = ROWS[:, 0] > 0
HARD = one_hot(HIGH.astype(np.int64), 2)
TREES = 20
TRAINED, TESTED = slice(0, 120), slice(120, 300)
NETWORKS = [
    name
    for name in STUDENTS
    if name not in ("logistic_regression", "random_forest", "gradient_boosting", "label_spreading")
]


@pytest.fixture(params=STUDENTS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def kind(name: str, monkeypatch: pytest.MonkeyPatch) -> StudentKind:
    short = torch_student.Schedule(batch=32, epochs=1, fewest_steps=40, most_steps=40)
    monkeypatch.setattr(torch_student, "_SCHEDULE", short)
    monkeypatch.setattr(scikit, "STUDENT_TREES", TREES)
    monkeypatch.setattr(scikit, "STUDENT_ROUNDS", TREES)
    return student_kind(name, device="cpu")


def inputs_of(kind: StudentKind) -> ndarray:
    """The first feature fills the image's left half for a kind that needs images."""
    if not kind.needs_images:
        return ROWS[:, :6]
    images = ROWS.reshape(-1, 8, 8) / 4
    images[:, :, :4] += ROWS[:, :1, None]
    return images


def fit(kind: StudentKind, targets: ndarray) -> Student:
    inputs = inputs_of(kind)[TRAINED]
    return kind.fit(inputs, targets[TRAINED], unlabelled=inputs[:0], classes=2, seed=5)


def probability_of_high(kind: StudentKind, targets: ndarray) -> tuple[float, float]:
    """The mean probability of class 1 among high and among low records."""
    found = fit(kind, targets).predict_proba(inputs_of(kind)[TESTED])[:, 1]
    return float(found[HIGH[TESTED]].mean()), float(found[~HIGH[TESTED]].mean())


@pytest.mark.parametrize("name", ["label_spreading", "logistic_regression", "random_forest"])
def test_a_calibrated_student_says_how_often_it_is_right_though_labels_are_wrong(name: str, tmp_path: Path) -> None:
    images, truth = load_digits(return_X_y=True)
    rng, images = np.random.default_rng(0), (images / 16).astype(np.float32).reshape(-1, 8, 8)
    order = rng.permutation(len(truth))
    released, rest, tests = np.split(order, [200, 1000])
    labels = np.where(rng.random(200) < 0.2, rng.integers(0, 10, 200), truth[released])
    told = Released(images[released], one_hot(labels, 10), images[rest], 10, seed=0)
    kind = student_kind(name)
    plain = kind.learn(told)
    student = calibrated(kind, plain, told, noise=0.0)
    right = student.predict(images[tests]) == truth[tests]
    before, after = (each.predict_proba(images[tests]).max(axis=1) for each in (plain, student))
    assert abs(after.mean() - right.mean()) < 0.06 < 0.1 < abs(before.mean() - right.mean())
    np.testing.assert_array_equal(student.predict(images[tests]), plain.predict(images[tests]))
    # If more labels are wrong, the same agreement with them proves a surer student.
    noisier = calibrated(kind, plain, told, noise=0.6).predict_proba(images[tests]).max(axis=1)
    assert noisier.mean() > after.mean()
    few = Released(told.inputs[:20], told.targets[:20], told.unlabelled, 10, seed=0)
    assert calibrated(kind, plain, few, noise=0.0) is plain
    if not student.exporter:
        rows = images.reshape(-1, 64)  # the same numbers are another pool
        spread = kind.learn(Released(rows[released], told.targets, rows[rest], 10, seed=0))
        assert spread.predict(rows[tests]).shape == tests.shape
        return
    written = export_student(student, images[tests], tmp_path)
    session = onnxruntime.InferenceSession(tmp_path / "student.onnx")
    chances = session.run(["probabilities"], {"inputs": images[tests].reshape(-1, *written.input_shape)})[0]
    np.testing.assert_allclose(chances, student.predict_proba(images[tests])[:, list(written.classes)], atol=1e-4)


@pytest.mark.parametrize("name", NETWORKS)
def test_hard_labels_train_a_network_as_cross_entropy_of_class_numbers_does(
    kind: StudentKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = inputs_of(kind)[TESTED]
    found = fit(kind, HARD).predict_proba(queries)
    of_numbers = functional.cross_entropy
    monkeypatch.setattr(
        torch_student.functional,
        "cross_entropy",
        lambda logits, goals, reduction: of_numbers(logits, goals.argmax(1), reduction=reduction),
    )
    np.testing.assert_array_equal(fit(kind, HARD).predict_proba(queries), found)


# Propagation learns the likeliest class of each input, as Iscen et al. 2019 do: soft labels change its weights alone.
@pytest.mark.parametrize("name", [name for name in STUDENTS if name != "propagation"])
def test_soft_labels_make_less_certain_students_than_hard_ones(kind: StudentKind) -> None:
    soft = 0.3 + 0.4 * HARD
    high, low = probability_of_high(kind, soft)
    assert 0.55 < high < 0.85
    assert 0.15 < low < 0.45
    high, low = probability_of_high(kind, HARD)
    assert high > 0.88
    assert low < 0.12


def test_a_label_counts_by_its_weight(kind: StudentKind) -> None:
    """Two of three records have the wrong label, with a tenth of the weight of the others."""
    wrong = np.arange(len(ROWS)) % 3 > 0
    targets = np.where(wrong[:, None], 0.1 * HARD[:, ::-1], HARD).astype(np.float32)
    high, low = probability_of_high(kind, targets)
    assert high > 0.5
    assert low < 0.5
    high, low = probability_of_high(kind, (targets > 0).astype(np.float32))
    assert high < 0.5
    assert low > 0.5
