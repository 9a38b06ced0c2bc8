"""A student: a model trained on released labels (post-processing: no further privacy cost)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from jaxtyping import Float32, Int64
from numpy import ndarray

ONNX_FILE, SAFETENSORS_FILE = "student.onnx", "student.safetensors"


@dataclass(frozen=True)
class Written:
    """What a student's exporter wrote into the folder, ONNX_FILE among it.

    input_shape: the shape of one query for ONNX; classes: the class ids of the columns of `probabilities`.
    """

    files: tuple[str, ...]
    input_shape: tuple[int, ...]
    classes: tuple[int, ...]


class Student(ABC):
    """A trained student. It predicts among the classes that occurred in its labels."""

    @abstractmethod
    def predict(self, inputs: Float32[ndarray, "queries ..."]) -> Int64[ndarray, " queries"]:
        """The class of each query, in [0, classes)."""

    @abstractmethod
    def predict_proba(self, inputs: Float32[ndarray, "queries ..."]) -> Float32[ndarray, "queries classes"]:
        """The probability of each class, in [0, 1]; rows sum to 1; 0 for classes that do not occur in the labels."""

    @property
    def exporter(self) -> str:
        """The function that writes this student's files for a release, as "module:function"; "" if there is none, and
        the student can be trained, but not released.

        It is imported only then, and called with the student and a folder; it returns what it has Written.
        """
        return ""


class StudentKind(ABC):
    """A way to train students; one row of the table coordinator.students.STUDENTS."""

    @property
    def needs_images(self) -> bool:
        """Whether inputs must be images [height, width]."""
        return False

    @abstractmethod
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
