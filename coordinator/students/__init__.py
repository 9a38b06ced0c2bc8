"""The kinds of students by name; nothing here imports torch or scikit-learn until a kind is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from protocols.plugins import Parts, function_of
from runtime.distribution import installed_part

if TYPE_CHECKING:
    from coordinator.students.student import StudentKind

# To add a student: one file and one line, or a plugin (docs/how-to/add-a-part.md).
STUDENTS: Final[Parts[Callable[..., StudentKind]]] = Parts(
    "student",
    {
        "cnn": "coordinator.students.torch_student:cnn",
        "mlp": "coordinator.students.torch_student:mlp",
        "logistic_regression": "coordinator.students.scikit:logistic_regression",
        "random_forest": "coordinator.students.scikit:random_forest",
        "gradient_boosting": "coordinator.students.scikit:gradient_boosting",
        "propagation": "coordinator.students.propagation:propagation",
        "label_spreading": "coordinator.students.label_spreading:label_spreading",
    },
    group="conclave.students",
    reserved=("scores",),
    check=function_of("`device` that returns a StudentKind"),
)

# No kind that learns labels: the scores that sums of graded votes give (scores.py).
SCORES: Final = "scores"
# Behind a kind: every class counts the same in its training (student.py).
EQUAL: Final = "+equal"


def usual_table_student(population: int) -> str:
    """The kind that learns the soft labels of record votes on a table; population: the public number of units.

    Measured in docs/explanation/which-votes.md. With few units the soft labels of few bins are near to linear.
    """
    from protocols.study.column_queries import FEW_UNITS  # NumPy, which --help does without

    return "logistic_regression" if population < FEW_UNITS else "gradient_boosting"


def student_kind(name: str, *, device: str = "auto") -> StudentKind:
    """The kind of student of this name, see STUDENTS, with or without EQUAL; imports the packages that it needs.

    `device` is 'auto' (a CUDA device if there is one and the kind can use it), 'cpu', 'cuda' or 'cuda:N'.
    Raises InvalidInput for an unknown name or device, or when the packages of the kind are not installed.
    """
    base = name.removesuffix(EQUAL)
    made = installed_part(STUDENTS, base)(device=device)
    if base == name:
        return made
    from coordinator.students.student import EqualClasses  # NumPy, which --help does without

    return EqualClasses(made)
