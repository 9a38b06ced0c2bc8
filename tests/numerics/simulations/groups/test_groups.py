"""Figures of groups of test records, against slow computations that share no code with them."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulations.datasets.groups import Grouping
from simulations.groups import FEWEST, REPLICATES, Replicates, between, brier_terms, by_group, calibration, cost_of


def predictions(records: int, classes: int, seed: int) -> np.ndarray:
    drawn = np.random.default_rng(seed).random((records, classes)) ** 3
    return (drawn / drawn.sum(axis=1, keepdims=True)).astype(np.float32)


def slow_error(probabilities: np.ndarray, labels: np.ndarray, bins: int) -> float:
    """Guo et al. 2017, eq. 3, record by record in exact arithmetic: bins of equal mass take the records in order."""
    records = sorted(
        (Fraction(float(max(row))), int(list(row).index(max(row)) == label))
        for row, label in zip(probabilities, labels, strict=True)
    )
    total, start = Fraction(0), 0
    for number in range(bins):
        size = len(records) // bins + (number < len(records) % bins)
        of = records[start : start + size]
        gap = abs(sum(right for _, right in of) - sum(sure for sure, _ in of)) / size
        total += Fraction(size, len(records)) * gap
        start += size
    return float(total)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 90), st.integers(2, 4), st.integers(0, 2**32 - 1))
def test_the_calibration_error_is_that_of_its_definition_in_bins_of_equal_mass(records, classes, seed):
    probabilities = predictions(records, classes, seed)
    labels = np.random.default_rng(seed).integers(classes, size=records)
    found = calibration(probabilities, labels)
    bins = max(1, min(15, records // 20))
    assert len(found.records) == bins
    assert found.records.sum() == records
    assert max(found.records) - min(found.records) <= 1
    assert found.error == pytest.approx(slow_error(probabilities, labels, bins), abs=1e-7)
    slow = sum(
        (float(p) - (c == y)) ** 2 for row, y in zip(probabilities, labels, strict=True) for c, p in enumerate(row)
    )
    assert found.brier == pytest.approx(slow / records, abs=1e-6)
    assert brier_terms(probabilities, labels).mean() == pytest.approx(found.brier)


def test_who_is_sure_and_right_has_no_error_and_who_is_sure_and_wrong_has_all():
    labels = np.arange(40) % 2
    sure = np.eye(2, dtype=np.float32)[labels]
    assert (calibration(sure, labels).error, calibration(sure, labels).brier) == (0, 0)
    assert (calibration(sure, 1 - labels).error, calibration(sure, 1 - labels).brier) == (1, 2)


def slow_distribution(pooled: np.ndarray, students: np.ndarray) -> np.ndarray:
    """The cost in every equally likely draw of records and of seeds, each with replacement."""
    seeds, records = students.shape
    return np.array(
        [
            np.mean([float(pooled[i]) for i in of]) - np.mean([[float(students[s][i]) for i in of] for s in worlds])
            for of in itertools.product(range(records), repeat=records)
            for worlds in itertools.product(range(seeds), repeat=seeds)
        ]
    )


@pytest.mark.parametrize(
    ("pooled", "students"), [([1, 1, 1, 0], [[1, 0, 0, 0]]), ([1, 1, 0, 1], [[1, 0, 0, 1], [0, 0, 1, 1]])]
)
def test_replicates_have_the_distribution_of_all_draws(pooled, students):
    right, private = np.array(pooled, bool), np.array(students, bool)
    every = np.sort(slow_distribution(right, private))
    drawn = np.sort(Replicates(len(students)).of(right, private, np.arange(len(right))))
    points = np.unique(np.round(every, 9)) + 1e-6
    gaps = np.abs(np.searchsorted(every, points) / len(every) - np.searchsorted(drawn, points) / REPLICATES)
    assert (
        gaps.max() < 0.03
    )  # Dvoretzky, Kiefer and Wolfowitz: 2 exp(-2 * 4000 * 0.03 ** 2) = 0.0015; the seed is fixed
    assert cost_of(right, private) == pytest.approx(every.mean())


def test_records_that_are_all_alike_have_an_interval_that_ends_by_the_rule_of_three():
    low, high = between(Replicates(1).of(np.ones(30, bool), np.zeros((1, 30), bool), np.arange(30)), level=0.95)
    assert (low, high) == (pytest.approx(1 - 3 / 30, abs=0.04), 1.0)


def test_the_group_that_pays_most_is_found_and_few_records_pay_nothing():
    rng = np.random.default_rng(3)
    labels = rng.integers(2, size=300)
    member = np.repeat([0, 1, 2], [200, 100 - FEWEST + 1, FEWEST - 1])
    truth = np.eye(2, dtype=np.float32)[labels]
    wrong_for = lambda of: np.where(of[:, None], 1 - truth, truth)  # noqa: E731
    # Both seeds' students are wrong for half of the second group, and for all of the third.
    lost = (member == 1) & (np.arange(300) % 2 == 0) | (member == 2)
    found = by_group([Grouping("ward", ("a", "b", "c"), member)], [wrong_for(lost), wrong_for(lost)], truth, labels)
    assert [(each.group, each.records) for each in found.groups] == [("a", 200), ("b", 81), ("c", 19)]
    assert [each.accuracy for each in found.groups] == [1, 1 - lost[member == 1].mean(), 0]
    assert [each.cost.value for each in found.groups] == pytest.approx([0, lost[member == 1].mean(), 1])
    most = found.pays_most
    assert (most.figures.group, most.compared) == ("b", 2)
    assert most.excess.value == pytest.approx(lost[member == 1].mean() - lost[member != 1].mean())
    assert 0 < most.excess.low < most.excess.value < most.excess.high
    # Four copies of each patient's record tell no more than one.
    again, member = [np.repeat(each, 4, axis=0) for each in (wrong_for(lost), truth)], np.repeat(member, 4)
    copies = by_group(
        [Grouping("ward", ("a", "b", "c"), member)], [again[0]] * 2, again[1], np.repeat(labels, 4),
        patients=np.repeat(np.arange(300), 4),
    )  # fmt: skip
    assert (found.independent, copies.independent) == pytest.approx((300, 300))
    for one, four in zip(found.groups, copies.groups, strict=True):
        ends = four.low, four.high, four.cost.low, four.cost.high
        assert ends == pytest.approx((one.low, one.high, one.cost.low, one.cost.high))
    # All groups together are the whole test part.
    means = sum(each.records * each.accuracy for each in found.groups) / 300
    assert means == pytest.approx(1 - lost.mean())
