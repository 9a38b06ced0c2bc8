import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from party.data.mapping import first_places, folded, folded_number, folded_patient, places
from party.data.records import deal_records, key_of
from protocols.errors import InvalidInput
from tests.harness.refusals import refuses

KEY = key_of(7, "test")


@given(st.lists(st.sampled_from("abcdefgh"), min_size=8), st.integers(1, 3), st.integers(0, 2**62))
def test_records_of_a_patient_go_to_one_teacher_and_shards_are_even_in_patients(names, teachers, seed):
    units = places(names, len(names))
    count = len(set(names))
    if count < teachers:
        with refuses(InvalidInput, "at least one per teacher"):
            deal_records(units, units, teachers=teachers, key=key_of(seed))
        return
    teacher = deal_records(units, units, teachers=teachers, key=key_of(seed))
    owners = {name: {int(t) for t, n in zip(teacher, names, strict=True) if n == name} for name in set(names)}
    assert all(len(each) == 1 for each in owners.values())
    sizes = [sum(each == {t} for each in owners.values()) for t in range(teachers)]
    assert max(sizes) - min(sizes) <= 1


def dealt(names):
    at = places(names, len(names))
    return deal_records(at, at, teachers=5, key=KEY)


def test_another_patient_in_the_place_of_one_changes_one_shard_alone():
    names = [f"p{number // 2}" for number in range(40)]
    before = dealt(names)
    for place in range(20):
        other = ["a stranger" if name == f"p{place}" else name for name in names]
        np.testing.assert_array_equal(dealt(other), before)


def test_the_deal_follows_from_the_seed_alone():
    units = places(None, 100)
    again = deal_records(units, units, teachers=4, key=key_of(7, "test"))
    np.testing.assert_array_equal(deal_records(units, units, teachers=4, key=KEY), again)
    assert (deal_records(units, units, teachers=4, key=key_of(8, "test")) != again).any()
    assert key_of(1, "a", "b") != key_of(1, "ab")


def test_names_that_mean_one_are_folded_to_one():
    assert len({folded(name) for name in ("Ward 2", "ward  2 ", "WARD\u00a02", "wa\u200brd 2", "ｗard 2")}) == 1
    assert folded("ward 2") != folded("ward 3")
    assert len({folded_patient(name) for name in ("Zoe\u0308 1", "ZO\u00cb1", "zo\u00eb 1")}) == 1
    assert len({folded_number(name) for name in ("007", "7", "7.0", "+7", "7,00")}) == 1
    assert len({folded_number(name) for name in ("0", "00", "70", "7.5", "7", "p07", "p7")}) == 6


def test_names_that_are_joined_change_no_other_patients_teacher():
    names = [f"p{number // 2}" for number in range(40)]
    before = dealt(names)
    at = places(names, 40)
    units = first_places(at, ["p3" if name == "p7" else name for name in names])
    after = deal_records(at, units, teachers=5, key=KEY)
    others = np.array([name != "p7" for name in names])
    np.testing.assert_array_equal(after[others], before[others])
    assert set(after[~others]) == set(before[at == 3])
