"""Noise that is seen, held against its law: each value, its tails, and all dependence between cells and batches.

Values are first mapped to [0, 1] by the stated distribution function: then they are uniform and independent whatever
the law of the noise is. The distribution is compared by the Kolmogorov-Smirnov distance with Massart's bound (1990:
P[D > e] <= 2 exp(-2 n e^2)), tails and pairs of halves and quarters by exact binomials.
"""

from __future__ import annotations

import numpy as np
import scipy
from jaxtyping import Bool, Float32, Float64, Int64
from numpy import ndarray

from protocols.votes import LATTICE
from simulations.audit.agreement.batches import Batch
from simulations.audit.agreement.evidence import Evidence, binomial_evidence
from simulations.audit.agreement.repetitions import periodic_fault, repeated_at_a_distance
from simulations.audit.target import Target

# The grid on which a distribution function is integrated from the density, in noise scales.
_REACH, _NODES = 60.0, 600_001
# Rounding of noisy counts and of the grid may move a distribution function by this much, beside half a lattice step.
_ROUNDING = 1e-7
_TAILS = np.array([0.1, 0.02, 5e-3, 1e-3, 2e-4, 2e-5])
_DISTANCES = (1, 2, 3)
# Half-widths, in probability, around the centre of the law: a mixture with draws without noise is heavy there.
_CENTRES = np.array([1e-2, 1e-3, 2e-4, 5e-5])
# What low bits are looked at, by exact binomials and by a chi-square of the last, times this for its approximation.
_MODULI, _CHI_SQUARE_MARGIN = (2, 4, 8), 10.0
# Values that are searched for repetitions: their transform takes 16 bytes each.
_SEARCHED = 1_000_000


def seen_noise_evidence(
    uniform: Float64[ndarray, "batches queries classes"], *, rounding: float = _ROUNDING
) -> list[Evidence]:
    """Every family of tests of values that should be uniform and independent, but for a rounding of this size."""
    batches, queries, classes = uniform.shape
    flat = uniform.reshape(batches, queries * classes)
    found = [
        _distance("distribution of the noise", [uniform.ravel()], rounding),
        _distance("distribution by class", [uniform[:, :, each].ravel() for each in range(classes)], rounding),
        _distance("distribution by cell", list(flat.T), rounding),
        _tails(flat, rounding),
        _centre(flat, rounding),
    ]
    sides = flat > 0.5
    sizes = np.abs(flat - 0.5) > 0.25
    for what, halves in (("signs", sides), ("sizes", sizes)):
        found += _pairs(what, halves, rounding)
    scores = ((uniform - 0.5) * np.sqrt(12)).ravel()[:_SEARCHED]
    # |u - 1/2| is uniform on [0, 1/2].
    spread = (np.abs(uniform - 0.5) - 0.25).ravel()[:_SEARCHED] * np.sqrt(48)
    return [*found, repeated_at_a_distance(scores), periodic_fault(spread, period=queries * classes)]


def low_bits_evidence(
    values: Int64[ndarray, "releases cells"], law: Float64[ndarray, " values"] | None
) -> list[Evidence]:
    """Whether whole numbers leave the stated remainders modulo 2, 4 and 8: noise of even numbers tells parities.

    values: of the noise; law: its probabilities on -reach, ..., reach; None where every remainder is equally likely.
    Remainders of all cells together and of each cell are exact binomials; the chi-square of the remainders modulo 8 of
    all cells has its asymptotic tail, times 10.
    """
    masses = np.ones(_MODULI[-1]) / _MODULI[-1] if law is None else law
    reach = 0 if law is None else len(law) // 2
    hits, chances = [], []
    for modulus in _MODULI:
        chance = np.bincount((np.arange(len(masses)) - reach) % modulus, masses, modulus)
        seen = np.stack([(values % modulus == each).sum(axis=0) for each in range(modulus)], axis=1)
        hits.append(np.concatenate([seen, seen.sum(axis=0, keepdims=True)]))
        chances.append(np.broadcast_to(np.clip(chance / chance.sum(), 0.0, 1.0), hits[-1].shape))
    count = np.concatenate([np.full((values.shape[1], 1), len(values)), [[values.size]]])
    all_hits = np.concatenate(hits, axis=1)
    said = ("cell {}", "remainder {} of those of 2, 4 and 8")
    trials = np.broadcast_to(count, all_hits.shape)
    expected = values.size * chances[-1][-1]
    square = float(((hits[-1][-1] - expected) ** 2 / expected).sum())
    p = min(1.0, _CHI_SQUARE_MARGIN * float(scipy.special.chdtrc(_MODULI[-1] - 1, square)))
    return [
        binomial_evidence("low bits", all_hits, trials, np.concatenate(chances, axis=1), words=said),
        Evidence("low bits, chi-square", p, 1, values.size, ""),
    ]


