"""Teachers whose score of a class is linear in the inputs, saved as npz: logistic regression, and the nearest centroid.

Training a logistic regression takes scikit-learn, whose import takes two seconds; a trained teacher votes without it,
so a node that only answers never loads it.
"""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import numpy as np
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray

from party.teachers.teacher import PRIVATE, Shard, Teacher, TeacherKind, among_seen, check_shards
from protocols.array_files import read_arrays
from protocols.errors import DataCorrupt, DataUnavailable
from protocols.levels.hidden_queries.inference.model import Dense, Model
from runtime.files import write_atomically
from runtime.models import check_cpu_only, check_queries


@dataclass(frozen=True, eq=False)
class LinearTeacher(Teacher):
    """The class with the largest score inputs @ weights + offsets, among the classes seen.

    kind: as the table of teachers names it; a file is of one kind.
    """

    kind: str
    weights: Float32[ndarray, "features seen"] = field(repr=False)
    offsets: Float32[ndarray, " seen"] = field(repr=False)
    seen: Int64[ndarray, " seen"] = field(repr=False)
    input_shape: tuple[int, ...]

    def predict(self, inputs: Float32[ndarray, "queries ..."]) -> Int64[ndarray, " queries"]:
        """The class of each query. Raises InvalidInput for queries of another shape or not finite."""
        check_queries(inputs, self.input_shape)
        scores = inputs.reshape(len(inputs), len(self.weights)) @ self.weights + self.offsets
        return np.asarray(self.seen[scores.argmax(axis=1)], np.int64)

    def private_model(self, *, classes: int) -> Model:
        if self.kind not in PRIVATE:
            return super().private_model(classes=classes)
        return Model(self.input_shape, (among_seen(Dense(self.weights.T, self.offsets), self.seen, classes=classes),))

    def save(self, path: Path) -> None:
        """Writes an npz file. Raises StorageFailed."""
        content = io.BytesIO()
        np.savez(
            content,
            kind=np.array(self.kind),
            weights=self.weights,
            offsets=self.offsets,
            seen=self.seen,
            input_shape=np.array(self.input_shape, np.int64),
        )
        write_atomically(path, content.getvalue())


def read_linear(path: Path, *, kind: str) -> LinearTeacher:
    """Reads what LinearTeacher.save wrote of this kind. Raises DataCorrupt."""
    try:
        file = read_arrays(path, ["kind", "weights", "offsets", "seen", "input_shape"])
        said, weights, offsets, seen, input_shape = file.values()
    except (DataUnavailable, DataCorrupt) as failure:
        raise DataCorrupt(f"{path} is not a readable linear teacher: {failure}") from failure
    if said.dtype.kind != "U" or said.shape != () or said.item() != kind:
        raise DataCorrupt(f"{path} is a teacher of another kind; allowed: {kind}")
    types = (weights.dtype, offsets.dtype, seen.dtype, input_shape.dtype)
    if types != (np.dtype(np.float32),) * 2 + (np.dtype(np.int64),) * 2:
        raise DataCorrupt(f"{path} holds {types}; allowed: float32 weights and offsets, int64 classes and shape")
    if seen.ndim != 1 or input_shape.ndim != 1 or not len(seen) or (seen < 0).any():
        raise DataCorrupt(f"{path} does not list the classes and the shape that its teacher was trained on")
    if weights.shape != (input_shape.prod(), len(seen)) or offsets.shape != seen.shape:
        raise DataCorrupt(f"{path}: weights {weights.shape}, offsets {offsets.shape}, classes {seen.shape} differ")
    if not (np.isfinite(weights).all() and np.isfinite(offsets).all()):
        raise DataCorrupt(f"{path} holds NaN or infinite weights; allowed: finite numbers")
    return LinearTeacher(kind, weights, offsets, seen, tuple(int(length) for length in input_shape))


if find_spec("sklearn") is None:  # said now, and not when teachers are to be trained
    raise ModuleNotFoundError("No module named 'sklearn'", name="sklearn")

