import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from party.data.shards import deal, key_of, units_of
from protocols.errors import InvalidInput

KEY = key_of(7, "test")


@given(st.lists(st.sampled_from("abcdefgh"), min_size=8), st.integers(1, 3), st.integers(0, 2**62))
def test_records_of_a_patient_go_to_one_teacher_and_shards_are_even_in_patients(names, teachers, seed):
    units = units_of(names, len(names))
    count = len(set(names))
    if count < teachers:
        with pytest.raises(InvalidInput, match="allowed: at least one per teacher"):
            deal(units, teachers=teachers, key=key_of(seed))
        return
    teacher = deal(units, teachers=teachers, key=key_of(seed))
    owners = {name: {int(t) for t, n in zip(teacher, names, strict=True) if n == name} for name in set(names)}
    assert all(len(each) == 1 for each in owners.values())
    sizes = [sum(each == {t} for each in owners.values()) for t in range(teachers)]
    assert max(sizes) - min(sizes) <= 1


def test_another_patient_in_the_place_of_one_changes_one_shard_alone():
    names = [f"p{number // 2}" for number in range(40)]
    before = deal(units_of(names, 40), teachers=5, key=KEY)
    for place in range(20):
        other = ["a stranger" if name == f"p{place}" else name for name in names]
        np.testing.assert_array_equal(deal(units_of(other, 40), teachers=5, key=KEY), before)


def test_the_deal_follows_from_the_seed_alone():
    units = units_of(None, 100)
    again = deal(units, teachers=4, key=key_of(7, "test"))
    np.testing.assert_array_equal(deal(units, teachers=4, key=KEY), again)
    assert (deal(units, teachers=4, key=key_of(8, "test")) != again).any()
    assert key_of(1, "a", "b") != key_of(1, "ab")
