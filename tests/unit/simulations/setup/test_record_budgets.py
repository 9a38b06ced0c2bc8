"""Records with budgets of their own: privacy groups inside a party, and upsampling of pooled data."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.errors import InvalidInput
from simulations.setup.budgets import group_budgets, split_by_group, upsampling
from tests.harness.refusals import refuses


def test_every_party_has_a_seat_for_every_budget():
    budgets = group_budgets("1:0.25,4:0.75", parties=2, delta=1e-6, names=("north", "south"))
    assert budgets.names == ("north/1", "north/4", "south/1", "south/4")
    assert budgets.epsilon.tolist() == [1.0, 4.0, 1.0, 4.0]
    assert (budgets.delta == 1e-6).all()


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(8, 60), min_size=1, max_size=5), seed=st.integers(0, 2**20), grouped=st.booleans())
def test_groups_split_a_partys_records_by_the_shares_and_keep_patients_together(sizes, seed, grouped):
    starts = np.cumsum([0, *sizes])
    holdings = [np.arange(a, b) for a, b in pairwise(starts)]
    patients = np.arange(starts[-1]) // 2 if grouped else None
    seats = split_by_group(holdings, patients, "1:0.5,3:0.5", teachers=1, seed=seed)
    assert len(seats) == 2 * len(holdings)
    for party, records in enumerate(holdings):
        first, second = seats[2 * party : 2 * party + 2]
        assert sorted([*first, *second]) == records.tolist()
        keys = records if patients is None else patients[records]
        assert abs(len(np.unique(keys)) - 2 * len(np.unique(keys[np.isin(records, first)]))) <= 1
        if patients is not None:
            assert not set(patients[first]) & set(patients[second])


def test_a_party_too_small_for_its_groups_is_refused():
    with refuses(InvalidInput, 1, 3):
        split_by_group([np.arange(20), np.arange(20, 23)], None, "1:0.5,3:0.5", teachers=2, seed=0)


def test_upsampled_records_are_learned_by_as_many_teachers_as_their_budget_buys():
    ensemble = upsampling("1:0.5,2:0.25,4:0.25", teachers=40)
    assert ensemble.copies.tolist() == [1, 2, 4]
    assert ensemble.scale == pytest.approx(2.0)
    assert ensemble.pooled_teachers == 80
    shards = ensemble.shards(800, seed=3)
    assert len(shards) == 80
    times = np.bincount(np.concatenate(shards), minlength=800)
    np.testing.assert_array_equal(times, ensemble.copies[ensemble.groups(800, seed=3)])
    # No teacher learns a record twice.
    assert all(len(np.unique(shard)) == len(shard) for shard in shards)
    assert ensemble.budgets(1e-5).names == ("records-at-1", "records-at-2", "records-at-4")


def test_budgets_that_no_record_would_have_are_refused():
    with refuses(InvalidInput, "3 records"):
        upsampling("1:0.98,2:0.01,4:0.01", teachers=4).groups(3, seed=0)
