"""The kinds of teachers by name.

A hospital installs only what its teachers need, so nothing here imports torch or scikit-learn: the table
holds "module:function" strings, and a module is imported when its kind is asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

from protocols.errors import InvalidInput
from runtime.distribution import install

if TYPE_CHECKING:
    from party.teachers.teacher import TeacherKind

# Each entry names a function of `device` that returns a TeacherKind. To add a teacher: one file and one line here.
TEACHERS: Final[dict[str, str]] = {
    "cnn": "party.teachers.torch_teacher:cnn",
    "mlp": "party.teachers.torch_teacher:mlp",
    "logistic_regression": "party.teachers.logistic_regression:logistic_regression",
    "random_forest": "party.teachers.trees:random_forest",
    "hist_gradient_boosting": "party.teachers.trees:hist_gradient_boosting",
    "small_cnn": "party.teachers.torch_teacher:small_cnn",
}
_EXTRA_OF_PACKAGE: Final[dict[str, str]] = {
    "torch": "torch",
    "safetensors": "torch",
    "sklearn": "sklearn",
    "skops": "sklearn",
}


def teacher_kind(name: str, *, device: str = "auto") -> TeacherKind:
    """The kind of teacher of this name, see TEACHERS; imports the packages that it needs.

    `device` is 'auto' (a CUDA device if there is one and the kind can use it), 'cpu', 'cuda' or 'cuda:N'.
    Raises InvalidInput for an unknown name or device, or when the packages of the kind are not installed.
    """
    if name not in TEACHERS:
        raise InvalidInput(f"teacher is {name!r}; allowed: {', '.join(TEACHERS)}")
    module, _, function = TEACHERS[name].partition(":")
    try:
        make = getattr(importlib.import_module(module), function)
    except ModuleNotFoundError as missing:
        extra = _EXTRA_OF_PACKAGE.get((missing.name or "").partition(".")[0])
        if extra is None:
            raise
        raise InvalidInput(
            f"teacher {name!r} needs {missing.name}, which is not installed: {install(extra)}"
        ) from missing
    kind: TeacherKind = make(device=device)
    return kind
