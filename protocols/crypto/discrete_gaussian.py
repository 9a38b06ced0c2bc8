"""Exact sampling of the discrete Gaussian N_Z(0, sigma^2): integers, Pr[z] proportional to exp(-z^2/(2 sigma^2)).

Canonne, Kamath, Steinke 2020 (arXiv 2004.00010), Algorithms 1 to 3, over arrays and only with integers: no decision
depends on a float. Each acceptance test is a Bernoulli(exp(-gamma)) with rational gamma, taken apart into coins of
probabilities r/D and 1/k, and these compare a uniform integer with another integer.

The discrete Gaussian by inversion: a number for each 128 uniform bits, so that a draw can be shown on its own.

`discrete_gaussian` draws exactly, but which of its bytes made which number depends on all bytes before. Here the number
is a function of its own 128 bits u: the least z with u < F(z), F the distribution function in units of 2^-128, cut at
REACH standard deviations. The law differs from N_Z(0, sigma^2) by at most `distance(sigma)` in total variation:

- each F(z) is rounded by at most 1, so that each probability is wrong by at most 2 in 2^128;
- outside +-REACH sigma lies at most 2 exp(-REACH^2 / 2) (Canonne, Kamath & Steinke 2020, Corollary 17: the discrete
  Gaussian is subgaussian with its sigma).

The discrete Gaussian by inversion of uniform numbers of which only as many bits are read as decide: exact, and fast.

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
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from math import ceil, exp, floor, isfinite, log, sqrt

import numpy as np
from jaxtyping import Bool, Int64, UInt, UInt64
from numpy import ndarray

from protocols.crypto.randomness import RandomSource
from protocols.errors import InvalidInput

# t q must stay below it (t the Laplace scale, q the denominator of sigma): then every product fits an int64.
_LARGEST_SCALE = 1 << 29
# Laplace draws of so many scales or more are placed with Python's integers: one in 3,000.
_FAR = 8
_LARGEST_DENOMINATOR = 1 << 20
# Candidates for each number wanted, so that a second round is short; about 0.76 of them are accepted.
_SURPLUS = 1.35
_MOST_AT_ONCE = 1 << 18


def discrete_gaussian(source: RandomSource, *, sigma: Fraction | int, size: int) -> Int64[ndarray, " size"]:
    """`size` independent draws of N_Z(0, sigma^2): exactly this law, if the source's bytes are uniform.

    sigma > 0 is above the standard deviation, and within 1e-6 of it from sigma = 1 on (CKS20, on its variance).
    The same bytes give the same draws. Raises InvalidInput where (floor(sigma) + 1) times sigma's denominator
    exceeds 2^29 (`lattice_sigma` gives one that fits), or sigma or size is out of range.
    """
    scale = Fraction(sigma)
    if scale <= 0 or (floor(scale) + 1) * scale.denominator > _LARGEST_SCALE or scale.numerator > _LARGEST_SCALE:
        raise InvalidInput(
            f"sigma = {sigma}; allowed: a fraction > 0 with (floor(sigma) + 1) * denominator at most 2**29"
        )
    if size < 0:
        raise InvalidInput(f"size = {size}; allowed: 0 or more")
    drawn = [np.empty(0, dtype=np.int64)]
    missing = size
    while missing > 0:
        candidates, accepted = _candidates(source, scale, min(int(_SURPLUS * missing) + 16, _MOST_AT_ONCE))
        drawn.append(candidates[accepted][:missing])
        missing -= len(drawn[-1])
    return np.concatenate(drawn)


def lattice_sigma(sigma_votes: float | int, *, units: int) -> Fraction:
    """The least sigma in lattice units, on the grid that `discrete_gaussian` takes, that is not below the stated one.

    units: lattice units per vote. The denominator is a power of two, at most 2^20; the excess is below 2^-20 units up
    to 510 units and below 4e-9 of sigma above. Account with the stated sigma. Raises InvalidInput for a sigma that is
    not positive and finite, or above 2^27 units.
    """
    if units < 1:
        raise InvalidInput(f"units = {units} per vote; allowed: 1 or more")
    if not (isfinite(sigma_votes) and sigma_votes > 0):
        raise InvalidInput(f"sigma = {sigma_votes} votes; allowed: finite, > 0")
    stated = Fraction(sigma_votes) * units
    denominator = sampler_denominator(stated)
    return Fraction(ceil(stated * denominator), denominator)


def sampler_denominator(sigma_units: Fraction) -> int:
    """The largest power of two, at most 2^20, over which the sampler takes sigma_units rounded up.

    Raises InvalidInput above 2^27 units.
    """
    if sigma_units > _LARGEST_SCALE // 4:
        raise InvalidInput(f"sigma = {float(sigma_units):g} lattice units; allowed: at most 2**27")
    denominator = _LARGEST_DENOMINATOR
    while (floor(sigma_units) + 2) * denominator > _LARGEST_SCALE:
        denominator //= 2
    return denominator


def _candidates(
    source: RandomSource, sigma: Fraction, count: int
) -> tuple[Int64[ndarray, " kept"], Bool[ndarray, " kept"]]:
    """Algorithm 3: discrete Laplace draws Y of scale t, and whether each passes exp(-(|Y|/sigma - sigma/t)^2/2).

    With sigma = p/q the root of twice the exponent is |  |Y| t q^2 - p^2 | / (p q t) = whole + r/D.
    """
    p, q = sigma.numerator, sigma.denominator
    t = p // q + 1
    remainder, quotient, negative = _laplace(source, t, count)
    step, denominator = (t * q) ** 2, p * q * t
    offset = remainder * (t * q * q) - p * p
    distance = np.abs(np.minimum(quotient, _FAR) * step + offset)
    whole, rest = distance // denominator, distance % denominator
    for place in np.flatnonzero(quotient > _FAR):
        exact = int(quotient[place]) * step + int(offset[place])
        whole[place], rest[place] = exact // denominator, exact % denominator
    accepted = _passes_gaussian(source, whole, rest, denominator)
    magnitude = remainder + t * quotient
    return np.where(negative, -magnitude, magnitude), accepted


def _laplace(
    source: RandomSource, t: int, count: int
) -> tuple[Int64[ndarray, " kept"], Int64[ndarray, " kept"], Bool[ndarray, " kept"]]:
    """Algorithm 2 with integer scale t: |Y| as remainder + t * quotient, and Y's sign; some of `count` are rejected."""
    remainder = _below(source, t, count)
    remainder = remainder[_bernoulli_exp(source, remainder, t, power=1, divisor=1)]
    quotient = _runs(source, len(remainder), divisor=1)
    negative = _below(source, 2, len(remainder)) == 1
    # Otherwise zero would occur twice, as +0 and -0.
    kept = ~(negative & (remainder == 0) & (quotient == 0))
    return remainder[kept], quotient[kept], negative[kept]


