"""How sure a student is: its probabilities to a power that the released labels name. Post-processing: it is free.

A student of few labels says too little or too much: it is right more often, or less, than its probabilities. The power
is the one with which it is likeliest that the labels, each held out in one of FOLDS folds, are as released. Of several
classes a share of them, fitted beside it, is another class at random, as released labels are noisy; of two, noise looks
like records that are hard to tell, and labels are taken as they are. Soft labels say themselves how sure they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import log
from typing import Final

import numpy as np
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray

from coordinator.students.choice import FOLDS, folds
from coordinator.students.student import Released, Student, StudentKind, normalised, seen_classes

_FEWEST: Final = 30  # labels
# Folds are held out until so many labels are: two parameters need no more, and each fold is a student to train.
_ENOUGH: Final = 500
_POWERS: Final = np.geomspace(0.25, 16, 49)
_WRONG: Final = np.linspace(0.001, 0.601, 25)  # shares of labels that are another class
# A normal prior of the power's logarithm, as few labels say little of it: 1 / (2 x 0.5^2).
_PRIOR: Final = 2.0


@dataclass(frozen=True, eq=False)
class Raised(Student):
    """A student whose probabilities are raised to a power and normalised; its predictions are those of `student`."""

    student: Student = field(repr=False)
    power: float

    def predict(self, inputs: Float32[ndarray, "queries ..."]) -> Int64[ndarray, " queries"]:
        """As the student does. Raises InvalidInput as it does."""
        return self.student.predict(inputs)

    def predict_proba(self, inputs: Float32[ndarray, "queries ..."]) -> Float32[ndarray, "queries classes"]:
        """The student's to the power. Raises InvalidInput as the student does."""
        return _raised(self.student.predict_proba(inputs), self.power).astype(np.float32)

    @property
    def exporter(self) -> str:
        return "coordinator.release.export_raised:write_raised" if self.student.exporter else ""


def calibrated(kind: StudentKind, student: Student, released: Released) -> Student:
    """The student of this kind, which learned these labels, as sure as they say; itself for fewer than _FEWEST labels.

    It trains up to FOLDS more on other labels of the same.
    """
    targets = kind.weighed(released.targets)
    if len(targets) < _FEWEST or len(seen_classes(targets)) == 1:
        return student
    fold = folds(targets.argmax(axis=1), released.seed)
    said, own = [], []
    for each in range(FOLDS):
        held = fold == each
        other = kind.fit(
            released.inputs[~held],
            released.targets[~held],
            unlabelled=np.concatenate([released.unlabelled, released.inputs[held]]),
            classes=released.classes,
            seed=released.seed,
        )
        said.append(other.predict_proba(released.inputs[held]).astype(np.float64))
        own.append(normalised(targets)[held])
        if sum(map(len, own)) >= _ENOUGH:
            break
    return Raised(student, _power(np.concatenate(said), np.concatenate(own)))


def _power(said: Float64[ndarray, "held classes"], own: Float32[ndarray, "held classes"]) -> float:
    """The power of what was said of labels that were held out; own: their weights."""
    classes = own.shape[1]
    hard = bool((np.count_nonzero(own, axis=1) == 1).all())
    losses = {
        (power, wrong): _PRIOR * log(power) ** 2 - float((own * np.log((1 - wrong) * raised + wrong / classes)).sum())
        for power, raised in [(each, _raised(said, each)) for each in _POWERS.tolist()]
        for wrong in (_WRONG if hard and classes > 2 else _WRONG[:1]).tolist()
    }
    return min(losses, key=lambda each: losses[each])[0]


def _raised(
    chances: Float32[ndarray, "inputs classes"] | Float64[ndarray, "inputs classes"], power: float
) -> Float64[ndarray, "inputs classes"]:
    """The chances to this power, normalised: their order stays."""
    raised = (chances.astype(np.float64) / chances.max(axis=1, keepdims=True)) ** power
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))
