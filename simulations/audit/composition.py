"""The exact epsilon at delta of a pair of laws, each composed with itself: no audit of that pair can exceed it.

delta(epsilon) = max over S of P(S) - e^epsilon Q(S), attained by the sets {likelihood ratio >= t} (Neyman & Pearson),
so epsilon(delta) = max over those S with P(S) > delta of ln((P(S) - delta)/Q(S)).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy
from jaxtyping import Float64, Int64
from numpy import ndarray

# Steps of the grid of log-likelihood ratios, per largest step of one coordinate.
_GRID_STEPS = 4000
# Cells [types of sequences, pairs] that are held at a time.
_CELLS = 1_000_000
# Masses below this are rounding errors of the transform.
_ROUNDING = 1e-17


@dataclass(frozen=True)
class RatioLaw:
    """The law of one log-likelihood ratio: its values and their masses, which add up to 1."""

    ratios: Float64[ndarray, " values"]
    masses: Float64[ndarray, " values"]


def composed_epsilon(
    log_p: Float64[ndarray, "pairs outcomes"], log_q: Float64[ndarray, "pairs outcomes"], *, queries: int, delta: float
) -> Float64[ndarray, " pairs"]:
    """The least epsilon, in both directions, of `queries` independent outcomes with these laws: by enumeration.

    log_p, log_q: natural logarithms of the probabilities. Sequences with the same number of each outcome are one
    element: their ratio is the same. Memory is bounded by chunks of pairs.
    """
    types = _types(queries, log_p.shape[1])
    ways = (scipy.special.gammaln(queries + 1) - scipy.special.gammaln(types + 1).sum(axis=1))[:, None]
    step = max(1, _CELLS // len(types))
    found = []
    for start in range(0, len(log_p), step):
        chosen = slice(start, start + step)
        log_each, log_other = ways + types @ log_p[chosen].T, ways + types @ log_q[chosen].T
        order = np.argsort(log_other - log_each, axis=0, kind="stable")
        p, q = (np.exp(np.take_along_axis(each, order, axis=0)) for each in (log_each, log_other))
        found.append(np.maximum(_best_set(p, q, delta), _best_set(q[::-1], p[::-1], delta)))
    return np.concatenate(found)


def composed_epsilon_of_ratios(parts: Sequence[RatioLaw], *, copies: int, delta: float) -> float:
    """The least epsilon of `copies` of a sum of independent log-likelihood ratios ln(P/Q), given their laws under P.

    One direction. Convolved on a grid by the fast Fourier transform: each mass is shared by its two neighbours on the
    grid so that its mean is preserved, which leaves an error of the order of the squared step.
    """
    step = max(float(np.abs(part.ratios).max()) for part in parts) / _GRID_STEPS
    size = 2 * _GRID_STEPS * copies * len(parts) + 1
    length = scipy.fft.next_fast_len(size, real=True)
    transform = np.ones(length // 2 + 1, dtype=np.complex128)
    for part in parts:
        transform *= scipy.fft.rfft(_on_grid(part, step), length) ** copies
    total = np.maximum(scipy.fft.irfft(transform, length)[:size], 0.0)
    log_ratio = step * (np.arange(size) - size // 2)
    # The factor e^-ratio must not amplify rounding errors of the transform.
    total = np.where(total > _ROUNDING, total, 0.0)
    other = np.where(total > 0, total * np.exp(np.minimum(-log_ratio, 600.0)), 0.0)
    return float(_best_set(total[::-1, None], other[::-1, None], delta)[0])


def _on_grid(part: RatioLaw, step: float) -> Float64[ndarray, " grid"]:
    """The law on a grid around zero, each mass shared by the two neighbouring grid points."""
    place = np.clip(part.ratios / step, -_GRID_STEPS, _GRID_STEPS) + _GRID_STEPS
    left = np.minimum(np.floor(place).astype(np.int64), 2 * _GRID_STEPS - 1)
    share, size = place - left, 2 * _GRID_STEPS + 1
    return np.bincount(left, part.masses * (1 - share), size) + np.bincount(left + 1, part.masses * share, size)


def _best_set(
    p: Float64[ndarray, "ranked pairs"], q: Float64[ndarray, "ranked pairs"], delta: float
) -> Float64[ndarray, " pairs"]:
    """max over prefixes of ln((P - delta)/Q), at least 0; elements are sorted by descending ratio p/q."""
    reached, other = np.cumsum(p, axis=0) - delta, np.cumsum(q, axis=0)
    shown = reached > 0
    # A set that is impossible on the other side has no finite epsilon.
    with np.errstate(divide="ignore"):
        log_ratio = np.log(np.where(shown, reached, 1.0)) - np.log(np.where(shown, other, 1.0))
    return np.maximum(np.where(shown, log_ratio, 0.0).max(axis=0), 0.0)


@lru_cache(maxsize=8)
def _types(queries: int, outcomes: int) -> Int64[ndarray, "types outcomes"]:
    """All ways to distribute `queries` over `outcomes`, one per row."""
    rows = np.zeros((1, 0), dtype=np.int64)
    left = np.array([queries])
    for _ in range(outcomes - 1):
        repeats = left + 1
        starts = np.repeat(np.cumsum(repeats) - repeats, repeats)
        used = np.arange(int(repeats.sum())) - starts
        rows = np.concatenate([np.repeat(rows, repeats, axis=0), used[:, None]], axis=1)
        left = np.repeat(left, repeats) - used
    return np.concatenate([rows, left[:, None]], axis=1)
