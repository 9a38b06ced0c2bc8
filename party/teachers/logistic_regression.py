"""Multinomial logistic regression, saved as npz.

Training takes scikit-learn, whose import takes two seconds; a trained teacher votes without it, so a node that only
answers never loads it.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import numpy as np
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray

from party.teachers.linear import LinearTeacher, read_linear
from party.teachers.teacher import Teacher, TeacherKind
from party.teachers.validation import Shard, check_cpu_only, check_shards

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
