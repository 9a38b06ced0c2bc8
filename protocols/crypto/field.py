"""Arithmetic modulo the Mersenne prime p = 2^31 - 1 on whole arrays, exact.

A vote needs few bits, and a product of two elements fits an unsigned 64-bit word. Since 2^31 = 1 modulo p, a word is
reduced by adding its upper bits to its lower 31.

The field of p^3 elements over p = 2^31 - 1: F_p[x] / (x^3 - 7), each element three coefficients, the constant first.

x^3 - 7 has no root modulo p, and so no factor: 7 generates the group of units (Park & Miller 1988, whose multiplier is
7^5), and 3 divides p - 1, so 7 is no cube. Three numbers modulo p are so one number, which is zero only if all are.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64, UInt32, UInt64
from numpy import ndarray

BITS = 31
P = 2**BITS - 1

_P = np.uint64(P)
_P32 = np.uint32(P)
_SHIFT = np.uint64(BITS)
_HALF = np.uint32(16)
_LOW = np.uint32(0xFFFF)
# A product of 16 bits and 31 bits is below 2^47: so many of them add up to less than 2^53, which a float64 holds.
_MOST_TERMS = 64


def reduced(words: UInt64[ndarray, "*shape"]) -> UInt32[ndarray, "*shape"]:
    """Any 64-bit words modulo p."""
    return _below_p(partly_reduced(partly_reduced(words)).astype(np.uint32))


def partly_reduced(words: UInt64[ndarray, "*shape"]) -> UInt64[ndarray, "*shape"]:
    """Numbers below 2^34 that are the same modulo p: the upper bits are added to the lower 31."""
    low = words & _P
    low += words >> _SHIFT
    return low


def _below_p(found: UInt32[ndarray, "*shape"]) -> UInt32[ndarray, "*shape"]:
    """Numbers below 2 p modulo p: below p, subtracting wraps to a number that is larger."""
    return np.minimum(found, np.subtract(found, _P32))


def from_integers(values: Int64[ndarray, "*shape"]) -> UInt32[ndarray, "*shape"]:
    """Integers modulo p; negative ones become p minus their absolute value."""
    return np.mod(values, P).astype(np.uint32)


def to_integers(values: UInt32[ndarray, "*shape"]) -> Int64[ndarray, "*shape"]:
    """The integers around 0 that elements stand for."""
    found = values.astype(np.int64)
    return np.where(found > P // 2, found - P, found)


def plus(left: UInt32[ndarray, "..."], right: UInt32[ndarray, "..."]) -> UInt32[ndarray, "..."]:
    """left + right; both broadcast."""
    return _below_p(left + right)


def minus(left: UInt32[ndarray, "..."], right: UInt32[ndarray, "..."]) -> UInt32[ndarray, "..."]:
    """left - right; both broadcast."""
    found = np.subtract(left, right)
    return np.minimum(found, np.add(found, _P32))


def times(left: UInt32[ndarray, "..."], right: UInt32[ndarray, "..."]) -> UInt32[ndarray, "..."]:
    """left * right; both broadcast."""
    words = np.asarray(left.astype(np.uint64) * right)
    low = words.astype(np.uint32) & _P32
    words >>= _SHIFT
    # A product of two numbers below p is below p^2, and so the sum below 2 p.
    return _below_p(low + words.astype(np.uint32))


def matrix_product(
    left: UInt32[ndarray, "*batch rows inner"], right: UInt32[ndarray, "*batch inner columns"]
) -> UInt32[ndarray, "*batch rows columns"]:
    """left @ right for stacks of matrices, by exact products of float64: every sum stays below 2^53."""
    total = np.zeros((*left.shape[:-1], right.shape[-1]), dtype=np.uint64)
    for start in range(0, left.shape[-1], _MOST_TERMS):
        rows = left[..., start : start + _MOST_TERMS]
        columns = right[..., start : start + _MOST_TERMS, :].astype(np.float64)
        low = ((rows & _LOW).astype(np.float64) @ columns).astype(np.uint64)
        high = ((rows >> _HALF).astype(np.float64) @ columns).astype(np.uint64)
        # Folded once, high is below 2^32, so that it may be shifted; and so is the total, which then stays below 2^55.
        total = partly_reduced(total) + low + (partly_reduced(high) << _HALF.astype(np.uint64))
    return reduced(total)


_CUBE = np.array([7], dtype=np.uint32)


def cubic_times(left: UInt32[ndarray, "*batch 3"], right: UInt32[ndarray, "*batch 3"]) -> UInt32[ndarray, "*batch 3"]:
    """left * right."""
    terms = times(left[..., :, None], right[..., None, :])
    low = terms[..., 0, 0], plus(terms[..., 0, 1], terms[..., 1, 0]), terms[..., 1, 1]
    high = plus(terms[..., 1, 2], terms[..., 2, 1]), terms[..., 2, 2]
    middle = plus(low[2], plus(terms[..., 0, 2], terms[..., 2, 0]))
    return np.stack([plus(low[0], times(high[0], _CUBE)), plus(low[1], times(high[1], _CUBE)), middle], axis=-1)
