"""Mean teacher (Tarvainen & Valpola 2017, section 2): the student agrees with the running average of its parameters.

Both see the same inputs, each changed in its own way; the difference of their probabilities is the consistency cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from coordinator.students.augmentation import STRONG_IMAGES, STRONG_ROWS, WEAK_IMAGES, WEAK_ROWS, Augmentation
from coordinator.students.semi_supervised import UNLABELLED_BATCH, SemiSupervisedKind
from coordinator.students.torch_student import Loss, Method, Step, cross_entropy
from runtime.torch_networks import torch_device

_WEIGHT: Final = 10.0  # of the squared distance of two rows of probabilities
_RAMP: Final = 0.4  # the share of the training in which the weight grows to its full size


@dataclass(frozen=True)
class Consistency(Method):
    """The average sees weakly changed inputs, the student strongly changed ones."""

    weak: Augmentation
    strong: Augmentation
    batch: int = UNLABELLED_BATCH

    def begin(self, classes: int) -> Loss:
        """The cross-entropy of the labelled inputs and the consistency cost of the unlabelled ones."""
        return self._loss

    def _loss(self, step: Step) -> Tensor:
        taught = step.average(self.weak(step.queries, step.generator)).softmax(1)
        scores = step.scores(torch.cat([step.known, self.strong(step.queries, step.generator)]))
        labelled = len(step.known)
        distance = (scores[labelled:].softmax(1) - taught).square().sum(1).mean()
        return cross_entropy(scores[:labelled], step.goals) + _WEIGHT * _ramp(step.progress) * distance


def _ramp(progress: float) -> float:
    """From e^-5 to 1, the sigmoid-shaped ramp-up of the paper's appendix B."""
    return math.exp(-5 * (1 - min(progress / _RAMP, 1)) ** 2)


def mean_teacher(*, device: str) -> SemiSupervisedKind:
    """Mean teacher, for images and for standardised table rows."""
    return SemiSupervisedKind(
        Consistency(WEAK_IMAGES, STRONG_IMAGES), Consistency(WEAK_ROWS, STRONG_ROWS), torch_device(device)
    )
