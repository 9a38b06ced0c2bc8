"""The kinds of students by name; nothing here imports torch or scikit-learn until a kind is asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

from protocols.errors import InvalidInput
from runtime.distribution import install

if TYPE_CHECKING:
    from coordinator.students.student import StudentKind

# Each entry names a function of `device` that returns a StudentKind. To add a student: one file and one line here.
STUDENTS: Final[dict[str, str]] = {
    "cnn": "coordinator.students.supervised:cnn",
    "mlp": "coordinator.students.supervised:mlp",
    "random_forest": "coordinator.students.forest:random_forest",
    "fixmatch": "coordinator.students.fixmatch:fixmatch",
}
_EXTRA_OF_PACKAGE: Final[dict[str, str]] = {"torch": "torch", "sklearn": "sklearn"}


def student_kind(name: str, *, device: str = "auto") -> StudentKind:
    """The kind of student of this name, see STUDENTS; imports the packages that it needs.

    `device` is 'auto' (a CUDA device if there is one and the kind can use it), 'cpu', 'cuda' or 'cuda:N'.
    Raises InvalidInput for an unknown name or device, or when the packages of the kind are not installed.
    """
    if name not in STUDENTS:
        raise InvalidInput(f"student is {name!r}; allowed: {', '.join(STUDENTS)}")
    module, _, function = STUDENTS[name].partition(":")
    try:
        make = getattr(importlib.import_module(module), function)
    except ModuleNotFoundError as missing:
        extra = _EXTRA_OF_PACKAGE.get((missing.name or "").partition(".")[0])
        if extra is None:
            raise
        raise InvalidInput(
            f"student {name!r} needs {missing.name}, which is not installed: {install(extra)}"
        ) from missing
    kind: StudentKind = make(device=device)
    return kind
