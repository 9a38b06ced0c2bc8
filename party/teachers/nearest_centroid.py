"""The class whose mean of private records is nearest: the cheapest teacher, for thousands of parties."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from party.teachers.linear import LinearTeacher, read_linear
from party.teachers.teacher import Teacher, TeacherKind
from party.teachers.validation import Shard, check_cpu_only, check_shards

_NAME: Final = "nearest_centroid"


@dataclass(frozen=True)
class NearestCentroidKind(TeacherKind):
    """Computes means. Deterministic: the seeds are checked but not needed."""

    def fit(self, shards: list[Shard], *, classes: int, seeds: list[int]) -> list[Teacher]:
        """Trains one teacher per shard, see TeacherKind.fit."""
        check_shards(shards, classes, seeds)
        return [_fit_one(inputs, labels) for inputs, labels in shards]

    def load(self, path: Path) -> Teacher:
        """Reads what LinearTeacher.save wrote. Raises DataCorrupt."""
        return read_linear(path, kind=_NAME)


def nearest_centroid(*, device: str) -> NearestCentroidKind:
    """The class whose mean is nearest in Euclidean distance, of flattened inputs."""
    check_cpu_only(_NAME, device)
    return NearestCentroidKind()


def _fit_one(inputs: Float32[ndarray, "records ..."], labels: Int64[ndarray, " records"]) -> LinearTeacher:
    rows = inputs.reshape(len(inputs), -1)
    seen, member = np.unique(labels, return_inverse=True)
    of_class = np.equal.outer(np.arange(len(seen)), member)
    means = of_class.astype(np.float64) @ rows / of_class.sum(axis=1)[:, None]
    # |x - m|^2 is least where x m - |m|^2/2 is largest.
    offsets = -(means**2).sum(axis=1) / 2
    return LinearTeacher(
        _NAME, np.ascontiguousarray(means.T, np.float32), offsets.astype(np.float32), seen, inputs.shape[1:]
    )
