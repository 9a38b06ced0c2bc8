"""A teacher: a model trained on one shard of private data that predicts a class for a query."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from protocols.errors import InvalidInput

if TYPE_CHECKING:
    from protocols.levels.hidden_queries.inference.model import Dense, Model

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
