"""Shares over the scalars of edwards25519: against a slow implementation in fractions, and what too few reveal."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.crypto.edwards import ORDER
from protocols.crypto.shamir import reconstruct, split, value


def slow_secret(points, values):
    """Lagrange at 0 in rational numbers, reduced at the end."""
    total = Fraction(0)
    for point, share in zip(points, values, strict=True):
        weight = Fraction(1)
        for other in points:
            if other != point:
                weight *= Fraction(other, other - point)
        total += weight * share
    return total.numerator * pow(total.denominator, -1, ORDER) % ORDER


@given(
    coefficients=st.lists(st.integers(0, ORDER - 1), min_size=1, max_size=7), spare=st.integers(0, 6), data=st.data()
)
@settings(max_examples=60)
def test_any_shares_as_many_as_coefficients_or_more_give_the_secret(coefficients, spare, data) -> None:
    dealt = len(coefficients) + spare
    shares = split(coefficients, shares=dealt)
    assert shares == [
        sum(c * (row + 1) ** power for power, c in enumerate(coefficients)) % ORDER for row in range(dealt)
    ]
    count = data.draw(st.integers(len(coefficients), dealt))
    rows = data.draw(st.permutations(range(dealt)))[:count]
    chosen = [shares[row] for row in rows]
    assert reconstruct(rows, chosen, among=dealt) == coefficients[0]
    assert slow_secret([row + 1 for row in rows], chosen) == coefficients[0]


def test_all_255_shares_give_the_secret() -> None:
    rng = np.random.default_rng(0)
    coefficients = [int.from_bytes(rng.bytes(32), "little") % ORDER for _ in range(200)]
    shares = split(coefficients, shares=255)
    rows = rng.permutation(255)[:200].tolist()
    assert reconstruct(rows, [shares[row] for row in rows], among=255) == coefficients[0]


@pytest.mark.parametrize("rows", [(0,), (4,), (0, 1), (2, 6)])
def test_fewer_shares_than_coefficients_fit_every_secret(rows) -> None:
    """Exactly: for any shares of too few rows and any secret there is one polynomial, so no secret is more likely."""
    rng = np.random.default_rng(1)
    shares = [int.from_bytes(rng.bytes(32), "little") % ORDER for _ in rows]
    for secret in (0, 1, ORDER - 1):
        points = [0, *(row + 1 for row in rows)]
        # The polynomial through the secret and the shares, in Lagrange's form, at one more point and back.
        further = max(points) + 1
        weights = [
            np.prod([Fraction(further - other, point - other) for other in points if other != point])
            for point in points
        ]
        total = sum((weight * each for weight, each in zip(weights, [secret, *shares], strict=True)), Fraction(0))
        last = total.numerator * pow(total.denominator, -1, ORDER) % ORDER
        assert reconstruct([*rows, further - 1], [*shares, last], among=7 + 1) == secret


def test_a_value_needs_no_reduced_coefficients() -> None:
    assert value([ORDER + 3, 2 * ORDER + 5], 7) == 38