def _passes_gaussian(
    source: RandomSource, whole: Int64[ndarray, " draws"], rest: Int64[ndarray, " draws"], denominator: int
) -> Bool[ndarray, " draws"]:
    """Bernoulli(exp(-(w + x)^2/2)), x = rest/denominator in [0, 1), as exp(-x^2/2) exp(-1/2)^(w^2) exp(-x)^w."""
    alive = np.flatnonzero(_bernoulli_exp(source, rest, denominator, power=2, divisor=2))
    far = whole[alive] > 0
    near, alive = alive[~far], alive[far]
    # The cut keeps w^2 within an int64; a run of 2^62 successes would not fit any memory.
    alive = alive[_runs(source, len(alive), divisor=2) >= np.minimum(whole[alive], 1 << 31) ** 2]
    turn = 0
    finished = [near]
    while len(alive):
        alive = alive[_bernoulli_exp(source, rest[alive], denominator, power=1, divisor=1)]
        turn += 1
        finished.append(alive[whole[alive] == turn])
        alive = alive[whole[alive] > turn]
    passed = np.zeros(len(whole), dtype=bool)
    passed[np.concatenate(finished)] = True
    return passed


def _bernoulli_exp(
    source: RandomSource, numerator: Int64[ndarray, " trials"], denominator: int, *, power: int, divisor: int
) -> Bool[ndarray, " trials"]:
    """Algorithm 1: True with probability exp(-gamma), gamma = (numerator/denominator)^power / divisor in [0, 1].

    Coins of probability gamma/k for k = 1, 2, ... until one fails; True if the first to fail is an odd one. Such a
    coin is that of `power` coins numerator/denominator and one 1/(divisor k), all of which must pass.
    """
    outcome = np.ones(len(numerator), dtype=bool)
    active = np.arange(len(numerator))
    k = 1
    while len(active):
        for _ in range(power):
            active = active[_below(source, denominator, len(active)) < numerator[active]]
        if divisor * k > 1:
            active = active[_below(source, divisor * k, len(active)) == 0]
        # Those that remain passed coin k: failing at k + 1 makes them True if k + 1 is odd.
        outcome[active] = k % 2 == 0
        k += 1
    return outcome