def uniform_of(
    target: Target, batch: Batch, seen: Float64[ndarray, "batches queries classes"]
) -> tuple[Float64[ndarray, "batches queries classes"], float]:
    """What is seen above the counts without the unit's vote, through its distribution function; and the rounding.

    seen: in noise scales; the cell of the unit's vote holds a mixture where the vote enters by a coin.
    """
    z = np.linspace(-_REACH, _REACH, _NODES)
    density = np.exp(target.mechanism.noise_log_density(z))
    below = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    below /= below[-1]
    shift = target.weight / target.scale
    cells = np.zeros(batch.without.shape, dtype=bool)
    cells[np.arange(len(batch.vote)), batch.vote] = True
    uniform = np.interp(seen, z, below)
    moved = np.interp(seen[:, cells] - shift, z, below)
    uniform[:, cells] = (1 - target.rate) * uniform[:, cells] + target.rate * moved
    return uniform, _ROUNDING + 0.5 / LATTICE / target.scale * float(density.max() / density.sum() / (z[1] - z[0]))


def _distance(family: str, samples: list[Float64[ndarray, " values"]], rounding: float) -> Evidence:
    """The largest Kolmogorov-Smirnov distance of these samples from uniform, by Massart's bound."""
    p, size, worst = 2.0, 0, 0
    for at, sample in enumerate(samples):
        ordered, count = np.sort(sample), len(sample)
        steps = np.arange(count + 1) / count
        distance = max(float((steps[1:] - ordered).max()), float((ordered - steps[:-1]).max())) - rounding
        bound = 2 * float(np.exp(-2 * count * max(distance, 0.0) ** 2))
        if bound < p:
            p, size, worst = bound, count, at
    return Evidence(family, min(1.0, p * len(samples)), len(samples), size, f"sample {worst}")


def _tails(flat: Float64[ndarray, "batches cells"], rounding: float) -> Evidence:
    """Values beyond quantiles on either side, where rounding could move a value across none or few."""
    values = np.sort(flat.ravel())
    hits = np.stack(
        [np.searchsorted(values, _TAILS, side="right"), len(values) - np.searchsorted(values, 1 - _TAILS, side="left")]
    )
    # A quantile is moved towards the observed share by what rounding can do.
    seen = hits / len(values)
    chance = np.clip(seen, _TAILS - rounding, _TAILS + rounding)
    trials = np.full_like(hits, len(values))
    return binomial_evidence("tails", hits, trials, chance, words=("side {}", "quantile {}"))


def _centre(flat: Float64[ndarray, "batches cells"], rounding: float) -> Evidence:
    """Values next to the middle of the law, where draws without noise lie."""
    near = np.sort(np.abs(flat.ravel() - 0.5))
    hits = np.searchsorted(near, _CENTRES, side="right")
    chance = np.clip(hits / len(near), 2 * _CENTRES - 2 * rounding, 2 * _CENTRES + 2 * rounding)
    return binomial_evidence("centre", hits, np.full_like(hits, len(near)), chance, words=("width {}",))


def _pairs(what: str, halves: Bool[ndarray, "batches cells"], rounding: float) -> list[Evidence]:
    """Whether two cells are on the same side too often: in a batch, and in batches that share none."""
    batches = len(halves)
    signs: Float32[ndarray, "batches cells"] = np.where(halves, np.float32(1), np.float32(-1))
    place = np.arange(signs.shape[1])
    found = [_agreement(f"{what} in a batch", signs, signs, rounding, place[:, None] < place)]
    for distance in _DISTANCES:
        first = np.flatnonzero(np.arange(max(0, batches - distance)) // distance % 2 == 0)
        if len(first):
            found.append(
                _agreement(f"{what}, {distance} batches apart", signs[first], signs[first + distance], rounding, None)
            )
    return found


def _agreement(
    family: str,
    first: Float32[ndarray, "batches cells"],
    second: Float32[ndarray, "batches cells"],
    rounding: float,
    use: Bool[ndarray, "cells cells"] | None,
) -> Evidence:
    # Sums of at most 2^24 signs are exact in float32.
    same = np.rint((first.T @ second + len(first)) / 2).astype(np.int64)
    trials, words = np.full_like(same, len(first)), ("cell {}", "cell {}")
    chance = np.clip(same / len(first), 0.5 - 2 * rounding, 0.5 + 2 * rounding)
    return binomial_evidence(family, same, trials, chance, words=words, use=use)