_NAME: Final = "logistic_regression"
# Iterations of L-BFGS. On MNIST shards of 240 images the accuracy does not rise after 10 (0.817), and
# training to convergence takes five times as long.
MAX_ITERATIONS: Final = 15
_INVERSE_REGULARISATION: Final = 1.0


@dataclass(frozen=True)
class LogisticRegressionKind(TeacherKind):
    """Trains with scikit-learn's L-BFGS. Deterministic: the seeds are checked but not needed."""

    def fit(self, shards: list[Shard], *, classes: int, seeds: list[int]) -> list[Teacher]:
        """Trains one teacher per shard, see TeacherKind.fit."""
        check_shards(shards, classes, seeds)
        return [
            fit_weighted(inputs.reshape(len(inputs), -1), labels, None, name=_NAME, input_shape=inputs.shape[1:])
            for inputs, labels in shards
        ]

    def load(self, path: Path) -> Teacher:
        """Reads what LinearTeacher.save wrote. Raises DataCorrupt."""
        return read_linear(path, kind=_NAME)


def logistic_regression(*, device: str) -> LogisticRegressionKind:
    """Multinomial logistic regression on flattened inputs; fast enough for thousands of parties."""
    check_cpu_only(_NAME, device)
    return LogisticRegressionKind()


def fit_weighted(
    rows: Float32[ndarray, "records features"],
    labels: Int64[ndarray, " records"],
    weights: Float64[ndarray, " records"] | None,
    *,
    name: str,
    input_shape: tuple[int, ...],
) -> LinearTeacher:
    """A teacher of these rows, each of which counts as its weight says; None: all as one. name: of its kind;
    input_shape: of a query.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    seen = np.unique(labels)
    if len(seen) == 1:  # nothing to separate, and scikit-learn refuses to
        return LinearTeacher(name, np.zeros((rows.shape[1], 1), np.float32), np.zeros(1, np.float32), seen, input_shape)
    model = LogisticRegression(C=_INVERSE_REGULARISATION, max_iter=MAX_ITERATIONS)
    with warnings.catch_warnings():
        # Stopping before convergence is intended: see MAX_ITERATIONS.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(rows, labels, sample_weight=weights)
    weights, offsets = model.coef_.T, model.intercept_
    if len(seen) == 2:  # scikit-learn keeps one score, that of the second class
        weights, offsets = np.hstack([np.zeros_like(weights), weights]), np.append(0.0, offsets)
    return LinearTeacher(name, np.ascontiguousarray(weights, np.float32), offsets.astype(np.float32), seen, input_shape)


_CENTROIDS: Final = "nearest_centroid"


@dataclass(frozen=True)
class NearestCentroidKind(TeacherKind):
    """Computes means. Deterministic: the seeds are checked but not needed."""

    def fit(self, shards: list[Shard], *, classes: int, seeds: list[int]) -> list[Teacher]:
        """Trains one teacher per shard, see TeacherKind.fit."""
        check_shards(shards, classes, seeds)
        return [_fit_one(inputs, labels) for inputs, labels in shards]

    def load(self, path: Path) -> Teacher:
        """Reads what LinearTeacher.save wrote. Raises DataCorrupt."""
        return read_linear(path, kind=_CENTROIDS)


def nearest_centroid(*, device: str) -> NearestCentroidKind:
    """The class whose mean is nearest in Euclidean distance, of flattened inputs."""
    check_cpu_only(_CENTROIDS, device)
    return NearestCentroidKind()


def _fit_one(inputs: Float32[ndarray, "records ..."], labels: Int64[ndarray, " records"]) -> LinearTeacher:
    rows = inputs.reshape(len(inputs), -1)
    seen, member = np.unique(labels, return_inverse=True)
    of_class = np.equal.outer(np.arange(len(seen)), member)
    means = of_class.astype(np.float64) @ rows / of_class.sum(axis=1)[:, None]
    # |x - m|^2 is least where x m - |m|^2/2 is largest.
    offsets = -(means**2).sum(axis=1) / 2
    return LinearTeacher(
        _CENTROIDS, np.ascontiguousarray(means.T, np.float32), offsets.astype(np.float32), seen, inputs.shape[1:]
    )
