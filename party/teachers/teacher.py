"""A teacher: a model trained on one shard of private data that predicts a class for a query.

Teachers of any kind can learn from features of records. The feature map is a function of one record and of public data,
so a record still touches one teacher only. Queries come as records, and the teachers map them as well.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from protocols.errors import InvalidInput
from protocols.features.feature_map import FeatureMap
from protocols.votes import ABSTAIN
from runtime.models import check_queries

if TYPE_CHECKING:
    from protocols.levels.hidden_queries.inference.model import Dense, Model

Shard = tuple[Float32[ndarray, "records ..."], Int64[ndarray, " records"]]


def check_shards(shards: list[Shard], classes: int, seeds: list[int]) -> None:
    """Raises InvalidInput unless every shard can train a teacher (see TeacherKind.fit)."""
    if classes < 2:
        raise InvalidInput(f"classes is {classes}; allowed: at least 2")
    if len(seeds) != len(shards):
        raise InvalidInput(f"{len(seeds)} seeds for {len(shards)} shards; allowed: one seed per shard")
    for number, ((inputs, labels), seed) in enumerate(zip(shards, seeds, strict=True)):
        if seed < 0:
            raise InvalidInput(f"the seed of shard {number} is negative; allowed: at least 0")
        if len(inputs) == 0:
            raise InvalidInput(f"shard {number} has 0 records; allowed: at least 1")
        if len(inputs) != len(labels):
            raise InvalidInput(
                f"shard {number} has {len(inputs)} inputs and {len(labels)} labels; allowed: equally many"
            )
        if inputs.ndim < 2 or inputs[0].size == 0:
            raise InvalidInput(f"shard {number} has shape {inputs.shape}; allowed: [records, features, ...]")
        if labels.min() < 0 or labels.max() >= classes:
            raise InvalidInput(
                f"labels of shard {number} span [{labels.min()}, {labels.max()}]; allowed: [0, {classes - 1}]"
            )
        if not np.isfinite(inputs).all():
            raise InvalidInput(f"shard {number} holds NaN or infinite features; allowed: finite numbers")


# The kinds of teachers that can answer hidden queries.
PRIVATE = ("logistic_regression", "mlp", "small_cnn")


class Teacher(ABC):
    """A trained teacher. Every kind must train on any shard of at least one row, even with fewer rows than classes or
    with classes absent; it then predicts among the classes that it has seen."""

    @abstractmethod
    def predict(self, inputs: Float32[ndarray, "queries ..."]) -> Int64[ndarray, " queries"]:
        """The class of each query, in [0, classes)."""

    def private_model(self, *, classes: int) -> Model:
        """The teacher as layers that answer hidden queries, with one score per class. Raises InvalidInput.

        Overridden by the kinds in PRIVATE; the others cannot be computed on shares.
        """
        raise InvalidInput(
            f"a {type(self).__name__} cannot answer hidden queries; allowed: teachers.kind {', '.join(PRIVATE)}"
        )

    @abstractmethod
    def save(self, path: Path) -> None:
        """Writes the teacher to a file without pickle (safetensors, skops or npz)."""


class SilentTeacher(Teacher):
    """A teacher without a record that knows the finding it would tell: it abstains."""

    def predict(self, inputs: Float32[ndarray, "queries ..."]) -> Int64[ndarray, " queries"]:
        """ABSTAIN for each query."""
        return np.full(len(inputs), ABSTAIN)

    def save(self, path: Path) -> None:
        """Writes nothing: its folder says that it is silent."""


class TeacherKind(ABC):
    """A way to train teachers; one row of the table party.teachers.TEACHERS."""

    @property
    def needs_images(self) -> bool:
        """Whether inputs must be images [height, width]."""
        return False

    @property
    def stacks(self) -> bool:
        """Whether shards are trained together (stacked on a GPU), so that `fit` is best given many at once."""
        return False

    @property
    def uses_pool(self) -> bool:
        """Whether teachers learn from the study's public pool, too, so that `fit` needs `with_pool` first."""
        return False

    def with_pool(self, pool: Float32[ndarray, "pool ..."]) -> TeacherKind:
        """The same kind where this public pool is known. Only kinds that use it differ."""
        return self

    @abstractmethod
    def fit(
        self,
        shards: list[tuple[Float32[ndarray, "records ..."], Int64[ndarray, " records"]]],
        *,
        classes: int,
        seeds: list[int],
    ) -> list[Teacher]:
        """Trains one teacher per shard. The result depends only on that teacher's (shard, classes, seed) and the pool,
        never on which shards are trained together, so that engines that group parties differently agree.

        Raises InvalidInput on an empty shard, labels outside [0, classes), NaN or infinite features.
        """

    @abstractmethod
    def load(self, path: Path) -> Teacher:
        """Reads what save wrote. Raises DataCorrupt."""


def among_seen(scores: Dense, seen: Int64[ndarray, " seen"], *, classes: int) -> Dense:
    """Scores for all classes from those that a teacher has seen: the others never have the largest score.

    Each of the others has the weights of the first seen class, and a bias smaller by one.
    """
    weights = np.repeat(scores.weights[:1], classes, axis=0)
    bias = np.repeat(scores.bias[:1] - 1, classes)
    weights[seen], bias[seen] = scores.weights, scores.bias
    return replace(scores, weights=weights, bias=bias)


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
