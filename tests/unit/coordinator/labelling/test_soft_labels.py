"""Soft labels of a pool from noisy cells."""

import numpy as np

from coordinator.labelling.soft_labels import NoisySums, soft_labels

RNG = np.random.default_rng(5)
# 4,000 pool records in two partitions of three and two queries.
MEMBERS = np.stack([RNG.integers(0, 3, 4000), 3 + RNG.integers(0, 2, 4000)], axis=1)
EFFECTS = np.array([[2.0, 0.0], [0.0, 0.0], [0.0, 2.0], [1.0, 0.0], [0.0, 1.0]])


def truth(members):
    logits = EFFECTS[members].sum(axis=1)
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def cells_of(records, sigma):
    rng = np.random.default_rng(5)
    members = np.stack([rng.integers(0, 3, records), 3 + rng.integers(0, 2, records)], axis=1)
    labels = (rng.random(records) < truth(members)[:, 1]).astype(int)
    cells = np.zeros((5, 2))
    for column in members.T:
        np.add.at(cells, (column, labels), 1)
    return cells + rng.normal(0, sigma, cells.shape)


def test_many_records_give_the_probabilities_that_they_were_drawn_from() -> None:
    found = soft_labels(NoisySums(cells_of(200_000, 0.0), records=200_000, sigma=0), MEMBERS)
    np.testing.assert_allclose(found.probabilities, truth(MEMBERS), atol=0.03)
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 1)


def test_cells_that_are_all_noise_give_nearly_even_labels_and_no_reliability() -> None:
    rng = np.random.default_rng(5)
    found = soft_labels(NoisySums(rng.normal(0, 1e4, (5, 2)), records=100, sigma=1e4), MEMBERS)
    assert np.abs(found.probabilities - 0.5).max() < 0.1
    assert found.reliability.max() < 1e-3


def test_a_cell_counts_the_less_the_more_noise_it_has() -> None:
    cells = cells_of(2000, 0.0)
    spreads = [
        np.ptp(soft_labels(NoisySums(cells, records=2000, sigma=sigma), MEMBERS).probabilities[:, 0])
        for sigma in (1, 100, 1000, 10_000)
    ]
    assert spreads == sorted(spreads, reverse=True)


def test_a_query_in_which_no_pool_record_lies_changes_nothing() -> None:
    cells = cells_of(2000, 3.0)
    more = np.concatenate([cells, [[1e5, -1e5]]])
    plain, found = (soft_labels(NoisySums(each, records=2000, sigma=3), MEMBERS) for each in (cells, more))
    np.testing.assert_array_equal(found.probabilities, plain.probabilities)
    assert found.reliability[-1] == 0
