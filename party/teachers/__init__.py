"""The kinds of teachers by name.

A hospital installs only what its teachers need, so nothing here imports torch or scikit-learn: a module is imported
when its kind is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from protocols.plugins import Parts, function_of
from runtime.distribution import installed_part

if TYPE_CHECKING:
    from party.teachers.teacher import TeacherKind

# To add a teacher: one file and one line, or a plugin (docs/how-to/add-a-part.md).
TEACHERS: Final[Parts[Callable[..., TeacherKind]]] = Parts(
    "teacher",
    {
        "cnn": "party.teachers.torch_teacher:cnn",
        "mlp": "party.teachers.torch_teacher:mlp",
        "logistic_regression": "party.teachers.linear:logistic_regression",
        "nearest_centroid": "party.teachers.linear:nearest_centroid",
        "random_forest": "party.teachers.trees:random_forest",
        "hist_gradient_boosting": "party.teachers.trees:hist_gradient_boosting",
        "label_spreading": "party.teachers.label_spreading:label_spreading",
        "small_cnn": "party.teachers.torch_teacher:small_cnn",
    },
    group="conclave.teachers",
    check=function_of("`device` that returns a TeacherKind"),
)


def teacher_kind(name: str, *, device: str = "auto") -> TeacherKind:
    """The kind of teacher of this name, see TEACHERS; imports the packages that it needs.

    `device` is 'auto' (a CUDA device if there is one and the kind can use it), 'cpu', 'cuda' or 'cuda:N'.
    Raises InvalidInput for an unknown name or device, or when the packages of the kind are not installed.
    """
    return installed_part(TEACHERS, name)(device=device)
