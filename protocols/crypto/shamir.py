"""Shamir's secret sharing (Shamir 1979) over the scalars of edwards25519.

A polynomial is its coefficients, lowest first; its value at 0 is the secret, share r its value at r + 1. As many shares
as it has coefficients determine it, fewer are independent of the secret. Whole numbers of Python: how long they take
depends on them, so anyone who can time a party's machine may learn something of a batch's keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

from protocols.crypto.edwards import ORDER


def value(coefficients: Sequence[int], point: int) -> int:
    """A polynomial's value at a small point."""
    result = 0
    for coefficient in reversed(coefficients):  # Horner's rule; one reduction is cheaper than one a step
        result = result * point + coefficient
    return result % ORDER


def split(coefficients: Sequence[int], *, shares: int) -> list[int]:
    """Shares 0, 1, ... of the secret coefficients[0]; the other coefficients must be uniformly random."""
    return [value(coefficients, point) for point in range(1, shares + 1)]


def reconstruct(rows: Sequence[int], shares: Sequence[int], *, among: int) -> int:
    """The secret, of all shares `rows` that are there, of `among` that were dealt: Lagrange at 0.

    The weights are those of all rows, each changed for every row that is missing: few are.
    """
    there, weights = frozenset(rows), _weights(among)
    missing = [row for row in range(among) if row not in there]
    total = sum(
        weights[row] * prod([other - row for other in missing]) % ORDER * share
        for row, share in zip(rows, shares, strict=True)
    )
    return total * pow(prod([other + 1 for other in missing]), -1, ORDER) % ORDER


@lru_cache(maxsize=8)
def _weights(among: int) -> tuple[int, ...]:
    """The product of x' / (x' - x) over all other points x', for each point x."""
    points = range(1, among + 1)
    return tuple(
        prod(other for other in points if other != point)
        * pow(prod(other - point for other in points if other != point), -1, ORDER)
        % ORDER
        for point in points
    )
