"""A student trained on a study's labels, with its figures."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.students.choice import Choice
from coordinator.students.student import Student
from protocols.features.feature_map import FeatureMap


@dataclass(frozen=True, eq=False)
class Trained:
    """A student and what it learned from. agreement: share of its labels that it predicts; choice: how its kind was
    chosen, None if it was named; features: what it sees of a record, None for the record itself."""

    student: Student
    kind: str
    seed: int
    device: str
    labels: int
    reinforced: int
    unlabelled: int
    agreement: float
    choice: Choice | None = None
    features: FeatureMap | None = None
