"""The discrete Gaussian by inversion: a number for each 128 uniform bits, so that a draw can be shown on its own.

`discrete_gaussian` draws exactly, but which of its bytes made which number depends on all bytes before. Here the number
is a function of its own 128 bits u: the least z with u < F(z), F the distribution function in units of 2^-128, cut at
REACH standard deviations. The law differs from N_Z(0, sigma^2) by at most `distance(sigma)` in total variation:

- each F(z) is rounded by at most 1, so that each probability is wrong by at most 2 in 2^128;
- outside +-REACH sigma lies at most 2 exp(-REACH^2 / 2) (Canonne, Kamath & Steinke 2020, Corollary 17: the discrete
  Gaussian is subgaussian with its sigma).
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from math import ceil, exp

import numpy as np
from jaxtyping import Int64, UInt64
from numpy import ndarray

from protocols.errors import InvalidInput

REACH = 13
# Words of 64 bits that make one draw, the higher one first.
WORDS = 2
# Above this the table would take 50 MB and seconds to make.
LARGEST_SIGMA = 1 << 16
# What `distance` is below for every sigma up to it.
INVERSION_DISTANCE = 2.0**-105

_BITS = 128
# Bits below the point of the sums of weights: errors of 2^-220 each, added up over 2^42 terms, stay below 2^-128.
_FINE = 220
# Decimal digits behind those of the smallest unit.
_GUARD_DIGITS = 32


def inverted(words: UInt64[ndarray, "*shape 2"], *, sigma: Fraction) -> Int64[ndarray, "*shape"]:
    """A draw for each pair of words. Raises InvalidInput for a sigma outside (0, LARGEST_SIGMA]."""
    high, low, reach = _table(sigma)
    found = np.searchsorted(high, words[..., 0], side="right")
    # A word that is also the upper word of a bound needs the lower ones: about once in 2^50 draws, so one at a time.
    before = np.maximum(found - 1, 0)
    for at in zip(*np.nonzero((found > 0) & (high[before] == words[..., 0])), strict=True):
        equal = np.flatnonzero(high == words[(*at, 0)])
        found[at] = equal[0] + np.searchsorted(low[equal], words[(*at, 1)], side="right")
    return np.minimum(found, 2 * reach).astype(np.int64) - reach


def distance(sigma: Fraction) -> float:
    """Upper bound on the total variation distance of one draw from N_Z(0, sigma^2)."""
    return (2 * _reach(sigma) + 1) * 2.0**-_BITS * (1 + 2.0**-40) + 2 * exp(-(REACH**2) / 2)


def _reach(sigma: Fraction) -> int:
    return ceil(REACH * sigma)


@lru_cache(maxsize=4)
def _table(sigma: Fraction) -> tuple[UInt64[ndarray, " values"], UInt64[ndarray, " values"], int]:
    """Upper and lower words of F(z) for each z from -reach to reach - 1, and the reach."""
    if not 0 < sigma <= LARGEST_SIGMA:
        raise InvalidInput(f"sigma = {float(sigma):g} lattice units; allowed: above 0, at most {LARGEST_SIGMA}")
    reach = _reach(sigma)
    weights = gaussian_weights(sigma, reach, fine=_FINE)
    total = 2 * sum(weights[1:]) + weights[0]
    bounds, running = [], 0
    for z in range(-reach, reach):
        running += weights[abs(z)]
        bounds.append(min((running << _BITS) // total, (1 << _BITS) - 1))
    octets = np.frombuffer(b"".join(bound.to_bytes(16, "big") for bound in bounds), dtype=">u8").reshape(-1, WORDS)
    return octets[:, 0].astype(np.uint64), octets[:, 1].astype(np.uint64), reach


def gaussian_weights(sigma: Fraction, reach: int, *, fine: int) -> list[int]:
    """exp(-z^2 / (2 sigma^2)) in units of 2^-fine for z = 0 to reach: each from the one before by its ratio.

    Every step rounds down, so weight z is wrong by at most (z + 1)^2 units.
    """
    ratio, step = (_exponential(-turns / (2 * sigma**2), fine) for turns in (1, 2))
    weights = [1 << fine]
    for _ in range(reach):
        weights.append(weights[-1] * ratio >> fine)
        ratio = ratio * step >> fine
    return weights


def _exponential(exponent: Fraction, fine: int) -> int:
    """exp of it in units of 2^-fine, rounded down: in decimals, whose exp is the same on every machine."""
    with localcontext(prec=fine * 31 // 100 + _GUARD_DIGITS):
        return int((Decimal(exponent.numerator) / exponent.denominator).exp() * 2**fine)
