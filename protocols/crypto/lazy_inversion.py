"""The discrete Gaussian by inversion of uniform numbers of which only as many bits are read as decide: exact, and fast.

A draw is the least z with U < F(z), where U is uniform in [0, 1) and F is the distribution function. The first 64 bits
of U say which z it is unless a step of F lies within two units of them, once in 2^50 draws or so; then further bits are
read, and F is computed to as many. So the law is N_Z(0, sigma^2) itself, as that of `discrete_gaussian`, at a tenth of
its time. It is inversion by truncated expansions (Devroye 1986, "Non-Uniform Random Variate Generation", section
II.2), for which a bound on the error of F is all that is needed:

- the sum of weights is cut where less than 2^-(bits + 4) of the law is left (Canonne, Kamath & Steinke 2020, Corollary
  17: the discrete Gaussian is subgaussian with its sigma), which changes F by less than 1/8 of a unit of 2^-bits;
- weights are computed to _SPARE bits more (`gaussian_weights`), which changes it by less than 1/8 again;
- the quotient is rounded to the nearest unit.
"""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction
from functools import lru_cache
from math import ceil, log, sqrt

import numpy as np
from jaxtyping import Int64, UInt64
from numpy import ndarray

from protocols.crypto.discrete_gaussian import discrete_gaussian
from protocols.crypto.inverted_gaussian import gaussian_weights
from protocols.crypto.randomness import RandomSource
from protocols.errors import InvalidInput

# Beyond, the table costs more than what it saves: 80,000 steps take a tenth of a second.
LARGEST_TABLE_SIGMA = 1 << 12

_BITS = 64
# For up to 2^20 weights, each wrong by at most 2^40 units.
_SPARE = 72
# The first bits of a word find its place in the table, or nearly.
_BUCKET_BITS = 12
# Steps of F behind the first of its bucket, before those words are left that need a search.
_STEPS = 3
# A word that is so many units away from the steps beside it is on the same side of them as U, whatever bits follow.
_NEAR = 2


def integer_gaussian(source: RandomSource, *, sigma: Fraction, size: int) -> Int64[ndarray, " size"]:
    """`size` independent draws of N_Z(0, sigma^2), exactly this law if the source's bytes are uniform.

    By inversion up to LARGEST_TABLE_SIGMA, by `discrete_gaussian` above. The same bytes give the same draws. Raises
    InvalidInput for what `discrete_gaussian` does not take, and where sigma <= 0 or size < 0.
    """
    if sigma > LARGEST_TABLE_SIGMA:
        return discrete_gaussian(source, sigma=sigma, size=size)
    if sigma <= 0 or size < 0:
        raise InvalidInput(f"sigma = {sigma}, size = {size}; allowed: above 0, and 0 or more")
    steps, first, reach = _table(sigma)
    words = np.frombuffer(source(8 * size), dtype="<u8").astype(np.uint64, copy=False)
    # The last step is beyond these, and near to the words that are changed.
    found = np.minimum(words, steps[-1] - np.uint64(1))
    place = first[found >> np.uint64(_BITS - _BUCKET_BITS)]
    for _ in range(_STEPS):
        place += steps[place] <= found
    left = np.flatnonzero(steps[place] <= found)
    place[left] = np.searchsorted(steps, found[left], side="right")
    near = (found - steps[place - 1] < _NEAR) | (steps[place] - found < _NEAR)
    drawn = place - 1 - reach
    for at in np.flatnonzero(near).tolist():
        drawn[at] = _decided(int(words[at]), source, sigma)
    return drawn


def _decided(word: int, source: RandomSource, sigma: Fraction) -> int:
    """The draw of a uniform number that begins with these 64 bits, of which more are read until they decide."""
    bits = _BITS
    while True:
        word, bits = word << 64 | int.from_bytes(source(8), "little"), bits + 64
        steps, reach = _steps(sigma, bits)
        place = bisect_right(steps, word)
        if 0 < place < len(steps) and word - steps[place - 1] >= _NEAR and steps[place] - word >= _NEAR:
            return place - reach


def _steps(sigma: Fraction, bits: int) -> tuple[list[int], int]:
    """F(z) in units of 2^-bits, wrong by less than one unit, for each z from -reach to reach - 1, and the reach."""
    reach = ceil(sigma * Fraction(sqrt(2 * log(2) * (bits + 5)))) + 1
    weights = gaussian_weights(sigma, reach, fine=bits + _SPARE)
    total = 2 * sum(weights) - weights[0]
    lower, running = [], 0
    for weight in reversed(weights[1:]):
        running += weight
        lower.append(((running << bits) + total // 2) // total)
    # F(-z - 1) and F(z) add up to 1.
    return lower + [(1 << bits) - step for step in reversed(lower)], reach


@lru_cache(maxsize=4)
def _table(sigma: Fraction) -> tuple[UInt64[ndarray, " steps"], Int64[ndarray, " buckets"], int]:
    """The steps of F as words, between the least word and the largest; for each bucket of words its first step; and the
    reach.
    """
    steps, reach = _steps(sigma, _BITS)
    last = (1 << _BITS) - 1
    words = np.array([0, *(min(step, last) for step in steps), last], dtype=np.uint64)
    buckets = np.arange(1 << _BUCKET_BITS, dtype=np.uint64) << np.uint64(_BITS - _BUCKET_BITS)
    return words, np.searchsorted(words, buckets, side="right"), reach
