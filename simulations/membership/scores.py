"""Scores of membership from a student's probabilities: larger where a record looks like one that was learned.

loss              Yeom et al. 2018, the adversary with a threshold: a small loss on the true label
modified entropy  Song & Mittal 2021: a small entropy, where confidence in a wrong class counts against; with a
                  threshold for each class
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import numpy as np
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray

from protocols.errors import InvalidInput
from simulations.membership.statistics import best_threshold

Scores = Float64[ndarray, " records"]
Labels = Int64[ndarray, " records"]
Score = Callable[[Float64[ndarray, "records classes"], Labels], Scores]

# The sum of a row's probabilities may differ from 1 by this much, as they are float32.
_SUM_TOLERANCE = 1e-3
# Below any float32 probability; its logarithm is finite.
_TINY = 1e-60
# Cells of [records, classes] that are predicted and scored at a time.
_CELLS = 20_000_000


class Predictor(Protocol):
    """A model to attack: anything that gives the probability of each class, as ReleasedStudent does."""

    def probabilities(self, inputs: Float32[ndarray, "queries ..."]) -> Float32[ndarray, "queries classes"]:
        """The probability of each class; rows sum to 1."""


def loss(probabilities: Float64[ndarray, "records classes"], labels: Labels) -> Scores:
    """log(p_y/(1 - p_y)), y the true label: in the order of the negative cross-entropy loss.

    1 - p_y is summed from the other classes, so that records differ where p_y itself is 1 in floating point (Carlini et
    al. 2022 compute it so).
    """
    right, wrong = _right_and_wrong(probabilities, labels)
    return np.log(right + _TINY) - np.log(wrong + _TINY)


def modified_entropy(probabilities: Float64[ndarray, "records classes"], labels: Labels) -> Scores:
    """-Mentr = (1 - p_y) log p_y + sum_{i != y} p_i log(1 - p_i), at most 0 (Song & Mittal 2021)."""
    right, wrong = _right_and_wrong(probabilities, labels)
    rest = np.maximum(probabilities.sum(axis=1, keepdims=True) - probabilities, 0.0)
    terms = probabilities * np.log(rest + _TINY)
    terms[np.arange(len(labels)), labels] = 0.0
    return np.asarray(wrong * np.log(right + _TINY) + terms.sum(axis=1))


SCORES: Final[dict[str, Score]] = {"loss": loss, "modified_entropy": modified_entropy}


def scores_of(
    predictor: Predictor, inputs: Float32[ndarray, "records ..."], labels: Labels, *, classes: int
) -> dict[str, Scores]:
    """Each of SCORES on these records, some rows at a time. Raises InvalidInput unless the model gives
    probabilities.
    """
    step = max(1, _CELLS // classes)
    found: dict[str, list[Scores]] = {name: [] for name in SCORES}
    for start in range(0, len(labels), step):
        part, of_part = inputs[start : start + step], labels[start : start + step]
        probabilities = _checked(predictor.probabilities(part), rows=len(part), classes=classes)
        for name, score in SCORES.items():
            found[name].append(score(probabilities, of_part))
    return {name: np.concatenate(parts) if parts else np.zeros(0) for name, parts in found.items()}


def class_thresholds(
    members: Scores, member_labels: Labels, others: Scores, other_labels: Labels, *, classes: int
) -> Float64[ndarray, " classes"]:
    """The best threshold for each class (Song & Mittal 2021), learnt from records that the attacker knows.

    A class with fewer than two members or non-members gets the threshold that is best for all classes together.
    """
    thresholds = np.full(classes, best_threshold(members, others))
    for label in np.intersect1d(member_labels, other_labels):
        of_members, of_others = members[member_labels == label], others[other_labels == label]
        if min(len(of_members), len(of_others)) >= 2:
            thresholds[label] = best_threshold(of_members, of_others)
    return thresholds


def _right_and_wrong(probabilities: Float64[ndarray, "records classes"], labels: Labels) -> tuple[Scores, Scores]:
    """The probability of the true label, and of all others together."""
    rows = np.arange(len(labels))
    others = probabilities.copy()
    others[rows, labels] = 0.0
    return probabilities[rows, labels], others.sum(axis=1)


def _checked(
    probabilities: Float32[ndarray, "records classes"], *, rows: int, classes: int
) -> Float64[ndarray, "records classes"]:
    """The probabilities as float64. Raises InvalidInput unless each row is a distribution over the classes."""
    if probabilities.shape != (rows, classes):
        raise InvalidInput(f"probabilities have shape {probabilities.shape}; allowed: {(rows, classes)}")
    exact = probabilities.astype(np.float64)
    if not np.isfinite(exact).all():
        raise InvalidInput("probabilities hold NaN or infinite values; allowed: in [0, 1]")
    sums = exact.sum(axis=1)
    if (exact < 0).any() or (np.abs(sums - 1) > _SUM_TOLERANCE).any():
        worst = float(sums[np.argmax(np.abs(sums - 1))])
        raise InvalidInput(f"probabilities are negative or sum to {worst:g} in a row; allowed: >= 0, with sum 1")
    return exact
