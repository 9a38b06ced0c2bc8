import numpy as np
import pytest

from coordinator.students.student import normalised, one_hot, seen_classes, weighted_rows
from protocols.errors import InvalidInput
from tests.harness.refusals import refuses


def test_hard_labels_are_one_hot_rows():
    rows = one_hot(np.array([2, 0]), 3)
    assert rows.dtype == np.float32
    assert rows.tolist() == [[0, 0, 1], [1, 0, 0]]
    assert one_hot(np.array([], np.int64), 3).shape == (0, 3)


@pytest.mark.parametrize("label", [-1, 3])
def test_a_label_that_is_no_class_is_refused(label):
    with refuses(InvalidInput, "[0, 2]"):
        one_hot(np.array([0, label]), 3)


def test_weights_count_by_their_ratios_and_hard_labels_stay_as_they_are():
    hard = one_hot(np.arange(7) % 3, 3)
    np.testing.assert_array_equal(normalised(hard), hard)
    soft = np.array([[1.0, 3.0], [0.0, 2.0]], np.float32)
    np.testing.assert_allclose(normalised(soft), soft / 3)
    np.testing.assert_allclose(normalised(8 * soft), soft / 3)


def test_an_input_comes_once_for_each_class_with_a_weight():
    inputs = np.arange(6, dtype=np.float32).reshape(3, 1, 2)
    targets = np.array([[0.5, 0, 0.5], [0, 0, 1], [0, 0, 1]], np.float32)
    rows, labels, weights = weighted_rows(inputs, targets)
    assert rows.tolist() == [[0, 1], [0, 1], [2, 3], [4, 5]]
    assert labels.tolist() == [0, 2, 2, 2]
    assert weights.tolist() == [0.5, 0.5, 1, 1]
    assert seen_classes(targets).tolist() == [0, 2]
