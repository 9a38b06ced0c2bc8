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

# Shares are values at 1 to 255.
MOST_SHARES = 255


def value(coefficients: Sequence[int], point: int) -> int:
    """A polynomial's value at a small point."""
    result = 0
    for coefficient in reversed(coefficients):  # Horner's rule; one reduction is cheaper than one a step
        result = result * point + coefficient
    return result % ORDER


def split(coefficients: Sequence[int], *, shares: int) -> list[int]:
    """Shares 0, 1, ... of the secret coefficients[0]; the other coefficients must be uniformly random."""
    return [value(coefficients, point) for point in range(1, shares + 1)]


def reconstruct(rows: Sequence[int], shares: Sequence[int]) -> int:
    """The secret, of shares `rows`, distinct and as many as the polynomial has coefficients: Lagrange at 0."""
    return sum(weight * share for weight, share in zip(_weights(tuple(rows)), shares, strict=True)) % ORDER


@lru_cache(maxsize=1024)
def _weights(rows: tuple[int, ...]) -> tuple[int, ...]:
    """The product over others of x' / (x' - x), for each point x; with one inversion (Montgomery's trick)."""
    points = [row + 1 for row in rows]
    everything = prod(points)
    below = [point * prod(other - point for other in points if other != point) % ORDER for point in points]
    before = [1]
    for each in below:
        before.append(before[-1] * each % ORDER)
    inverse, weights = pow(before[-1], -1, ORDER), []
    for place in range(len(points) - 1, -1, -1):
        weights.append(everything * inverse * before[place] % ORDER)
        inverse = inverse * below[place] % ORDER
    return tuple(reversed(weights))
