"""Soft labels of a pool from noisy cells and the graph of its nearest neighbours."""

import numpy as np
import pytest

from coordinator.labelling.soft_labels import NoisySums, graded_labels, propagated_labels, soft_labels, soft_labels_of
from protocols.errors import InvalidInput
from protocols.features.feature_map import FeatureMap
from protocols.sums.blocks import NORM_STEPS, TARGET_STEPS, Blocks, Constant, Linear, Nearest

RNG = np.random.default_rng(8)
# Two rings, one inside the other: which one a record lies on is its label. A query is a sector of 24.
ANGLES, LABELS = RNG.uniform(0, 2 * np.pi, 600), RNG.integers(0, 2, 600)
POOL = ((1 + LABELS) * np.stack([np.cos(ANGLES), np.sin(ANGLES)])).T.astype(np.float32)
SECTORS = np.stack([np.cos(np.arange(24) * np.pi / 12), np.sin(np.arange(24) * np.pi / 12)]).T
RINGS = np.concatenate([SECTORS, 2 * SECTORS]).astype(np.float32)
CENTRES = Blocks(FeatureMap((2,)), (Nearest.of(RINGS, columns=np.arange(2)),))
MEMBERS = CENTRES.cells(CENTRES.features(POOL))


def cells_of(records, sigma):
    """Private records on the same rings."""
    rng = np.random.default_rng(8)
    picked = rng.integers(0, 600, records)
    cells = np.zeros((CENTRES.rows, 2))
    np.add.at(cells, (MEMBERS[picked, 0], LABELS[picked]), 1)
    return cells + rng.normal(0, sigma, cells.shape)


def right(found):
    return (found.probabilities.argmax(axis=1) == LABELS).mean()


def test_neighbours_correct_what_noise_made_of_single_cells() -> None:
    cells = cells_of(4000, 60.0)
    plain = (cells.argmax(axis=1)[MEMBERS[:, 0]] == LABELS).mean()
    found = propagated_labels(NoisySums(cells, records=4000, sigma=60), MEMBERS, POOL)
    assert right(found) > 0.95 > 0.9 > plain
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 1)
    assert found.probabilities.min() > 0


def test_many_records_without_noise_give_the_labels_they_have() -> None:
    found = propagated_labels(NoisySums(cells_of(50_000, 0.0), records=50_000, sigma=0), MEMBERS, POOL)
    assert right(found) == 1
    assert found.probabilities[np.arange(600), LABELS].mean() > 0.95
    assert found.reliability.max() <= 1


def test_cells_that_are_all_noise_give_nearly_even_labels_and_no_reliability() -> None:
    found = propagated_labels(NoisySums(cells_of(100, 1e5), records=100, sigma=1e5), MEMBERS, POOL)
    assert np.abs(found.probabilities - 0.5).max() < 0.25
    assert found.reliability.max() < 1e-3


def test_records_that_are_copies_or_far_from_all_others_have_labels_too() -> None:
    pool = np.concatenate([np.zeros((40, 2)), [[1e4, 1e4]], np.full((40, 2), 1e-3)]).astype(np.float32)
    members = np.r_[np.zeros(41, np.int64), np.ones(40, np.int64)][:, None]
    found = propagated_labels(NoisySums(np.array([[90.0, 0.0], [0.0, 90.0]]), records=180, sigma=1), members, pool)
    assert found.probabilities[:40, 0].min() > 0.8
    assert found.probabilities[41:, 1].min() > 0.8
    assert np.isfinite(found.probabilities).all()


def test_labels_are_propagated_where_queries_say_which_records_are_close() -> None:
    rng = np.random.default_rng(8)
    cells = cells_of(2000, 10.0)
    made = soft_labels_of(CENTRES, POOL, NoisySums(cells, records=2000, sigma=10))
    expected = propagated_labels(NoisySums(cells, records=2000, sigma=10), MEMBERS, POOL)
    np.testing.assert_array_equal(made.probabilities, expected.probabilities)
    columns = Blocks(FeatureMap((2,)), tuple(Nearest.of(RINGS[:, [k]], columns=np.array([k])) for k in (0, 1)))
    cells = rng.normal(0, 5, (columns.rows, 2)) + 50
    made = soft_labels_of(columns, POOL, NoisySums(cells, records=2000, sigma=5))
    expected = soft_labels(NoisySums(cells, records=2000, sigma=5), columns.cells(columns.features(POOL)))
    np.testing.assert_array_equal(made.probabilities, expected.probabilities)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sigma": -1.0}, "noise >= 0"),
        ({"records": 0}, "at least 1 record"),
        ({"members": MEMBERS + 48}, "the pool lies in queries 48 to"),
    ],
)
def test_values_out_of_range_are_refused(change, words) -> None:
    given = {"members": MEMBERS, "records": 10, "sigma": 1.0} | change
    with pytest.raises(InvalidInput, match=words):
        propagated_labels(NoisySums(np.zeros((48, 2)), given["records"], given["sigma"]), given["members"], POOL)


def test_sums_tell_how_many_records_of_graded_features_have_voted_where_that_is_not_known() -> None:
    none = np.zeros((0, 2), np.int64)
    sides = Linear(share=96, columns=np.arange(2), scales=np.ones(2), centre=np.zeros(2, np.int64), matrix=none)
    blocks = Blocks(FeatureMap((2,)), (Constant(share=4), sides))
    right = (POOL[:, 0] > 0).astype(int)
    sums = 5 * (blocks.phi(POOL) / NORM_STEPS).T @ (blocks.targets(2) / TARGET_STEPS)[right]  # of 3,000 records
    known = graded_labels(blocks, POOL, NoisySums(sums, records=3000, sigma=5))
    told = graded_labels(blocks, POOL, NoisySums(sums, records=6000, sigma=5, records_spread=3000))
    wrong = graded_labels(blocks, POOL, NoisySums(sums, records=6000, sigma=5))
    far = [np.abs(each.probabilities - known.probabilities).max() for each in (told, wrong)]
    assert far[0] < 0.02 < 0.1 < far[1]
