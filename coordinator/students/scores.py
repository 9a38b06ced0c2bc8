"""The scores of graded votes as a student: B phi(x) + 1/classes, of which nothing but the released sum is private.

It learns no labels: coefficients and features are those that made the pool's soft labels (protocols/sums/fit.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray

from coordinator.students import SCORES
from coordinator.students.student import Student
from protocols.errors import InvalidInput
from protocols.sums.blocks import NORM_STEPS, Blocks
from protocols.sums.fit import Scores, as_probabilities
from runtime.models import check_queries


@dataclass(frozen=True, eq=False)
class ScoresStudent(Student):
    """Scores that are linear in phi. It sees what `blocks.features` gives of a record.

    coefficients: B, of phi of length 1.
    """

    blocks: Blocks
    coefficients: Float64[ndarray, "rows classes"] = field(repr=False)

    @classmethod
    def of(cls, blocks: Blocks, scores: Scores | None) -> ScoresStudent:
        """The student of what sums released. Raises InvalidInput where they have no scores: votes in cells alone."""
        if scores is None:
            raise InvalidInput(f"student is {SCORES!r}; allowed where records vote with graded features: another kind")
        return cls(blocks, scores.coefficients)

    def predict(self, inputs: Float32[ndarray, "queries ..."]) -> Int64[ndarray, " queries"]:
        """The class of the largest score. Raises InvalidInput for features of another shape or not finite."""
        return np.asarray(self._scores(inputs).argmax(axis=1), np.int64)

    def predict_proba(self, inputs: Float32[ndarray, "queries ..."]) -> Float32[ndarray, "queries classes"]:
        """The softmax of scores times classes. Raises InvalidInput as predict does."""
        return as_probabilities(self._scores(inputs)).astype(np.float32)

    def _scores(self, inputs: Float32[ndarray, "queries features"]) -> Float64[ndarray, "queries classes"]:
        check_queries(inputs, (self.blocks.features.width,))
        phi = self.blocks.phi(inputs) / NORM_STEPS
        return phi @ self.coefficients + 1 / self.coefficients.shape[1]

    @property
    def exporter(self) -> str:
        return "coordinator.release.export_graphs:write_scores"
