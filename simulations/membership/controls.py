"""Controls for the attack on the released student: models for which the answer is known beforehand.

The attack should succeed on the model trained on the private records without privacy. The student of public records and
their true labels has never seen anything private: what the attack finds there is a difference between the private and
the test part, not leakage.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from coordinator.students.targets import one_hot
from protocols.crypto.randomness import simulation_rng
from simulations.datasets.dataset import Dataset
from simulations.membership.scores import Predictor
from simulations.stages.students import ReleasedStudent


@dataclass(frozen=True, eq=False)
class Controls:
    """The models beside the released student; None where one is not to be measured."""

    non_private: Predictor | None
    no_private_data: Predictor | None


def make_controls(
    dataset: Dataset, *, non_private: Predictor, student: str, answered: int, seed: int, cache_dir: Path
) -> Controls:
    """Both controls, models of the released student's kind; nothing is trained before it is asked for.

    non_private: of `pooled_student`; answered: how many labels the released student learned from. The control without
    private data learns the true labels of as many public queries, drawn from the seed and not chosen by votes; it is
    None if nothing was answered.
    """
    if answered == 0:
        return Controls(non_private, None)
    order = simulation_rng(seed, "control").permutation(len(dataset.public_labels))
    chosen = np.sort(order[:answered])
    targets = one_hot(dataset.public_labels[chosen], dataset.classes)
    return Controls(
        non_private, ReleasedStudent(dataset, chosen, targets, student=student, seed=seed, cache_dir=cache_dir)
    )
