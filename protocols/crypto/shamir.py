"""Shamir's secret sharing over GF(256), byte by byte (Shamir 1979), with the field of AES (FIPS 197, section 4).

A byte is the value at 0 of a polynomial of degree threshold - 1 with random coefficients; share r is its value at r +
1. Any `threshold` shares determine it, fewer are independent of it. With spare shares, wrong ones are found (Berlekamp
&
Welch 1986). Tables are indexed by secret bytes, so anyone who can measure a party's cache may learn a batch's keys.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64, UInt8
from numpy import ndarray

_POLYNOMIAL, _GENERATOR = 0x11B, 3


def _tables() -> tuple[Int64[ndarray, " powers"], Int64[ndarray, " elements"], UInt8[ndarray, "256 256"]]:
    """Powers of the generator; logarithms to it, 0 for 0; products."""
    powers, value = [], 1
    for _ in range(255):
        powers.append(value)
        value ^= value << 1
        value ^= _POLYNOMIAL if value > 255 else 0
    exponential = np.array(powers, dtype=np.int64)
    logarithm = np.zeros(256, dtype=np.int64)
    logarithm[exponential] = np.arange(255)
    products = exponential[(logarithm[:, None] + logarithm) % 255].astype(np.uint8)
    products[0, :] = products[:, 0] = 0
    return exponential, logarithm, products


_EXP, _LOG, PRODUCT = _tables()


def split(
    secret: UInt8[ndarray, " width"], coefficients: UInt8[ndarray, "degree width"], *, shares: int
) -> UInt8[ndarray, "shares width"]:
    """Shares 0, 1, ... of each byte of the secret; degree = threshold - 1 uniformly random coefficients a byte."""
    at_points = PRODUCT[1 : shares + 1].ravel()
    rows = np.arange(0, 256 * shares, 256)[:, None]
    values = np.zeros((shares, len(secret)), dtype=np.uint8)
    for coefficient in (*coefficients[::-1], secret):  # Horner's rule at all points
        values = at_points.take(rows + values) ^ coefficient
    return values


def reconstruct(
    rows: Int64[ndarray, "secrets threshold"], shares: UInt8[ndarray, "secrets threshold width"]
) -> UInt8[ndarray, "secrets width"]:
    """The secrets, of shares `rows` (distinct in each secret): Lagrange interpolation at 0."""
    points = rows + 1
    threshold = rows.shape[1]
    apart = _LOG[points[:, :, None] ^ points[:, None, :]].sum(axis=2)  # the logarithm of 0, on the diagonal, counts 0
    others = _LOG[points].sum(axis=1, keepdims=True) - _LOG[points]
    weights = _EXP[(others - apart) % 255]
    secrets = np.zeros((len(rows), shares.shape[2]), dtype=np.uint8)
    for place in range(threshold):  # one at a time, as secrets times threshold times width may be large
        secrets ^= PRODUCT[weights[:, place, None], shares[:, place]]
    return secrets


def wrong_shares(
    rows: Int64[ndarray, " shares"], shares: UInt8[ndarray, "shares width"], *, threshold: int, coin: int
) -> Int64[ndarray, " wrong"]:
    """Positions of the shares off the polynomial that most lie on, if at most (shares - threshold)/2 are; else
    arbitrary.

    Berlekamp & Welch 1986 on one random combination (`coin`: a seed) of the bytes of each share: it misses a wrong
    share with probability 1/255, so the caller must check what the others give, and try another coin.
    """
    errors = (len(rows) - threshold) // 2
    combination = np.random.Generator(np.random.PCG64(coin)).integers(1, 256, shares.shape[1], dtype=np.uint8)
    word = np.bitwise_xor.reduce(PRODUCT[shares, combination], axis=1)
    powers = _powers((rows + 1).astype(np.uint8), threshold + errors)
    # Q(x) = y E(x) at every point, deg E <= errors, deg Q < threshold + errors: E vanishes where shares are wrong.
    system = np.concatenate([powers, PRODUCT[powers[:, : errors + 1], word[:, None]]], axis=1)
    locator = _kernel_vector(system)[threshold + errors :]
    values = np.bitwise_xor.reduce(PRODUCT[powers[:, : errors + 1], locator], axis=1)
    return np.flatnonzero(values == 0)


def _powers(points: UInt8[ndarray, " points"], count: int) -> UInt8[ndarray, "points powers"]:
    """1, x, x^2, ... of points other than 0."""
    return _EXP[_LOG[points][:, None] * np.arange(count) % 255].astype(np.uint8)


def _kernel_vector(system: UInt8[ndarray, "rows columns"]) -> UInt8[ndarray, " columns"]:
    """A nonzero vector that the system, with more columns than rows or dependent columns, maps to 0."""
    system = system.copy()
    pivots: list[int] = []
    free = system.shape[1] - 1
    for column in range(system.shape[1]):
        row = len(pivots)
        candidates = np.flatnonzero(system[row:, column])
        if not candidates.size:
            free = column
            break
        system[[row, row + candidates[0]]] = system[[row + candidates[0], row]]
        inverse = np.uint8(_EXP[-_LOG[system[row, column]] % 255])
        system[row] = PRODUCT[system[row], inverse]
        factors = system[:, column].copy()
        factors[row] = 0
        system ^= PRODUCT[factors[:, None], system[row]]
        pivots.append(column)
    vector = np.zeros(system.shape[1], dtype=np.uint8)
    vector[free] = 1
    # Every column before the first one without a pivot has its pivot in the row of the same number.
    vector[: len(pivots)] = system[: len(pivots), free]
    return vector
