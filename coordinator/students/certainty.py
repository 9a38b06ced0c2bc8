"""How sure a student is: its probabilities to a power that the released labels name. Post-processing: it is free.

A student of few labels says too little or too much: it is right more often, or less, than its probabilities. Powers are
compared by how likely the labels, each held out in one of FOLDS folds, are with them. Those within a factor e of the
likeliest cannot be told from it, and of these the one nearest to 1 is taken: few labels say little, and move little. Of
several classes a share of the labels, fitted beside the power, is another class at random, and at least so many as the
study's noise makes wrong; of two, noise looks like records that are hard to tell, and labels are taken as they are.
Soft labels say themselves how sure they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
_WRONG: Final = np.linspace(0.001, 0.981, 50)  # shares of labels that are any class at random
# By how much the logarithm of the likelihood may be below the largest.
_WITHIN: Final = 1.0


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
        return "coordinator.release.export_graphs:write_raised" if self.student.exporter else ""


def calibrated(kind: StudentKind, student: Student, released: Released, *, noise: float) -> Student:
    """The student of this kind, which learned these labels, as sure as they say; itself for fewer than _FEWEST labels.

    noise: the least share of the labels that is wrong, in [0, 1) (share_of_noise). It trains up to FOLDS more on other
    labels of the same.
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
    return Raised(student, _power(np.concatenate(said), np.concatenate(own), noise))


def _power(said: Float64[ndarray, "held classes"], own: Float32[ndarray, "held classes"], noise: float) -> float:
    """The power of what was said of labels that were held out; own: their weights."""
    classes = own.shape[1]
    hard = bool((np.count_nonzero(own, axis=1) == 1).all())
    # Of what is any class at random, one in `classes` is right.
    least = min(noise * classes / (classes - 1), _WRONG[-1])
    shares = _WRONG[_WRONG >= least] if hard and classes > 2 else _WRONG[:1]
    likely = np.array([
        max(float((own * np.log((1 - wrong) * raised + wrong / classes)).sum()) for wrong in shares.tolist())
        for raised in (_raised(said, power) for power in _POWERS.tolist())
    ])  # fmt: skip
    near = np.flatnonzero(likely >= likely.max() - _WITHIN)
    return float(np.clip(1.0, _POWERS[near[0]], _POWERS[near[-1]]))


def _raised(
    chances: Float32[ndarray, "inputs classes"] | Float64[ndarray, "inputs classes"], power: float
) -> Float64[ndarray, "inputs classes"]:
    """The chances to this power, normalised: their order stays."""
    raised = (chances.astype(np.float64) / chances.max(axis=1, keepdims=True)) ** power
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))
