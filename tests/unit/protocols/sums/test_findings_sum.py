"""Sums of several findings: what a record says, how far a unit moves them, by brute force; and what is made of them."""

from itertools import combinations_with_replacement, product
from math import isqrt

import numpy as np
import pytest

from coordinator.labelling.soft_labels import NoisySums, soft_findings_of
from protocols.features.feature_map import FeatureMap
from protocols.sums.blocks import NORM_STEPS, TARGET_STEPS, Blocks, Constant, Linear, Nearest
from protocols.sums.contributions import contribution_sum, said

GRID = np.array([*product([-1.0, 0.0, 0.7], repeat=2)], np.float32)
LABELS = [*product((-1, 0, 1), repeat=2)]
EVERY = dict(scales=np.ones(2), columns=np.arange(2))
GRADED = Blocks(
    FeatureMap((2,)),
    (
        Constant(share=1),
        Linear(share=15, centre=np.zeros(2, np.int64), matrix=np.array([[7, -3], [2, 9], [5, 5]], np.int64), **EVERY),
    ),
)
CELLS = Blocks(FeatureMap((2,)), (Nearest.of(GRID[::2], columns=np.arange(2), share=1),))


def spoken(blocks, records, *, weight, columns, units=None):
    """What these records, each a pair of an input and its labels, say together."""
    inputs, labels = np.array([GRID[at] for at, _ in records]), np.array([label for _, label in records])
    said_of = said(blocks, inputs, labels, classes=columns)
    return contribution_sum(blocks, said_of, units, weight_units=weight, classes=columns, fewest=0)


def slow(at, labels, weight):
    """One record's graded vector in Python's integers: +-phi / sqrt(L) for what is known, 0 for the rest."""
    code = isqrt(TARGET_STEPS**2 // len(labels))
    found = []
    for row in GRADED.phi(GRID[at : at + 1])[0].tolist():
        for label in labels:
            size = abs(row) * code * weight // (NORM_STEPS * TARGET_STEPS)
            found.append(0 if label < 0 else size * (1 if label else -1) * (1 if row >= 0 else -1))
    return found


def test_a_record_says_its_known_findings_with_signs_and_nothing_of_the_others() -> None:
    for at, labels in product(range(len(GRID)), LABELS):
        found = spoken(GRADED, [(at, labels)], weight=977, columns=2)
        assert found.ravel().tolist() == slow(at, labels, 977)
    cell = np.zeros((len(GRID[::2]), 4), np.int64)
    cell[1, [1, 2]] = isqrt(1000**2 // 2)  # the first is present, the second absent: (absent, present) by pairs
    assert np.array_equal(spoken(CELLS, [(2, (1, 0))], weight=1000, columns=4), cell)
    cell[1, 2] = 0
    assert np.array_equal(spoken(CELLS, [(2, (1, -1))], weight=1000, columns=4), cell)


@pytest.mark.parametrize(("blocks", "columns", "squared"), [(GRADED, 2, 4), (CELLS, 4, 2)])
def test_no_neighbour_moves_a_sum_of_findings_by_more_than_delta(blocks, columns, squared, subtests) -> None:
    """Every unit of one or two records, of any labels, against every other: at most Delta weights; reached nearly."""
    weight, records = 400, [*product(range(0, len(GRID), 2), LABELS)]
    for size in (1, 2):
        units = [*combinations_with_replacement(records, size)][:: 1 if size == 1 else 5]
        vectors = np.stack(
            [
                spoken(blocks, list(unit), weight=weight, columns=columns, units=np.zeros(size, np.int64)).ravel()
                for unit in units
            ]
        )
        with subtests.test(records=size):
            norms = (vectors**2).sum(axis=1)
            assert norms.max() <= weight**2
            moved = norms[:, None] + norms - 2 * vectors @ vectors.T
            assert 0.9 * squared * weight**2 < moved.max() <= squared * weight**2


def test_every_company_leaves_what_a_record_says() -> None:
    rng = np.random.default_rng(0)
    records = [(int(rng.integers(len(GRID))), LABELS[rng.integers(len(LABELS))]) for _ in range(40)]
    for blocks, columns in ((GRADED, 2), (CELLS, 4)):
        together = spoken(blocks, records, weight=4000, columns=columns)
        assert np.array_equal(together, sum(spoken(blocks, [each], weight=4000, columns=columns) for each in records))


def test_labels_of_findings_follow_the_truth_and_a_label_that_is_half_missing_keeps_its_order() -> None:
    rng = np.random.default_rng(1)
    inputs, pool = rng.normal(size=(6000, 2)).astype(np.float32), rng.normal(size=(300, 2)).astype(np.float32)
    truth = np.stack([inputs[:, 0] > 0, inputs[:, 1] > 0.8], axis=1).astype(np.int64)
    wanted = np.stack([pool[:, 0] > 0, pool[:, 1] > 0.8], axis=1)
    truth[rng.random(len(truth)) < 0.5, 1] = -1
    cells = Blocks(FeatureMap((2,)), (Nearest.of(pool[::6], columns=np.arange(2), share=1),))
    for blocks, columns, entry in ((GRADED, 2, 1.0), (cells, 4, 0.5**0.5)):
        told = said(blocks, inputs, truth, classes=columns)
        sums = contribution_sum(blocks, told, None, weight_units=2**20, classes=columns) / 2**20 / entry
        soft = soft_findings_of(blocks, pool, NoisySums(sums + rng.normal(0, 5, sums.shape), records=6000, sigma=5))
        assert soft.probabilities.shape == wanted.shape
        assert len(soft.findings) == 2
        for at in range(2):
            above = soft.probabilities[wanted[:, at], at][:, None] > soft.probabilities[~wanted[:, at], at]
            assert above.mean() > 0.9, (columns, at)
