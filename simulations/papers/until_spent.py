"""Confident-GNMax asked until a budget is spent, as Individualized PATE charges it (Boenisch et al. 2023, section 5).

A query costs each group the worst case of its threshold test, and Theorem 6 of Papernot et al. 2018 where it was
answered; the study ends before the first group's epsilon would pass its budget. That stop depends on private votes:
it reproduces what was printed, and is no way to run a study. Unit: one record. Adjacency: replace-one. View: label.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self  # Any: the values of a JSON object

import numpy as np
from jaxtyping import Bool, Float64, Int64
from numpy import ndarray

from protocols.crypto.randomness import simulation_rng
from protocols.research.published import papernot2018

# The orders among which the published program chooses.
_ORDERS: Final = np.arange(2.0, 51.0)
_AT_ONCE: Final = 500


@dataclass(frozen=True, kw_only=True)
class Terms:
    """sigma and sigma_threshold: standard deviations in votes; threshold: in votes; delta: of every group."""

    sigma: float
    sigma_threshold: float
    threshold: float
    delta: float

    @classmethod
    def of(cls, setting: dict[str, Any]) -> Self:
        """The terms in a paper's figures."""
        return cls(
            sigma=float(setting["sigma"]),
            sigma_threshold=float(setting["sigma1"]),
            threshold=float(setting["T"]),
            delta=float(setting["delta"]),
        )


@dataclass(frozen=True, eq=False)
class Labelled:
    """The answered queries, as rows of the pool in the order of asking, their labels, and how many were asked."""

    queries: Int64[ndarray, " answered"]
    labels: Int64[ndarray, " answered"]
    asked: int


def label_until_spent(
    counts: Float64[ndarray, "queries classes"],
    terms: Terms,
    *,
    epsilon: Float64[ndarray, " groups"],
    sensitivity: Float64[ndarray, " groups"],
    seed: int,
) -> Labelled:
    """Asks the pool's queries in random order until a group's budget is spent, or all were asked.

    counts: weighted votes; epsilon, sensitivity (votes that one record moves): of each group. The order and the noise
    are drawn from the seed. Epsilons are converted as in Mironov 2017. Raises InvalidInput.
    """
    order, shuffled, answered, labels = _drawn(counts, terms, seed=seed)
    asked = 0
    for spent in _spent(shuffled, answered, terms, sensitivity=sensitivity):
        over = (spent > epsilon).any(axis=1)
        if over.any():
            asked += int(over.argmax())
            break
        asked += len(spent)
    rows = np.flatnonzero(answered[:asked])
    return Labelled(order[rows], labels[rows], asked)


def spent_after(
    counts: Float64[ndarray, "queries classes"],
    terms: Terms,
    *,
    labels: Sequence[int],
    sensitivity: Float64[ndarray, " groups"],
    seed: int,
) -> Float64[ndarray, "labels groups"]:
    """The epsilon of each group once so many labels (ascending, at least 1) are out, in the order and with the noise of
    `label_until_spent`. NaN from the number on that the whole pool does not give.
    """
    _, shuffled, answered, _ = _drawn(counts, terms, seed=seed)
    out = np.flatnonzero(answered)
    last = [int(out[number - 1]) for number in labels if number <= len(out)]
    found = np.full((len(labels), len(sensitivity)), np.nan)
    if last:
        until = last[-1] + 1
        spent = np.concatenate(list(_spent(shuffled[:until], answered[:until], terms, sensitivity=sensitivity)))
        found[: len(last)] = spent[last]
    return found


def _drawn(
    counts: Float64[ndarray, "queries classes"], terms: Terms, *, seed: int
) -> tuple[
    Int64[ndarray, " queries"],
    Float64[ndarray, "queries classes"],
    Bool[ndarray, " queries"],
    Int64[ndarray, " queries"],
]:
    """The order of asking, the counts in that order, which of them are answered, and every query's label."""
    rng = simulation_rng(seed, "until spent")
    order = rng.permutation(len(counts))
    shuffled = counts[order]
    tested = shuffled.max(axis=1) + rng.normal(0.0, terms.sigma_threshold, len(counts))
    labels = (shuffled + rng.normal(0.0, terms.sigma, shuffled.shape)).argmax(axis=1)
    return order, shuffled, tested >= terms.threshold, labels


def _spent(
    counts: Float64[ndarray, "queries classes"],
    answered: Bool[ndarray, " queries"],
    terms: Terms,
    *,
    sensitivity: Float64[ndarray, " groups"],
) -> Iterator[Float64[ndarray, "part groups"]]:
    """The epsilon of each group after each query, part by part of the queries."""
    tests = papernot2018.threshold_rdp(_ORDERS, sigma_threshold=terms.sigma_threshold, sensitivity=sensitivity)
    spent = np.zeros_like(tests)
    for start in range(0, len(counts), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        labels = np.stack(
            [
                # Only shown: nothing here charges or stops a study.
                papernot2018.label_rdp(counts[part], _ORDERS, sigma=terms.sigma, sensitivity=votes).for_research()
                for votes in sensitivity.tolist()
            ],
            axis=1,
        )
        sums = spent + np.cumsum(answered[part, None, None] * labels + tests, axis=0)
        yield (sums - np.log(terms.delta) / (_ORDERS - 1)).min(axis=2)
        spent = sums[-1]


def most_labels(
    terms: Terms, *, epsilon: Float64[ndarray, " groups"], sensitivity: Float64[ndarray, " groups"], votes: float
) -> float:
    """The mean number of labels were all votes for one class in every query, so that the labels cost nothing: what the
    threshold tests alone leave. votes: the weight of all."""
    tests = papernot2018.threshold_rdp(_ORDERS, sigma_threshold=terms.sigma_threshold, sensitivity=sensitivity)
    left = epsilon[:, None] + np.log(terms.delta) / (_ORDERS - 1)
    asked = np.floor((left / tests).max(axis=1).min())
    passed = papernot2018.answer_probability(
        np.array([votes]), sigma_threshold=terms.sigma_threshold, threshold=terms.threshold
    )
    # No vote was looked at.
    return float(asked * passed.for_research()[0])


@dataclass(frozen=True, eq=False)
class Weighted:
    """Weights of votes, one for each group, and the sensitivity that is charged to each group."""

    weights: Float64[ndarray, " groups"]
    charged: Float64[ndarray, " groups"]


def proportional_weights(epsilon: Float64[ndarray, " groups"], shares: Float64[ndarray, " groups"]) -> Weighted:
    """Weights in proportion to epsilon, of mean 1 over teachers (Boenisch et al. 2023, section 4.3)."""
    weights = epsilon / (shares @ epsilon)
    return Weighted(weights, weights)


def published_weights(epsilon: Float64[ndarray, " groups"], shares: Float64[ndarray, " groups"]) -> Weighted:
    """What the published program does: weights in proportion to share * epsilon, of mean 1 over teachers, of which the
    smallest is charged to the smallest budget, and so on, whoever votes with it.

    Where shares differ, groups are charged for another group's weight: their budgets are passed. epsilon: ascending.
    """
    weights = shares * epsilon / (shares @ (shares * epsilon))
    return Weighted(weights, np.sort(weights))
