"""Stand-in tasks: made-up labels of the public pool and of hospitals' records, on which a plan rehearses a study.

Each pool record has a probability of each class, as predictable as the best model is assumed to be: for a table by a
multinomial logistic model with random coefficients of the standardised features; for images by its cluster of the pool.
The hospitals' records are drawn from the pool, and their labels from those probabilities; hospitals are alike, or each
sees each class more or less often.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import scipy.special
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray
from sklearn.cluster import KMeans

from protocols.errors import InvalidInput

# A class is at least so frequent where a count finds none of it.
LEAST_SHARE = 1e-3
# How much hospitals differ, where they do: the standard deviation of their own log-odds of each class.
_OWN_LOG_ODDS = 1.0
# Below any probability that matters; its logarithm is finite.
_TINY = 1e-30
_BISECTIONS = 50
_LARGEST_SCALE = 1e4


@dataclass(frozen=True, eq=False)
class StandIn:
    """One made-up task. chances: of each class, for each pool record; rows, labels: of each hospital's records."""

    chances: Float64[ndarray, "pool classes"] = field(repr=False)
    rows: tuple[Int64[ndarray, " records"], ...] = field(repr=False)
    labels: tuple[Int64[ndarray, " records"], ...] = field(repr=False)

    @property
    def best(self) -> float:
        """The accuracy of the best possible model."""
        return float(self.chances.max(axis=1).mean())

    @property
    def guessing(self) -> float:
        """The accuracy of the most frequent class."""
        return float(self.chances.mean(axis=0).max())

    def accuracy(self, predicted: Int64[ndarray, " pool"]) -> float:
        """The expected accuracy of these labels of the pool."""
        return float(self.chances[np.arange(len(predicted)), predicted].mean())


def stand_in(
    features: Float32[ndarray, "pool features"],
    *,
    classes: int,
    accuracy: float,
    sizes: Int64[ndarray, " parties"],
    images: bool,
    differ: bool,
    rng: np.random.Generator,
    frequent: Float64[ndarray, " classes"] | None = None,
    shares: Float64[ndarray, "parties classes"] | None = None,
) -> StandIn:
    """A made-up task over the pool.

    features: by which pool records are compared; accuracy: of the best possible model if classes are about equally
    frequent, above 1/classes and at most 1; sizes: records of each hospital; differ: whether each sees some classes
    more often than the others do; frequent: the share of each class, None: equal but for chance; shares: those at each
    hospital, where a count told them. Raises InvalidInput.
    """
    if not 1 / classes < accuracy <= 1:
        raise InvalidInput(f"accuracy is {accuracy:g}; allowed: above {1 / classes:g} (guessing), at most 1")
    flat = features.reshape(len(features), -1).astype(np.float64)
    if frequent is not None:
        frequent = np.maximum(frequent, LEAST_SHARE)
    chances = (_groups if images else _logistic)(flat, classes, accuracy, frequent, rng)
    rows = tuple(rng.integers(len(flat), size=int(size)) for size in sizes)
    own = rng.normal(size=(len(sizes), classes)) * (_OWN_LOG_ODDS if differ else 0.0)
    if shares is not None:
        own = np.log(np.maximum(shares, LEAST_SHARE)) - np.log(np.maximum(chances.mean(axis=0), LEAST_SHARE))
    labels = tuple(
        _drawn(scipy.special.softmax(np.log(np.maximum(chances[each], _TINY)) + shift, axis=1), rng)
        for each, shift in zip(rows, own, strict=True)
    )
    return StandIn(chances, rows, labels)


def _logistic(
    features: Float64[ndarray, "pool features"],
    classes: int,
    accuracy: float,
    frequent: Float64[ndarray, " classes"] | None,
    rng: np.random.Generator,
) -> Float64[ndarray, "pool classes"]:
    spread = features.std(axis=0)
    used = spread > 0
    standard = (features[:, used] - features[:, used].mean(axis=0)) / spread[used]
    # Coefficients along what the columns have in common, as those of real labels are: not along any one alone.
    scores = standard @ (standard.T @ (standard @ (standard.T @ rng.normal(size=(len(standard), classes)))))
    scores /= scores.std()
    low, high = 0.0, _LARGEST_SCALE
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        found = scipy.special.softmax(middle * scores, axis=1).max(axis=1).mean()
        low, high = (middle, high) if found < accuracy else (low, middle)
    softmax = partial(scipy.special.softmax, axis=1)
    return np.asarray(softmax(_as_frequent(high * scores, frequent, softmax)))


def _groups(
    features: Float64[ndarray, "pool features"],
    classes: int,
    accuracy: float,
    frequent: Float64[ndarray, " classes"] | None,
    rng: np.random.Generator,
) -> Float64[ndarray, "pool classes"]:
    # One a class: one hospital's own model of digits, garments, pneumoniamnist and glyphs has .91, .81, .83, .84, and
    # of stand-ins with one group .86, .93, .96, .88, with three .62, .68, .85, .63.
    groups = min(classes, len(features))
    clusters = KMeans(groups, n_init=1, random_state=int(rng.integers(2**31))).fit(features)
    near = -clusters.transform(features)[:, np.argsort(rng.permutation(groups))]
    nearest = _as_frequent(near, frequent, lambda each: np.eye(groups)[each.argmax(axis=1)]).argmax(axis=1)
    chances = np.full((len(features), classes), (1 - accuracy) / (classes - 1))
    chances[np.arange(len(features)), nearest] = accuracy
    return chances


def _as_frequent(
    scores: Float64[ndarray, "pool classes"],
    frequent: Float64[ndarray, " classes"] | None,
    chances: Callable[[Float64[ndarray, "pool classes"]], Float64[ndarray, "pool classes"]],
) -> Float64[ndarray, "pool classes"]:
    """Scores and a constant of each class, with which classes are as frequent; None: as they are."""
    for step in () if frequent is None else scores.std() * np.geomspace(4, 1e-3, _BISECTIONS):
        scores = scores - step * (chances(scores).mean(axis=0) - frequent)
    return scores


def _drawn(chances: Float64[ndarray, "records classes"], rng: np.random.Generator) -> Int64[ndarray, " records"]:
    below = np.cumsum(chances, axis=1)
    below[:, -1] = 1.0
    return (rng.random((len(chances), 1)) > below).sum(axis=1)
