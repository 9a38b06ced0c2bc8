"""What there would be without a federation, or without privacy: majority class, parties alone, all data pooled."""

from __future__ import annotations

import numpy as np

from simulations.baselines.method import Score, Task
from simulations.stages.alone import alone_accuracy
from simulations.stages.students import pooled_student


def majority(task: Task) -> Score:
    """The accuracy of saying the private records' most frequent class every time."""
    dataset = task.dataset
    most = np.bincount(dataset.private_labels, minlength=dataset.classes).argmax()
    return Score(float((dataset.test_labels == most).mean()))


def alone(task: Task) -> Score:
    """The mean of what parties reach with a teacher of their own records, and what each reaches."""
    settings = task.settings
    found = alone_accuracy(
        task.dataset,
        task.inputs.shards,
        teacher=settings.teacher,
        seed=settings.data_seed,
        cache_dir=task.host.cache_dir,
        trained=None,
    )
    return Score(float(found.mean()), details={"best": float(found.max())}, by_party=tuple(found.tolist()))


def pooled(task: Task) -> Score:
    """The accuracy of the student's kind of model, of all private records."""
    settings = task.settings
    model = pooled_student(task.dataset, student=str(settings.student), seed=task.seed, cache_dir=task.host.cache_dir)
    return Score(model.accuracy())
