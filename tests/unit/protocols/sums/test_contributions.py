"""What each unit contributes to a study of record votes, held against a slow, exact reading."""

from fractions import Fraction
from math import isqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import InvalidInput
from protocols.sums.contributions import LARGEST_WEIGHT, check_contributions, contribution_sum

UNIT = 2**20


def of_units(cells, units, weight, cell_count):
    """Each unit's vector, in exact arithmetic: the sum of its records' votes, scaled down to the weight."""
    for unit in sorted(set(units.tolist())):
        counts = np.bincount(cells[units == unit].ravel(), minlength=cell_count).tolist()
        longest = max(sum(c * c for c in counts), cells.shape[1])
        yield [isqrt(int(Fraction(c * c * weight**2, longest))) for c in counts]


def drawn(seed, records, votes, cell_count, units):
    rng = np.random.default_rng(seed)
    cells = np.stack([rng.permutation(cell_count)[:votes] for _ in range(records)])
    return cells, rng.permutation(np.arange(records) % units)


@given(
    seed=st.integers(0, 2**32), records=st.integers(4, 30), votes=st.integers(1, 4), units=st.integers(2, 4),
    weight=st.sampled_from([2, 3, 1855077841 % 2**20, UNIT, LARGEST_WEIGHT]),
)  # fmt: skip
def test_the_sum_is_that_of_units_whose_norm_is_at_most_the_weight(seed, records, votes, units, weight) -> None:
    cells, named = drawn(seed, records, votes, 6, units)
    each = np.array(list(of_units(cells, named, weight, 6)), dtype=np.int64)
    check_contributions(each, weight_units=weight)
    np.testing.assert_array_equal(contribution_sum(cells, named, weight_units=weight, cell_count=6), each.sum(axis=0))


@pytest.mark.parametrize(("weight", "votes"), [(1855077841, 2), (UNIT, 3), (5, 7)])
def test_a_record_that_spreads_its_weight_keeps_the_norm_in_integers(weight, votes) -> None:
    """floor(weight/sqrt(votes)) in floats breaks the bound at the first of these."""
    cells = np.stack([np.arange(votes), np.arange(votes)])
    total = contribution_sum(cells, None, weight_units=weight, cell_count=votes)
    entry = int(total[0]) // 2
    assert votes * entry**2 <= weight**2 < votes * (entry + 1) ** 2


def test_records_that_are_units_of_their_own_may_be_named_or_not() -> None:
    cells, _ = drawn(3, 50, 2, 10, 50)
    plain = contribution_sum(cells, None, weight_units=UNIT, cell_count=10)
    np.testing.assert_array_equal(plain, contribution_sum(cells, np.arange(50) + 7, weight_units=UNIT, cell_count=10))


def test_a_patient_with_many_records_in_one_cell_weighs_as_much_as_one_with_one() -> None:
    cells, units = np.array([[0]] * 9 + [[1]]), np.array([5] * 9 + [6])
    assert contribution_sum(cells, units, weight_units=UNIT, cell_count=3).tolist() == [UNIT, UNIT, 0]


def test_all_data_of_a_party_as_one_unit_have_the_norm_of_one_vote() -> None:
    cells = np.array([[0], [0], [0], [1], [1], [1], [1]])
    total = contribution_sum(cells, np.zeros(7, np.int64), weight_units=UNIT, cell_count=3)
    assert total.tolist() == [isqrt(9 * UNIT**2 // 25), isqrt(16 * UNIT**2 // 25), 0]


@pytest.mark.parametrize(
    ("cells", "units", "weight", "words"),
    [
        ([[0], [3]], None, UNIT, "cells 0 to 3; allowed: 0 to 2"),
        ([[0], [-1]], None, UNIT, "cells -1 to 0"),
        ([[0, 0], [0, 1]], None, UNIT, "one cell twice"),
        ([[0]], None, UNIT, "1 record; allowed: at least 2"),
        ([[0], [1]], None, 0, "weight is 0"),
        ([[0], [1]], None, LARGEST_WEIGHT + 1, "weight is 8589934593"),
        ([[0, 1], [0, 1]], None, 1, "2 cells with a weight of 1"),
    ],
)
def test_what_cannot_be_a_contribution_is_refused(cells, units, weight, words) -> None:
    named = None if units is None else np.array(units)
    with pytest.raises(InvalidInput, match=words):
        contribution_sum(np.array(cells), named, weight_units=weight, cell_count=3)


@pytest.mark.parametrize(
    ("entries", "words"), [([[3, 4]], None), ([[3, 5]], "squared norm 34"), ([[-1, 0]], "-1"), ([[6, 0]], "6")]
)
def test_contributions_are_checked_one_by_one(entries, words) -> None:
    if words is None:
        check_contributions(np.array(entries), weight_units=5)
        return
    with pytest.raises(InvalidInput, match=words):
        check_contributions(np.array(entries), weight_units=5)
