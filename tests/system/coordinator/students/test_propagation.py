"""Labels that are propagated over a pool before a network learns them."""

import numpy as np
import pytest

from coordinator.queries.neighbours import laplacian
from coordinator.students.propagation import certain, propagated
from coordinator.students.student import one_hot

RNG = np.random.default_rng(0)
CLUSTER = np.arange(90) % 3
ROWS = (np.array([[0, 0], [0, 9], [9, 0]])[CLUSTER] + RNG.normal(size=(90, 2))).astype(np.float32)


def test_spreading_is_the_solution_of_its_linear_system_with_the_mass_of_each_class_as_released() -> None:
    given = one_hot(CLUSTER[:12], 4)
    wanted = np.zeros((90, 4))
    wanted[:12] = given
    similar = np.eye(90) - laplacian(ROWS, neighbours=10).toarray()
    found = np.linalg.solve(np.eye(90) - (1 - 0.15 * 12 / 90) * similar, wanted)
    found[:, :3] *= (given.sum(axis=0)[:3] + 3) / found[:, :3].sum(axis=0)
    found /= found.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(propagated(ROWS, given, seed=0), found, atol=1e-3)
    assert (found[:, 3] == 0).all()


def test_wrong_labels_are_outvoted_by_their_neighbours() -> None:
    labels = CLUSTER[:45].copy()
    labels[[0, 7, 20, 33]] = (labels[[0, 7, 20, 33]] + 1) % 3
    np.testing.assert_array_equal(propagated(ROWS, one_hot(labels, 3), seed=0).argmax(axis=1), CLUSTER)


def test_colours_decide_where_gradients_say_nothing() -> None:
    rng = np.random.default_rng(0)
    colour = np.arange(60) % 2
    images = rng.uniform(0, 0.3, (60, 8, 8, 3)).astype(np.float32)
    images[np.arange(60), :, :, 2 * colour] += 0.5
    np.testing.assert_array_equal(propagated(images, one_hot(colour[:24], 2), seed=0).argmax(axis=1), colour)


def test_a_label_weighs_as_much_as_it_is_certain() -> None:
    found = certain(np.array([[1, 0, 0], [0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3]]))
    np.testing.assert_allclose(found[:, 0], [1, 1 - np.log(2) / np.log(3), 1e-3], rtol=1e-6)
    assert (found[:, 1:] == 0).all()


@pytest.mark.parametrize("count", [1, 4])
def test_inputs_that_are_all_alike_share_the_labels(count: int) -> None:
    found = propagated(np.ones((count, 5), np.float32), np.array([[2, 1]], np.float32), seed=0)
    np.testing.assert_allclose(found, np.tile([2 / 3, 1 / 3], (count, 1)))
