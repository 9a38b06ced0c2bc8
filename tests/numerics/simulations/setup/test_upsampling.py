import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import InvalidInput
from simulations.setup.budgets import deal_budgets, duplicates, relative_size
from tests.harness.refusals import refuses


@pytest.mark.parametrize(
    ("budgets", "copies"), [([1, 2, 3], [1, 2, 3]), ([2.0], [1]), ([1.0, 1.5], [2, 3]), ([0.5, 2.0, 0.5], [1, 4, 1])]
)
def test_copies_are_the_smallest_whole_numbers_in_the_ratios_of_the_budgets(budgets, copies):
    np.testing.assert_array_equal(duplicates(np.array(budgets, float)), copies)


@given(budgets=st.lists(st.floats(0.5, 5.5), min_size=1, max_size=5))
def test_copies_come_within_the_rounding_of_the_largest_base(budgets):
    epsilon = np.array(budgets)
    copies = duplicates(epsilon)
    assert copies.min() >= 1
    assert copies.max() <= 12
    ratio = epsilon / epsilon.min()
    base = np.arange(1, int(12 / ratio.max()) + 1)[:, None]
    best = np.abs(np.rint(base * ratio) / (base * ratio) - 1).max(axis=1).min()
    assert min(np.abs(copies / (b * ratio) - 1).max() for b in base.ravel()) == pytest.approx(best, abs=1e-9)


@given(copies=st.lists(st.integers(1, 4), min_size=4, max_size=40), teachers=st.integers(4, 9), seed=st.integers(0, 99))
def test_every_record_is_dealt_to_as_many_different_teachers_as_it_has_copies(copies, teachers, seed):
    if sum(copies) < teachers:
        return
    shards = deal_budgets(np.array(copies), teachers=teachers, rng=np.random.default_rng(seed))
    assert all(len(np.unique(shard)) == len(shard) for shard in shards)
    np.testing.assert_array_equal(np.bincount(np.concatenate(shards), minlength=len(copies)), copies)
    sizes = [len(shard) for shard in shards]
    assert max(sizes) - min(sizes) <= 1


def test_data_grow_by_the_mean_number_of_copies():
    assert relative_size(np.array([1, 2, 3]), np.array([0.34, 0.43, 0.23])) == pytest.approx(1.89)


def test_budgets_too_far_apart_and_copies_that_do_not_fit_are_refused():
    with refuses(InvalidInput, 40, 12):
        duplicates(np.array([0.1, 4.0]))
    with refuses(InvalidInput, 1, 3):
        deal_budgets(np.array([1, 4]), teachers=3, rng=np.random.default_rng(0))
    with refuses(InvalidInput, 2, 3):
        deal_budgets(np.array([1, 1]), teachers=3, rng=np.random.default_rng(0))
