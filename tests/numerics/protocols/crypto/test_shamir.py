"""Shares over GF(256): against a slow independent implementation, what too few reveal, and wrong shares."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.crypto.shamir import reconstruct, split, wrong_shares


def slow_product(left, right):
    """Carry-less product modulo x^8 + x^4 + x^3 + x + 1, bit by bit."""
    product = 0
    for bit in range(8):
        product ^= (left << bit) if right >> bit & 1 else 0
    for bit in range(14, 7, -1):
        product ^= (0x11B << (bit - 8)) if product >> bit & 1 else 0
    return product


def slow_value(coefficients, point):
    """A polynomial's value, lowest coefficient first."""
    value = 0
    for coefficient in reversed(coefficients):
        value = slow_product(value, point) ^ coefficient
    return value


def slow_secret(points, values):
    """Lagrange at 0, inverses by search."""
    secret = 0
    for point, value in zip(points, values, strict=True):
        weight = value
        for other in points:
            if other != point:
                inverse = next(x for x in range(1, 256) if slow_product(x, other ^ point) == 1)
                weight = slow_product(weight, slow_product(other, inverse))
        secret ^= weight
    return secret


def dealt(rng, threshold, shares, width):
    secret = rng.integers(0, 256, width, dtype=np.uint8)
    coefficients = rng.integers(0, 256, (threshold - 1, width), dtype=np.uint8)
    return secret, coefficients, split(secret, coefficients, shares=shares)


@given(threshold=st.integers(1, 7), spare=st.integers(0, 5), width=st.integers(1, 3), seed=st.integers(0, 2**32))
@settings(max_examples=40)
def test_shares_are_values_of_the_polynomial_and_any_threshold_of_them_give_the_secret(
    threshold, spare, width, seed
) -> None:
    rng = np.random.default_rng(seed)
    secret, coefficients, shares = dealt(rng, threshold, threshold + spare, width)
    for row, byte in itertools.product(range(len(shares)), range(width)):
        assert shares[row, byte] == slow_value([int(secret[byte]), *coefficients[:, byte].tolist()], row + 1)
    rows = rng.permutation(threshold + spare)[:threshold]
    np.testing.assert_array_equal(reconstruct(rows[None], shares[rows][None])[0], secret)
    for byte in range(width):
        assert slow_secret((rows + 1).tolist(), shares[rows, byte].tolist()) == secret[byte]


def test_many_secrets_open_at_once_with_all_255_shares() -> None:
    rng = np.random.default_rng(0)
    deals = [dealt(rng, 200, 255, 32) for _ in range(4)]
    rows = np.array([rng.permutation(255)[:200] for _ in deals])
    chosen = np.stack([shares[row] for (_, _, shares), row in zip(deals, rows, strict=True)])
    np.testing.assert_array_equal(reconstruct(rows, chosen), np.stack([secret for secret, _, _ in deals]))


@pytest.mark.parametrize("holders", [(0,), (4,), (0, 1), (2, 6)])
def test_fewer_shares_than_the_threshold_have_the_same_law_for_every_secret(holders) -> None:
    """Exactly: over all coefficients, threshold - 1 shares take every value equally often, whatever the secret."""
    threshold = len(holders) + 1
    every = np.array(list(itertools.product(range(256), repeat=threshold - 1)), dtype=np.uint8).T
    for secret in (0, 1, 77, 255):
        shares = split(np.full(every.shape[1], secret, dtype=np.uint8), every, shares=7)[list(holders)]
        seen = np.unique(shares, axis=1)
        assert seen.shape == (len(holders), 256 ** len(holders))


def test_one_share_too_few_does_not_give_the_secret() -> None:
    rng = np.random.default_rng(3)
    secret, _, shares = dealt(rng, 5, 9, 32)
    rows = np.arange(4)
    assert not (reconstruct(rows[None], shares[rows][None])[0] == secret).all()


@given(threshold=st.integers(1, 8), errors=st.integers(0, 4), odd=st.booleans(), seed=st.integers(0, 2**32))
@settings(max_examples=60)
def test_wrong_shares_are_found_up_to_half_of_the_spare_ones(threshold, errors, odd, seed) -> None:
    rng = np.random.default_rng(seed)
    count = threshold + 2 * errors + odd
    _, _, shares = dealt(rng, threshold, 20, 32)
    rows = np.sort(rng.permutation(20)[:count])
    received = shares[rows]
    wrong = np.sort(rng.permutation(count)[: rng.integers(0, errors + 1)])
    received[wrong] ^= rng.integers(1, 256, (len(wrong), 32), dtype=np.uint8)
    found = [wrong_shares(rows, received, threshold=threshold, coin=coin).tolist() for coin in range(4)]
    # Each coin misses a wrong share with probability 1/255; more shares than the wrong ones may be named.
    assert any(set(wrong.tolist()) <= set(each) for each in found)
