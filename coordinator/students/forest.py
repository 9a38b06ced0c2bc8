"""A random forest as a student."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray
from sklearn.ensemble import RandomForestClassifier

from coordinator.students.student import Student, StudentKind
from coordinator.students.targets import weighted_rows
from coordinator.students.validation import check_queries, check_released
from protocols.errors import InvalidInput

FOREST_TREES: Final = 200


@dataclass(frozen=True, eq=False)
class ForestStudent(Student):
    """A fitted forest over flattened inputs."""

    model: Any = field(repr=False)  # a fitted RandomForestClassifier: scikit-learn has no types
    input_shape: tuple[int, ...]
    classes: int

    def predict(self, inputs: Float32[ndarray, "queries ..."]) -> Int64[ndarray, " queries"]:
        """The class of each query. Raises InvalidInput for queries of another shape or not finite."""
        return np.asarray(self.predict_proba(inputs).argmax(axis=1), np.int64)

    def predict_proba(self, inputs: Float32[ndarray, "queries ..."]) -> Float32[ndarray, "queries classes"]:
        """The mean over trees of the class shares in the leaf. Raises InvalidInput as predict does."""
        check_queries(inputs, self.input_shape)
        probabilities = np.zeros((len(inputs), self.classes), np.float32)
        if len(inputs):
            probabilities[:, self.model.classes_] = self.model.predict_proba(inputs.reshape(len(inputs), -1))
        return probabilities

    @property
    def exporter(self) -> str:
        return "coordinator.release.export_forest:write"


@dataclass(frozen=True)
class ForestKind(StudentKind):
    """Trains a random forest on the labels alone."""

    def fit(
        self,
        inputs: Float32[ndarray, "answered ..."],
        targets: Float32[ndarray, "answered classes"],
        *,
        unlabelled: Float32[ndarray, "rest ..."],
        classes: int,
        seed: int,
    ) -> Student:
        """Trains on the targets, see StudentKind.fit; `unlabelled` is checked and not used."""
        check_released(inputs, targets, unlabelled, classes, seed)
        # scikit-learn takes 32 bits; a seed may be any non-negative integer.
        random_state = int(np.random.SeedSequence(seed).generate_state(1)[0])
        model = RandomForestClassifier(FOREST_TREES, random_state=random_state, n_jobs=1)
        rows, labels, weights = weighted_rows(inputs, targets)
        # With weights, scikit-learn draws the bootstrap another way; equal ones make hard labels a forest as ever.
        equal = bool((weights == weights[0]).all())
        model.fit(rows, labels, sample_weight=None if equal else weights)
        return ForestStudent(model, inputs.shape[1:], classes)


def random_forest(*, device: str) -> ForestKind:
    """A random forest of FOREST_TREES trees on flattened inputs."""
    if device not in ("auto", "cpu"):
        raise InvalidInput(f"device is {device!r}; allowed for student 'random_forest': auto, cpu")
    return ForestKind()
