"""A student: a model trained on released labels (post-processing: no further privacy cost), and what all kinds share.

What students learn is for each input the weight of each class, f32 [inputs, classes]: a hard label is a one-hot row, a
soft label a row that sums to 1, and a row times its reliability counts so much less.

KIND+equal trains a kind with each class counting the same, whatever its share of the labels. A student then says which
class fits a record better than other records, as if all classes were equally frequent (of a linear model the logits
move by the logarithm of the shares: King & Zeng 2001, "Logistic regression in rare events data", section 4). It is
right for more records of rare classes, and for fewer of all records where classes are as frequent as among the labels.
The shares are those of the released labels, so this costs no budget.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray

from protocols.errors import InvalidInput

if TYPE_CHECKING:
    from protocols.labelling.coordinator import TrainStudent

ONNX_FILE, SAFETENSORS_FILE = "student.onnx", "student.safetensors"


@dataclass(frozen=True)
class Written:
    """What a student's exporter wrote into the folder, ONNX_FILE among it.

    input_shape: the shape of one query for ONNX; classes: the class ids of the columns of `probabilities`.
    """

    files: tuple[str, ...]
    input_shape: tuple[int, ...]
    classes: tuple[int, ...]


def write_with(exporter: str, student: Student, folder: Path) -> Written:
    """What the exporter "module:function" writes of the student into the folder."""
    module, _, name = exporter.partition(":")
    written: Written = getattr(importlib.import_module(module), name)(student, folder)
    return written


class Student(ABC):
    """A trained student. It predicts among the classes that occurred in its labels."""

    @abstractmethod
    def predict(self, inputs: Float32[ndarray, "queries ..."]) -> Int64[ndarray, "queries *findings"]:
        """The class of each query, in [0, classes); of several findings whether each is there."""

    @abstractmethod
    def predict_proba(self, inputs: Float32[ndarray, "queries ..."]) -> Float32[ndarray, "queries classes"]:
        """The probability of each class, in [0, 1]; rows sum to 1; 0 for classes that do not occur in the labels. Of
        several findings that of each."""

    @property
    def exporter(self) -> str:
        """The function that writes this student's files for a release, as "module:function"; "" if there is none, and
        the student can be trained, but not released.

        It is imported only then, and called with the student and a folder; it returns what it has Written.
        """
        return ""


@dataclass(frozen=True, eq=False, repr=False)
class Released:
    """What a student learns of, checked: see StudentKind.fit."""

    inputs: Float32[ndarray, "answered ..."]
    targets: Float32[ndarray, "answered classes"]
    unlabelled: Float32[ndarray, "rest ..."]
    classes: int
    seed: int


class StudentKind(ABC):
    """A way to train students; one row of the table coordinator.students.STUDENTS."""

    @property
    def needs_images(self) -> bool:
        """Whether inputs must be images [height, width]."""
        return False

    def weighed(self, targets: Float32[ndarray, "answered classes"]) -> Float32[ndarray, "answered classes"]:
        """The weights by which this kind learns targets."""
        return targets

    def fit(
        self,
        inputs: Float32[ndarray, "answered ..."],
        targets: Float32[ndarray, "answered classes"],
        *,
        unlabelled: Float32[ndarray, "rest ..."],
        classes: int,
        seed: int,
    ) -> Student:
        """Trains on released labels.

        targets: the weight of each class for each input, >= 0, of which only ratios count: a one-hot row is a hard
        label, a row that sums to 1 a soft one, and a row times its reliability counts so much less (see targets.py).
        unlabelled: the rest of the public pool, used by semi-supervised kinds only; may be empty. Raises InvalidInput,
        also where there is no input, and for a row without weight.
        """
        check_released(inputs, targets, unlabelled, classes, seed)
        return self.learn(Released(inputs, targets, unlabelled, classes, seed))

    @abstractmethod
    def learn(self, released: Released) -> Student:
        """`fit`, of what it has checked."""


# The shortest side of an image, in pixels.
SMALLEST_IMAGE: Final = 8


def is_image(input_shape: tuple[int, ...]) -> bool:
    """Whether inputs of this shape are images that the cnn takes: grey, or with a last axis of 3 colours."""
    return len(input_shape) in (2, 3) and input_shape[2:] in ((), (3,)) and min(input_shape[:2]) >= SMALLEST_IMAGE


def check_released(
    inputs: Float32[ndarray, "answered ..."],
    targets: Float32[ndarray, "answered classes"],
    unlabelled: Float32[ndarray, "rest ..."],
    classes: int,
    seed: int,
) -> None:
    """Raises InvalidInput unless a student can be trained on this (see StudentKind.fit)."""
    if classes < 2:
        raise InvalidInput(f"classes is {classes}; allowed: at least 2")
    if seed < 0:
        raise InvalidInput("the student's seed is negative; allowed: at least 0")
    if len(targets) == 0:
        raise InvalidInput("no label was released; a student needs at least 1")
    if targets.ndim != 2 or targets.shape[1] != classes:
        raise InvalidInput(f"targets have shape {targets.shape}; allowed: [answered, {classes}]")
    if len(inputs) != len(targets):
        raise InvalidInput(f"{len(inputs)} inputs and {len(targets)} labels; allowed: equally many")
    if inputs.ndim < 2 or inputs[0].size == 0:
        raise InvalidInput(f"inputs have shape {inputs.shape}; allowed: [answered, features, ...]")
    if not (np.isfinite(targets).all() and targets.min() >= 0):
        raise InvalidInput(f"weights of classes span [{targets.min()}, {targets.max()}]; allowed: finite, at least 0")
    if not targets.any(axis=1).all():
        raise InvalidInput(f"{(~targets.any(axis=1)).sum()} inputs have no class with a weight; allowed: none")
    if len(unlabelled) and unlabelled.shape[1:] != inputs.shape[1:]:
        raise InvalidInput(f"unlabelled inputs have shape {unlabelled.shape[1:]}; allowed: {inputs.shape[1:]}")
    if not (np.isfinite(inputs).all() and np.isfinite(unlabelled).all()):
        raise InvalidInput("inputs hold NaN or infinite features; allowed: finite numbers")


def one_hot(labels: Int64[ndarray, " labels"], classes: int) -> Float32[ndarray, "labels classes"]:
    """Rows with 1 at the label and 0 elsewhere. Raises InvalidInput for a label that is no class."""
    if len(labels) and not (labels.min() >= 0 and labels.max() < classes):
        raise InvalidInput(f"labels span [{labels.min()}, {labels.max()}]; allowed: [0, {classes - 1}]")
    rows = np.zeros((len(labels), classes), np.float32)
    rows[np.arange(len(labels)), labels] = 1
    return rows


def between_rounds(
    probabilities: Callable[
        [Int64[ndarray, " answered"], Float32[ndarray, "answered classes"]], Float32[ndarray, "queries classes"]
    ],
    *,
    classes: int,
) -> TrainStudent:
    """A function that trains the student of round one and predicts the pool, for Interactive-GNMax.

    probabilities(places of answered queries, targets): what a student of these says of the whole pool. It trains only
    once for the same labels. If round one released no label, its predictions are uniform, and round two works as a
    plain threshold.
    """
    known: dict[bytes, Float64[ndarray, "queries classes"]] = {}

    def train(labels: Int64[ndarray, " queries"]) -> Float64[ndarray, "queries classes"]:
        key = labels.tobytes()
        if key not in known:
            has = np.flatnonzero(labels >= 0)
            said = probabilities(has, one_hot(labels[has], classes)) if len(has) else np.ones((len(labels), classes))
            known.clear()
            known[key] = said.astype(np.float64) / said.sum(axis=1, keepdims=True, dtype=np.float64)
        return known[key]

    return train


def normalised(targets: Float32[ndarray, "inputs classes"]) -> Float32[ndarray, "inputs classes"]:
    """Targets whose weights sum to the number of inputs: only ratios of weights count. One-hot rows are unchanged."""
    return targets / np.float32(targets.sum(dtype=np.float64) / len(targets))


def seen_classes(targets: Float32[ndarray, "inputs classes"]) -> Int64[ndarray, " seen"]:
    """The classes with any weight, ascending."""
    return np.flatnonzero(targets.any(axis=0))


def weighted_rows(
    inputs: Float32[ndarray, "inputs ..."], targets: Float32[ndarray, "inputs classes"]
) -> tuple[Float32[ndarray, "rows features"], Int64[ndarray, " rows"], Float32[ndarray, " rows"]]:
    """Flattened inputs, labels and weights, for models of hard labels: each input once for each class with a weight.

    For one-hot targets these are the inputs in their order, with weight 1 each.
    """
    places, labels = np.nonzero(targets)
    return inputs.reshape(len(inputs), -1)[places], labels, normalised(targets)[places, labels]


@dataclass(frozen=True)
class EqualClasses(StudentKind):
    """Trains `kind` on targets in which every class that occurs has the same weight."""

    kind: StudentKind

    @property
    def needs_images(self) -> bool:
        return self.kind.needs_images

    def weighed(self, targets: Float32[ndarray, "answered classes"]) -> Float32[ndarray, "answered classes"]:
        """Divided by the share of their class."""
        return equal_weights(targets)

    def learn(self, released: Released) -> Student:
        """As the kind does, of these weights."""
        return self.kind.learn(replace(released, targets=self.weighed(released.targets)))


def equal_weights(targets: Float32[ndarray, "inputs classes"]) -> Float32[ndarray, "inputs classes"]:
    """The targets with the weight of each class divided by its share of all, 0 for a class without any."""
    shares = targets.sum(axis=0, dtype=np.float64) / targets.sum(dtype=np.float64)
    return (targets / np.where(shares > 0, shares, 1.0)).astype(np.float32)
