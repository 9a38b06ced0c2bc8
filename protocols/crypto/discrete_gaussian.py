"""Exact sampling of the discrete Gaussian N_Z(0, sigma^2): integers, Pr[z] proportional to exp(-z^2/(2 sigma^2)).

Canonne, Kamath, Steinke 2020 (arXiv 2004.00010), Algorithms 1 to 3, over arrays and only with integers: no decision
depends on a float. Each acceptance test is a Bernoulli(exp(-gamma)) with rational gamma, taken apart into coins of
probabilities r/D and 1/k, and these compare a uniform integer with another integer.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor, isfinite

import numpy as np
from jaxtyping import Bool, Int64, UInt
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
