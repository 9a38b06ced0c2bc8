"""A student of several findings: one of two classes for each, and from which probability on it names a finding.

A threshold is the mean of the student's probabilities of the pool, so it is public: the expected sum of sensitivity and
specificity is largest there, if the probabilities hold (Youden 1950). Rare findings are named, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray

from coordinator.students.student import Student
from protocols.study.findings import PRESENT

# A finding that a student always, or never, sees is named always, or never.
_LEAST, _MOST = 0.001, 0.999
_DIGITS = 4

_Chances = Float32[ndarray, "pool findings"] | Float64[ndarray, "pool findings"]


def thresholds_of(chances: _Chances) -> tuple[float, ...]:
    """From which probability on each finding is named, by the probabilities of a pool."""
    return tuple(np.round(np.clip(chances.mean(axis=0, dtype=np.float64), _LEAST, _MOST), _DIGITS).tolist())


@dataclass(frozen=True, eq=False)
class FindingsStudent(Student):
    """names: of the findings; each: their students, of one kind; thresholds: of each probability."""

    names: tuple[str, ...]
    each: tuple[Student, ...] = field(repr=False)
    thresholds: tuple[float, ...]

    @classmethod
    def of(cls, names: tuple[str, ...], each: Sequence[Student], pool: Float32[ndarray, "pool ..."]) -> FindingsStudent:
        """pool: as the students see it."""
        return cls(names, tuple(each), thresholds_of(_chances(each, pool)))

    def predict(self, inputs: Float32[ndarray, "queries ..."]) -> Int64[ndarray, "queries findings"]:
        """1 for each finding that is named, else 0. Raises InvalidInput as its students do."""
        return (self.predict_proba(inputs) >= np.array(self.thresholds)).astype(np.int64)

    def predict_proba(self, inputs: Float32[ndarray, "queries ..."]) -> Float32[ndarray, "queries findings"]:
        """The probability of each finding. Raises InvalidInput as its students do."""
        return _chances(self.each, inputs)

    @property
    def exporter(self) -> str:
        return "coordinator.release.export_graphs:write_findings"


def _chances(each: Sequence[Student], inputs: Float32[ndarray, "queries ..."]) -> Float32[ndarray, "queries findings"]:
    return np.stack([one.predict_proba(inputs)[:, PRESENT] for one in each], axis=1)