def _runs(source: RandomSource, count: int, *, divisor: int) -> Int64[ndarray, " count"]:
    """How often Bernoulli(exp(-1/divisor)) succeeds before it first fails, `count` times.

    Read off one row of independent trials, lengthened until it holds `count` failures.
    """
    ends = [np.full(1, -1, dtype=np.int64)]
    failures, tried = 0, 0
    while failures < count:
        trials = int(1.7 * divisor * (count - failures)) + 16
        succeeded = _bernoulli_exp(source, np.ones(trials, dtype=np.int64), 1, power=0, divisor=divisor)
        ends.append(tried + np.flatnonzero(~succeeded))
        failures += len(ends[-1])
        tried += trials
    return np.diff(np.concatenate(ends)[: count + 1]) - 1


def _below(source: RandomSource, bound: int, count: int) -> Int64[ndarray, " count"]:
    """`count` independent uniform integers in [0, bound), 1 <= bound <= 2^62: unbiased, by rejection.

    A word is rejected if it lies in the last, incomplete multiple of bound. Short words serve short bounds.
    """
    kind, bits = ("<u4", 32) if bound <= 1 << 24 else ("<u8", 64)
    if bound == 1:
        return np.zeros(count, dtype=np.int64)
    largest = (1 << bits) // bound * bound - 1
    words = _words(source, kind, count)
    if largest < (1 << bits) - 1:
        refused = np.flatnonzero(words > largest)
        while len(refused):
            words[refused] = _words(source, kind, len(refused))
            refused = refused[words[refused] > largest]
    divisor = words.dtype.type(bound)
    if bound & (bound - 1) == 0:
        return (words & (divisor - words.dtype.type(1))).astype(np.int64)
    # NumPy divides by a constant several times faster than it takes remainders.
    return (words - words // divisor * divisor).astype(np.int64)


def _words(source: RandomSource, kind: str, count: int) -> UInt[ndarray, " count"]:
    return np.frombuffer(source(int(kind[-1]) * count), dtype=kind).astype(kind[1:], copy=True)


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


# Beyond, the table costs more than what it saves: 80,000 steps take a tenth of a second.
LARGEST_TABLE_SIGMA = 1 << 12

_WORD = 64
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
    steps, first, reach = _word_table(sigma)
    words = np.frombuffer(source(8 * size), dtype="<u8").astype(np.uint64, copy=False)
    # The last step is beyond these, and near to the words that are changed.
    found = np.minimum(words, steps[-1] - np.uint64(1))
    place = first[found >> np.uint64(_WORD - _BUCKET_BITS)]
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
    bits = _WORD
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
def _word_table(sigma: Fraction) -> tuple[UInt64[ndarray, " steps"], Int64[ndarray, " buckets"], int]:
    """The steps of F as words, between the least word and the largest; for each bucket of words its first step; and the
    reach.
    """
    steps, reach = _steps(sigma, _WORD)
    last = (1 << _WORD) - 1
    words = np.array([0, *(min(step, last) for step in steps), last], dtype=np.uint64)
    buckets = np.arange(1 << _BUCKET_BITS, dtype=np.uint64) << np.uint64(_WORD - _BUCKET_BITS)
    return words, np.searchsorted(words, buckets, side="right"), reach
