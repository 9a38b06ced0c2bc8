"""The student stage: train on released labels, measure on the test part; cached by the hash of its inputs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

import coordinator.students
from coordinator.students import student_kind
from party.files import write_atomically
from protocols.errors import InvalidInput
from simulations.datasets.dataset import Dataset, content_digest


def student_accuracy(
    dataset: Dataset,
    positions: Int64[ndarray, " answered"],
    labels: Int64[ndarray, " answered"],
    *,
    student: str,
    seed: int,
    cache_dir: Path,
) -> float | None:
    """Test accuracy of a student trained on `labels` of the public queries at `positions`; None without labels.

    Semi-supervised students also see the inputs of the rest of the public pool, never its labels.
    """
    if len(labels) == 0:
        return None
    rest = np.setdiff1d(np.arange(len(dataset.public_inputs)), positions)
    about = f"released {dataset.public_digest} {dataset.test_digest} {student} {seed} {dataset.classes} {_source()}"
    key = content_digest(positions, labels, text=about)

    def train() -> float:
        trained = student_kind(student).fit(
            dataset.public_inputs[positions],
            labels,
            unlabelled=dataset.public_inputs[rest],
            classes=dataset.classes,
            seed=seed,
        )
        return float((trained.predict(dataset.test_inputs) == dataset.test_labels).mean())

    return _cached(cache_dir / "students" / f"{key}.json", train)


def non_private_accuracy(dataset: Dataset, *, student: str, seed: int, cache_dir: Path) -> float:
    """Test accuracy of the same kind of model trained on all pooled private data with its true labels."""
    about = f"pooled {dataset.private_digest} {dataset.test_digest} {student} {seed} {dataset.classes} {_source()}"
    key = content_digest(text=about)

    def train() -> float:
        trained = student_kind(student).fit(
            dataset.private_inputs,
            dataset.private_labels,
            unlabelled=dataset.private_inputs[:0],
            classes=dataset.classes,
            seed=seed,
        )
        return float((trained.predict(dataset.test_inputs) == dataset.test_labels).mean())

    return _cached(cache_dir / "students" / f"{key}.json", train)


def check_student(name: str | None) -> None:
    """Raises InvalidInput unless `name` is a student, "none", or None for the data set's own default."""
    if name not in (None, "none"):
        try:
            student_kind(str(name))
        except InvalidInput as error:
            raise InvalidInput(f"{error}; or none to stop after the labels") from None


def _cached(path: Path, train: Callable[[], float]) -> float:
    try:
        accuracy = float(json.loads(path.read_text())["accuracy"])
        if 0 <= accuracy <= 1:
            return accuracy
    except (OSError, ValueError, KeyError, TypeError):
        # None there, or none that can be read: it is made again.
        pass
    accuracy = train()
    write_atomically(path, json.dumps({"accuracy": accuracy}))
    return accuracy


@cache
def _source() -> str:
    assert coordinator.students.__file__ is not None
    digest = hashlib.sha256()
    for path in sorted(Path(coordinator.students.__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()
