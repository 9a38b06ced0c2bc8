"""Splits: disjoint parts of the sizes asked for, groups whole, strata in proportion."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.errors import InvalidInput
from simulations.datasets.dataset import DatasetRequest, as_published, cut, held_out
from tests.harness.refusals import refuses


@settings(max_examples=40, deadline=None)
@given(
    count=st.integers(7, 80),
    groups=st.one_of(st.none(), st.integers(6, 40)),
    public=st.integers(1, 3),
    test=st.integers(0, 3),
    seed=st.integers(0, 2**32 - 1),
)
def test_parts_are_disjoint_of_the_sizes_asked_for_and_share_no_group(count, groups, public, test, seed):
    rng = np.random.default_rng(seed)
    strata = rng.integers(0, 3, count)
    group = None if groups is None else np.arange(count) % groups
    try:
        parts = cut(strata, groups=group, sizes=(None, public, test), name="toy", rng=rng)
    except InvalidInput:
        # Only when whole groups of public and test records leave nothing: two groups cover what they hold.
        assert groups is not None
        assert public + test + 2 * int(np.bincount(group).max()) > count
        return
    assert (len(parts.public), len(parts.test)) == (public, test)
    assert len(parts.private) > 0
    together = np.concatenate([parts.private, parts.public, parts.test])
    assert len(np.unique(together)) == len(together)
    if group is None:
        assert len(together) == count
    else:
        held = [set(group[part]) for part in (parts.private, parts.public, parts.test)]
        assert sum(map(len, held)) == len(set.union(*held))


def test_strata_keep_their_proportions_and_one_private_record_each():
    strata = np.repeat([0, 1, 2, 3], [700, 200, 97, 3])
    parts = cut(strata, groups=None, sizes=(None, 300, 200), name="toy", rng=np.random.default_rng(0))
    for part, size in ((parts.public, 300), (parts.test, 200)):
        np.testing.assert_allclose(
            np.bincount(strata[part], minlength=4), size * np.array([0.7, 0.2, 0.097, 0.003]), atol=3
        )
    greedy = cut(strata, groups=None, sizes=(None, 990, 6), name="toy", rng=np.random.default_rng(0))
    assert set(strata[greedy.private]) == {0, 1, 2, 3}


def test_a_smaller_private_part_is_a_choice_and_a_larger_one_is_refused():
    strata = np.zeros(100, dtype=np.int64)
    parts = cut(strata, groups=None, sizes=(20, 30, 30), name="toy", rng=np.random.default_rng(0))
    assert len(parts.private) == 20
    with refuses(InvalidInput, 41, 30, 40):
        cut(strata, groups=None, sizes=(41, 30, 30), name="toy", rng=np.random.default_rng(0))
    for public in (70, 300):
        with refuses(InvalidInput, "0 for the private part"):
            cut(strata, groups=None, sizes=(None, public, 30), name="toy", rng=np.random.default_rng(0))


def test_an_official_test_set_is_public_from_its_start_and_test_from_its_end():
    public, test = held_out(10, as_published, DatasetRequest(seed=0), (9, 3), "toy")
    assert (public.tolist(), test.tolist()) == (list(range(7)), [7, 8, 9])
    public, test = held_out(10, as_published, DatasetRequest(seed=0, public_size=2, test_size=1), (9, 3), "toy")
    assert (public.tolist(), test.tolist()) == ([0, 1], [9])
    with refuses(InvalidInput, 10):
        held_out(10, as_published, DatasetRequest(seed=0, public_size=8), (9, 3), "toy")
