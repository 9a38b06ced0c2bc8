"""Students of any kind for places where classes are as often as nobody knows: KIND+equal.

Each class counts the same in training, whatever its share of the labels. A student then says which class fits a record
better than other records, as if all classes were equally frequent (of a linear model the logits move by the logarithm
of the shares: King & Zeng 2001, "Logistic regression in rare events data", section 4). It is right for more records of
rare classes, and for fewer of all records where classes are as frequent as among the labels. The shares are those of
the released labels, so this costs no budget.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32
from numpy import ndarray

from coordinator.students.student import Student, StudentKind
from coordinator.students.validation import check_released


@dataclass(frozen=True)
class EqualClasses(StudentKind):
    """Trains `kind` on targets in which every class that occurs has the same weight."""

    kind: StudentKind

    @property
    def needs_images(self) -> bool:
        return self.kind.needs_images

    def fit(
        self,
        inputs: Float32[ndarray, "answered ..."],
        targets: Float32[ndarray, "answered classes"],
        *,
        unlabelled: Float32[ndarray, "rest ..."],
        classes: int,
        seed: int,
    ) -> Student:
        """As the kind does, of weights that are divided by the share of their class."""
        check_released(inputs, targets, unlabelled, classes, seed)
        return self.kind.fit(inputs, equal_weights(targets), unlabelled=unlabelled, classes=classes, seed=seed)


def equal_weights(targets: Float32[ndarray, "inputs classes"]) -> Float32[ndarray, "inputs classes"]:
    """The targets with the weight of each class divided by its share of all, 0 for a class without any."""
    shares = targets.sum(axis=0, dtype=np.float64) / targets.sum(dtype=np.float64)
    return (targets / np.where(shares > 0, shares, 1.0)).astype(np.float32)
