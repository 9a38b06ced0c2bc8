"""What there would be without a federation, or without privacy: majority class, parties alone, all data pooled."""

from __future__ import annotations

import numpy as np

from coordinator.students import EQUAL, student_kind
from party.teachers import teacher_kind
from simulations.baselines.method import Score, Task
from simulations.stages.alone import alone_right
from simulations.stages.students import pooled_student


def majority(task: Task) -> Score:
    """The accuracy of saying the private records' most frequent class every time."""
    dataset = task.dataset
    most = np.bincount(dataset.private_labels, minlength=dataset.classes).argmax()
    return Score(dataset.test_labels == most)


def alone(task: Task) -> Score:
    """The mean of what parties reach with a teacher of their own records, and what each reaches."""
    settings = task.settings
    found = alone_right(
        task.seen_by(teacher_kind(settings.teacher)).dataset,
        task.inputs.shards,
        teacher=settings.teacher,
        seed=settings.data_seed,
        cache_dir=task.host.cache_dir,
        trained=None,
    )
    own = found.mean(axis=1)
    return Score(found.mean(axis=0), details={"best": float(own.max())}, by_party=tuple(own.tolist()))


def pooled(task: Task) -> Score:
    """The accuracy of the student's kind of model, of all private records."""
    return _pooled(task, str(task.settings.student))


def pooled_linear(task: Task) -> Score:
    """The accuracy of a logistic regression of all private records: what linear methods could reach.

    Its classes count the same where the student's do.
    """
    equal = str(task.settings.student).endswith(EQUAL)
    return _pooled(task, f"logistic_regression{EQUAL * equal}")


def _pooled(task: Task, student: str) -> Score:
    dataset = task.seen_by(student_kind(student)).dataset
    return Score(pooled_student(dataset, student=student, seed=task.seed, cache_dir=task.host.cache_dir).right())
