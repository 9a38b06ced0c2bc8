import numpy as np
import pytest

from coordinator.students import student_kind
from coordinator.students.student import equal_weights, one_hot

RNG = np.random.default_rng(0)
# Two classes with means -1 and 1, nine records of the first for one of the second.
LABELS = np.repeat([0, 1], [1800, 200])
INPUTS = (RNG.standard_normal(2000) + 2 * LABELS - 1).astype(np.float32)[:, None]


def boundary(kind, targets):
    student = student_kind(kind, device="cpu").fit(INPUTS, targets, unlabelled=INPUTS[:0], classes=3, seed=0)
    line = np.linspace(-2, 3, 501, dtype=np.float32)[:, None]
    return line[student.predict(line).argmax(), 0]


def test_all_classes_that_occur_have_the_same_weight():
    targets = RNG.random((50, 3)).astype(np.float32) * np.float32([1, 0, 9])
    weighed = equal_weights(targets)
    np.testing.assert_allclose(weighed.sum(axis=0), [targets.sum(), 0, targets.sum()], rtol=1e-5)
    np.testing.assert_allclose(weighed[:, 2] / weighed[0, 2], targets[:, 2] / targets[0, 2], rtol=1e-5)


def test_a_student_of_equal_classes_decides_where_they_are_equally_likely():
    """Between two normal classes of variance 1 at -1 and 1: at 0, and at log(9) / 2 with shares of 9 to 1."""
    targets = one_hot(LABELS, 3)
    assert boundary("logistic_regression", targets) == pytest.approx(np.log(9) / 2, abs=0.15)
    assert boundary("logistic_regression+equal", targets) == pytest.approx(0, abs=0.15)
