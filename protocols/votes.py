"""Votes: class ids of teachers, added up to weighted histograms.

Array names everywhere: `votes` i64[parties, teachers, queries] of class ids or ABSTAIN, `weights` f64[parties]
(of each vote of that party), `counts` f64[queries, classes] (the weighted histogram, in votes), `labels`
i64[queries] of class ids, ABSTAIN (asked, not answered) or NOT_ASKED.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64, Integer
from numpy import ndarray

from protocols.errors import InvalidInput

ABSTAIN = -1
NOT_ASKED = -2

# How alike queries are in difficulty: Beta(k m, k (1 - m)) for votes that are right with a mean of m. Fitted
# on true labels (fitted_concentration), records spread evenly over parties: 0.76 to 1.2 on three ensembles of two
# classes, 3.3 to 7.7 on three of ten classes; docs/how-to/choose-noise.md. Low is pessimistic.
CONCENTRATION_OF_TWO, CONCENTRATION_OF_MORE = 0.8, 4.0

# Weights are whole multiples of 1/LATTICE votes: sums of them are exact in float64 up to 2**33 votes, so a count
# does not depend on the order of the parties, and no rounding adds to anyone's sensitivity.
LATTICE = 2**20

# Votes that one step of count_votes holds as an index array: 8 bytes each.
_CHUNK = 4_000_000


def default_concentration(classes: int) -> float:
    """The assumed concentration of an ensemble of which only the accuracy is known."""
    return CONCENTRATION_OF_TWO if classes == 2 else CONCENTRATION_OF_MORE


def check_votes(votes: Integer[ndarray, "..."], *, classes: int) -> None:
    """Raises InvalidInput unless every vote is a class id in [0, classes) or ABSTAIN."""
    if votes.size == 0:
        raise InvalidInput(f"votes of shape {votes.shape} hold no vote; allowed: at least one party and one query")
    low, high = int(votes.min()), int(votes.max())
    if low < ABSTAIN or high >= classes:
        raise InvalidInput(
            f"votes span [{low}, {high}]; allowed: class ids in [0, {classes - 1}] and {ABSTAIN} (abstain)"
        )


def count_votes(
    votes: Integer[ndarray, "parties teachers queries"], weights: Float64[ndarray, " parties"], *, classes: int
) -> Float64[ndarray, "queries classes"]:
    """The weighted histogram of each query: counts[q, c] = sum of weights of the votes of q for c.

    Abstentions count nowhere; parties of weight 0 are skipped. Memory is bounded by chunks of parties.
    """
    _, teachers, queries = votes.shape
    counts = np.zeros(queries * (classes + 1))
    offsets = np.arange(queries) * (classes + 1)
    present = np.flatnonzero(weights)
    step = max(1, _CHUNK // max(1, teachers * queries))
    for start in range(0, len(present), step):
        chosen = present[start : start + step]
        index = votes[chosen].astype(np.int64)
        # Class `classes` is the bin of abstentions, dropped below.
        index = np.where(index == ABSTAIN, classes, index) + offsets
        each = np.repeat(weights[chosen], teachers * queries)
        counts += np.bincount(index.ravel(), weights=each, minlength=len(counts))
    return counts.reshape(queries, classes + 1)[:, :classes]


def plurality(counts: Float64[ndarray, "queries classes"]) -> Integer[ndarray, " queries"]:
    """The class with most votes; ties go to the smaller class id."""
    return counts.argmax(axis=1)
