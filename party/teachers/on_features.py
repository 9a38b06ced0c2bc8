"""Teachers of any kind that learn from features of records: what a public feature map makes of each record.

The map is a function of one record and of public data, so a record still touches one teacher only. Queries come as
records, and the teachers map them as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from jaxtyping import Float32, Int64
from numpy import ndarray

from party.teachers.teacher import Teacher, TeacherKind
from party.teachers.validation import Shard, check_queries, check_shards
from protocols.errors import InvalidInput
from protocols.features.feature_map import FeatureMap


@dataclass(eq=False)
class _Remembered:
    """A feature map that keeps the features of the array that it was given last: a batch goes to every teacher."""

    features: FeatureMap
    _last: Float32[ndarray, "records ..."] | None = field(default=None, repr=False)
    _found: Float32[ndarray, "records features"] | None = field(default=None, repr=False)

    def __call__(self, records: Float32[ndarray, "records ..."]) -> Float32[ndarray, "records features"]:
        found = self._found if records is self._last else None
        if found is None:
            found = self.features(records)
            self._last, self._found = records, found
        return found


@dataclass(frozen=True, eq=False)
class FeatureTeacher(Teacher):
    """What the teacher says of features says this one of records."""

    teacher: Teacher
    features: _Remembered = field(repr=False)

    def predict(self, inputs: Float32[ndarray, "queries ..."]) -> Int64[ndarray, " queries"]:
        """The class of each query. Raises InvalidInput for queries of another shape or not finite."""
        check_queries(inputs, self.features.features.input_shape)
        return self.teacher.predict(self.features(inputs))

    def save(self, path: Path) -> None:
        """Writes the teacher of features alone. Raises StorageFailed."""
        self.teacher.save(path)


@dataclass(frozen=True, eq=False)
class FeatureKind(TeacherKind):
    """Trains and loads teachers of `kind` on features. Make it with `on_features`."""

    kind: TeacherKind
    features: _Remembered = field(repr=False)

    @property
    def uses_pool(self) -> bool:
        return self.kind.uses_pool

    def with_pool(self, pool: Float32[ndarray, "pool ..."]) -> FeatureKind:
        """The pool as records. Raises InvalidInput for other records than the features are made of."""
        return FeatureKind(self.kind.with_pool(self.features.features(pool)), self.features)

    def fit(self, shards: list[Shard], *, classes: int, seeds: list[int]) -> list[Teacher]:
        """Trains one teacher per shard, see TeacherKind.fit."""
        check_shards(shards, classes, seeds)
        mapped = [(self.features.features(inputs), labels) for inputs, labels in shards]
        return [FeatureTeacher(each, self.features) for each in self.kind.fit(mapped, classes=classes, seeds=seeds)]

    def load(self, path: Path) -> Teacher:
        """Reads what FeatureTeacher.save wrote. Raises DataCorrupt."""
        return FeatureTeacher(self.kind.load(path), self.features)


def on_features(kind: TeacherKind, features: FeatureMap) -> FeatureKind:
    """The kind on features of records. Raises InvalidInput for one that needs images."""
    if kind.needs_images:
        raise InvalidInput("teachers.kind needs images; allowed with teachers.features: one for tables, as mlp")
    return FeatureKind(kind, _Remembered(features))
