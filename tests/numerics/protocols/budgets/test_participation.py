import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from protocols.budgets.participation import check_pattern, check_rate, coins, participation, rates_for
from protocols.errors import InvalidInput
from protocols.votes import LATTICE
from tests.harness.refusals import refuses
from tests.harness.seeded import seeded_source

RATES = st.lists(st.integers(1, LATTICE).map(lambda step: step / LATTICE), min_size=1, max_size=6).map(np.array)


@settings(deadline=None)
@given(rates=RATES, start=st.integers(0, 10**4), affordable=st.integers(0, 60), limit=st.integers(1, 200))
def test_reach_is_the_longest_stretch_in_which_a_party_takes_part_no_more_often_than_it_can(
    rates, start, affordable, limit
):
    taking = participation("periodic", rates)
    reach = taking.reach(start, np.full(len(rates), affordable), limit=limit)
    for seat, size in enumerate(reach.tolist()):
        assert 0 <= size <= limit
        assert taking.among(start, start + size)[seat] <= affordable
        assert size == limit or taking.among(start, start + size + 1)[seat] == affordable + 1


@pytest.mark.parametrize("pattern", ["all", "secret"])
def test_everyone_takes_part_in_public_unless_the_pattern_is_periodic(pattern):
    taking = participation(pattern, np.array([1.0, 1.0 if pattern == "all" else 0.25]))
    assert taking.everyone
    assert taking.votes(np.arange(50)).all()
    np.testing.assert_array_equal(taking.reach(7, np.array([3, 900]), limit=10), [3, 10])


def test_coins_fall_at_their_rate_and_independently():
    """Exact binomial and chi-squared tests on 200,000 coins, false-alarm rate 1e-6 each."""
    rate = 0.3125
    drawn = coins(seeded_source(5), rate, teachers=1, queries=200_000)[0]
    assert stats.binomtest(int(drawn.sum()), 200_000, rate).pvalue > 1e-6
    pairs = np.bincount(2 * drawn[0::2] + drawn[1::2], minlength=4)
    law = np.outer([1 - rate, rate], [1 - rate, rate]).ravel() * 100_000
    assert stats.chisquare(pairs, law).pvalue > 1e-6
    assert coins(seeded_source(6), 1.0, teachers=2, queries=500).all()


def test_rates_follow_what_budgets_afford_and_are_refused_off_the_lattice():
    np.testing.assert_allclose(rates_for(np.array([100.0, 400.0, 25.0])), [0.25, 1.0, 0.0625])
    with refuses(InvalidInput, 1, 1048576):
        check_rate("periodic", np.array([0.3]))
    with refuses(InvalidInput, "span"):
        check_rate("secret", np.array([0.0, 1.0]))
    with refuses(InvalidInput, 1, "all"):
        check_rate("all", np.array([0.5]))
    with refuses(InvalidInput, "all, periodic, secret"):
        check_pattern("often")
