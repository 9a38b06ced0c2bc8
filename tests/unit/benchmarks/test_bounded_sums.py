"""The prototype of a proof of sums: honest sums are taken, malformed ones are not, and what is opened says nothing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from benchmarks.bounded_sums import MALFORMED, Coin, NormBound, accepted, count_accepted, opened, proved, shares
from protocols.crypto.field import plus

FALSE_ALARM = 1e-6


@given(st.integers(1, 90), st.integers(1, 2**24), st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_a_sum_within_the_norm_is_taken_and_its_shares_are_its_own(cells, most, seed) -> None:
    bound, rng = NormBound(cells, most), np.random.default_rng(seed)
    direction = rng.normal(size=cells)
    sums = np.trunc(direction / np.linalg.norm(direction) * most).astype(np.int64)
    assert bound.squares < 2**30
    numbers = bound.shared(sums)
    assert set(numbers) <= {0, 1}
    assert accepted(bound, numbers, Coin.of(rng.bytes(32), bound), seed=rng.bytes(16))
    one, other = shares(proved(bound, numbers, seed=rng.bytes(16)), seed=rng.bytes(16))
    total = plus(bound.sums(one.numbers, leads=True), bound.sums(other.numbers, leads=False)).astype(np.int64)
    np.testing.assert_array_equal(np.where(total > 2**30, total - (2**31 - 1), total), sums)


@pytest.mark.parametrize("kind", MALFORMED)
def test_no_malformed_sum_is_taken(kind) -> None:
    assert count_accepted(60, kind=kind, seed=1) == 0


@pytest.mark.parametrize("cells", [1, 7, 400])
def test_bits_of_a_sum_beyond_what_is_said_to_be_proved_leave_no_room_that_fits(cells) -> None:
    bound, rng = NormBound(cells, 5_000), np.random.default_rng(cells)
    digits = rng.integers(-bound.digit, bound.digit, (200, cells))
    moved = (digits + bound.digit << bound.low) + rng.integers(0, 1 << bound.low, (200, cells))
    norms = np.linalg.norm(moved - bound.offset, axis=1)
    rest = bound.squares - (bound.digits(moved) ** 2).sum(axis=1)
    assert (norms > bound.proved).any()
    assert (rest[norms > bound.proved] < 0).all()
    # As whole numbers, so that no sum of squares and room wraps around the field to the bound.
    assert ((digits**2).sum(axis=1) + 2**30 - 1 < bound.squares + 2**31 - 1).all()


def test_what_is_opened_of_two_sums_is_uniform_whatever_they_are() -> None:
    bound, coin = NormBound(5, 300), Coin.of(bytes(32), NormBound(5, 300))
    for sums in (np.zeros(5, np.int64), np.full(5, 130)):
        values = []
        for trial in range(300):
            seed = trial.to_bytes(16, "little")
            said = [
                opened(bound, each, coin, leads=leads)[0]
                for each, leads in zip(
                    shares(proved(bound, bound.shared(sums), seed=seed), seed=seed), (True, False), strict=True
                )
            ]
            values.append(plus(*said).ravel())
        high = np.concatenate(values) >> 30
        assert binomtest(int(high.sum()), high.size, 0.5).pvalue > FALSE_ALARM
    # Three random values and three points: what they add is every triple, each once.
    hidden = coin.values[:, -3:].astype(object)
    a, b, c = hidden
    minor = a[0] * (b[1] * c[2] - b[2] * c[1]) - a[1] * (b[0] * c[2] - b[2] * c[0]) + a[2] * (b[0] * c[1] - b[1] * c[0])
    assert minor % (2**31 - 1) != 0
