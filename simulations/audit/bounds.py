"""Lower bounds on epsilon from two samples of a statistic, and the exact epsilon that no such bound can exceed.

A release is (epsilon, delta)-DP only if for every set S of what may be seen P(S) <= e^epsilon Q(S) + delta (Kairouz,
Oh & Viswanath 2015, Thm 2.1 says the same of the two error rates of a test). Here S is "the statistic reaches t", so
epsilon >= ln((P(S) - delta)/Q(S)); both probabilities are replaced by their exact one-sided limits (Clopper & Pearson
1934; as in Jagielski, Ullman & Oprea 2020). t, the direction and the pair are chosen on the first part of the trials,
and the bound is computed on the rest alone. The reverse direction takes "the statistic stays at or below t".

A claim of mu-Gaussian DP says more: ndtri(P(S)) - ndtri(Q(S)) <= mu for every S (Dong, Roth & Su 2022, Def. 2.6). Its
lower bound on mu is found in the same way; it refutes that claim with far fewer rare events (Nasr et al. 2023).

Exactly, delta(epsilon) = max over S of P(S) - e^epsilon Q(S), attained by the sets {likelihood ratio >= t} (Neyman &
Pearson), so epsilon(delta) = max over those S with P(S) > delta of ln((P(S) - delta)/Q(S)).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.errors import InvalidInput


def lower_limit(hits: Float64[ndarray, "..."], trials: int, *, alpha: float) -> Float64[ndarray, "..."]:
    """The p below which `hits` or more of `trials` have probability alpha: P(limit > p) <= alpha. 0 for no hits.

    hits in [0, trials]; alpha in (0, 1). Raises InvalidInput.
    """
    _check(hits, trials, alpha)
    some = np.maximum(hits, np.finfo(float).tiny)
    return np.where(hits > 0, scipy.special.betaincinv(some, trials - hits + 1, alpha), 0.0)


def upper_limit(hits: Float64[ndarray, "..."], trials: int, *, alpha: float) -> Float64[ndarray, "..."]:
    """The p above which `hits` or fewer of `trials` have probability alpha: P(limit < p) <= alpha. 1 for all hits."""
    return 1.0 - lower_limit(trials - hits, trials, alpha=alpha)


def _check(hits: Float64[ndarray, "..."], trials: int, alpha: float) -> None:
    if trials < 1:
        raise InvalidInput(f"trials is {trials}; allowed: at least 1")
    if not ((hits >= 0) & (hits <= trials)).all():
        raise InvalidInput(f"hits span [{hits.min()}, {hits.max()}]; allowed: in [0, {trials}]")
    if not 0 < alpha < 1:
        raise InvalidInput(f"alpha is {alpha}; allowed: in (0, 1)")


# The share of the trials that is used to choose t.
SELECTION_SHARE = 0.3
# At most this many values of t are tried.
_CANDIDATES = 1500

_Score = Callable[[Float64[ndarray, "..."], Float64[ndarray, "..."]], Float64[ndarray, "..."]]


@dataclass(frozen=True, eq=False)
class Samples:
    """The statistic in equally many independent trials of either vote; it is large where "before" is likelier."""

    before: Float64[ndarray, " trials"]
    after: Float64[ndarray, " trials"]


@dataclass(frozen=True)
class LowerBound:
    """A lower bound and the test that gave it: how many of the evaluated trials of either vote fell into S.

    pair: which of the samples; direction: "before" (S is likelier before the vote moved) or "after".
    """

    value: float
    pair: int
    direction: str
    hits: int
    false_hits: int
    trials: int


def epsilon_lower_bound(samples: Sequence[Samples], *, delta: float, alpha: float) -> LowerBound:
    """A bound that epsilon at delta is not below, except with probability alpha; 0 if nothing is shown.

    samples: for one or more pairs of votes, of which the most distinguishable is chosen. Raises InvalidInput.
    """
    if not 0 <= delta < 1:
        raise InvalidInput(f"delta is {delta}; allowed: in [0, 1)")

    def score(hits: Float64[ndarray, "..."], false_hits: Float64[ndarray, "..."]) -> Float64[ndarray, "..."]:
        excess = hits - delta
        ratio = np.log(np.where(excess > 0, excess, 1.0)) - np.log(false_hits)
        return np.where(excess > 0, np.maximum(ratio, 0.0), 0.0)

    return _bound(samples, score, alpha=alpha)


def mu_lower_bound(samples: Sequence[Samples], *, alpha: float) -> LowerBound:
    """A bound below which no mu makes the release mu-Gaussian DP, except with probability alpha; 0 if nothing is
    shown.
    """

    def score(hits: Float64[ndarray, "..."], false_hits: Float64[ndarray, "..."]) -> Float64[ndarray, "..."]:
        shown = (hits > 0) & (false_hits < 1)
        gap = scipy.special.ndtri(np.where(shown, hits, 0.5)) - scipy.special.ndtri(np.where(shown, false_hits, 0.5))
        return np.where(shown, np.maximum(gap, 0.0), 0.0)

    return _bound(samples, score, alpha=alpha)


def _bound(samples: Sequence[Samples], score: _Score, *, alpha: float) -> LowerBound:
    """Chooses pair, direction and t on the first part; computes both limits, with half of alpha each, on the rest."""
    promises = []
    for pair, one in enumerate(samples):
        trials = len(one.before)
        if one.before.shape != one.after.shape or trials < 8:
            raise InvalidInput(
                f"{trials} and {len(one.after)} trials; allowed: equally many of either vote, at least 8"
            )
        chosen = int(SELECTION_SHARE * trials)
        for direction, likely, unlikely in (("before", one.before, one.after), ("after", -one.after, -one.before)):
            threshold, promise = _select(likely[:chosen], unlikely[:chosen], score, alpha=alpha)
            promises.append((promise, pair, direction, likely[chosen:], unlikely[chosen:], threshold))
    _, pair, direction, likely, unlikely, threshold = max(promises, key=lambda each: each[0])
    hits, false_hits = int((likely >= threshold).sum()), int((unlikely >= threshold).sum())
    value = score(
        lower_limit(np.array(float(hits)), len(likely), alpha=alpha / 2),
        upper_limit(np.array(float(false_hits)), len(likely), alpha=alpha / 2),
    )
    return LowerBound(float(value), pair, direction, hits, false_hits, len(likely))


def _select(
    likely: Float64[ndarray, " trials"], unlikely: Float64[ndarray, " trials"], score: _Score, *, alpha: float
) -> tuple[float, float]:
    """The t of the largest bound that these trials would give, and that bound.

    The limits of so few trials are wide, so rare events that only look good by chance are not chosen.
    """
    first, second, trials = np.sort(likely), np.sort(unlikely), len(likely)
    candidates = _candidates(first, second)
    limits = _lower_limits(trials, alpha / 2)
    expected = score(
        limits[trials - np.searchsorted(first, candidates)], 1.0 - limits[np.searchsorted(second, candidates)]
    )
    best = int(expected.argmax())
    return float(candidates[best]), float(expected[best])


@lru_cache(maxsize=8)
def _lower_limits(trials: int, alpha: float) -> Float64[ndarray, " hits"]:
    """`lower_limit` of 0 to `trials` hits: every statistic of every pair is judged by the same."""
    return lower_limit(np.arange(trials + 1.0), trials, alpha=alpha)


def _candidates(
    first: Float64[ndarray, " trials"], second: Float64[ndarray, " trials"]
) -> Float64[ndarray, " candidates"]:
    """Candidate values of t: all values of the statistic, or some ranks, denser towards the highest."""
    values = np.sort(np.concatenate([first, second]))
    values = values[np.concatenate([[True], values[1:] != values[:-1]])]
    if len(values) <= _CANDIDATES:
        return values
    from_top = np.unique(np.geomspace(1, len(values), _CANDIDATES // 2).astype(int))
    evenly = np.linspace(0, len(values) - 1, _CANDIDATES // 2).astype(int)
    return values[np.unique(np.concatenate([len(values) - from_top, evenly]))]


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
