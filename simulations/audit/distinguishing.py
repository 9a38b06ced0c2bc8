"""A lower bound on epsilon from two samples of a statistic, one under each of two neighbouring votes.

A release is (epsilon, delta)-DP only if for every set S of what may be seen P(S) <= e^epsilon Q(S) + delta (Kairouz,
Oh & Viswanath 2015, Thm 2.1 says the same of the two error rates of a test). Here S is "the statistic reaches t", so
epsilon >= ln((P(S) - delta)/Q(S)); both probabilities are replaced by their Clopper-Pearson limits (as in Jagielski,
Ullman & Oprea 2020). t, the direction and the pair of votes are chosen on the first part of the trials, and the bound
is computed on the rest alone, which the choice has not seen. The reverse direction exchanges the votes and takes "the
statistic stays at or below t".

A claim of mu-Gaussian DP says more: ndtri(P(S)) - ndtri(Q(S)) <= mu for every S (Dong, Roth & Su 2022, Def. 2.6). Its
lower bound on mu is found in the same way; it refutes that claim with far fewer rare events (Nasr et al. 2023).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from jaxtyping import Float64
from numpy import ndarray

from protocols.errors import InvalidInput
from simulations.audit.clopper_pearson import lower_limit, upper_limit

# The share of the trials that is used to choose t.
SELECTION_SHARE = 0.3
# At most this many values of t are tried.
_CANDIDATES = 1500

Score = Callable[[Float64[ndarray, "..."], Float64[ndarray, "..."]], Float64[ndarray, "..."]]


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


def _bound(samples: Sequence[Samples], score: Score, *, alpha: float) -> LowerBound:
    """Chooses pair, direction and t on the first part; computes both limits, with half of alpha each, on the rest."""
    promises = []
    for pair, one in enumerate(samples):
        trials = len(one.before)
        if one.before.shape != one.after.shape or trials < 8:
            raise InvalidInput(
                f"{trials} and {len(one.after)} trials; allowed: equally many of either vote, at least 8"
            )
        chosen = int(SELECTION_SHARE * trials)
        for direction, likely, unlikely in (
            ("before", one.before, one.after),
            ("after", -one.after, -one.before),
        ):
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
    likely: Float64[ndarray, " trials"], unlikely: Float64[ndarray, " trials"], score: Score, *, alpha: float
) -> tuple[float, float]:
    """The t of the largest bound that these trials would give, and that bound.

    The limits of so few trials are wide, so rare events that only look good by chance are not chosen.
    """
    first, second, trials = np.sort(likely), np.sort(unlikely), len(likely)
    candidates = _candidates(first, second)
    expected = score(
        lower_limit(np.asarray(trials - np.searchsorted(first, candidates), dtype=float), trials, alpha=alpha / 2),
        upper_limit(np.asarray(trials - np.searchsorted(second, candidates), dtype=float), trials, alpha=alpha / 2),
    )
    best = int(expected.argmax())
    return float(candidates[best]), float(expected[best])


def _candidates(
    first: Float64[ndarray, " trials"], second: Float64[ndarray, " trials"]
) -> Float64[ndarray, " candidates"]:
    """Candidate values of t: all values of the statistic, or some ranks, denser towards the highest."""
    values = np.unique(np.concatenate([first, second]))
    if len(values) <= _CANDIDATES:
        return values
    from_top = np.unique(np.geomspace(1, len(values), _CANDIDATES // 2).astype(int))
    evenly = np.linspace(0, len(values) - 1, _CANDIDATES // 2).astype(int)
    return values[np.unique(np.concatenate([len(values) - from_top, evenly]))]
