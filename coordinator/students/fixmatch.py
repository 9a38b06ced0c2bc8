"""FixMatch (Sohn et al. 2020, Eq. 3 and 4): a confident guess on a weak change is the target for a strong one.

FreeMatch (Wang et al. 2023, Eq. 4 to 7) is FixMatch whose thresholds follow the confidence of the student, overall and
in each class; its fairness loss is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from coordinator.students.augmentation import STRONG_IMAGES, STRONG_ROWS, WEAK_IMAGES, WEAK_ROWS, Augmentation
from coordinator.students.semi_supervised import UNLABELLED_BATCH, SemiSupervisedKind
from coordinator.students.torch_student import Loss, Method, Step
from runtime.torch_networks import torch_device

_THRESHOLD: Final = 0.95  # of the confidence above which a prediction becomes a label; tau in the paper
_WEIGHT: Final = 1.0  # of the unlabelled loss; lambda_u in the paper
_DECAY: Final = 0.99  # of FreeMatch's running means; the paper has 0.999 for a training of a million steps


@dataclass(frozen=True)
class PseudoLabels(Method):
    """adaptive: FreeMatch's thresholds in the place of _THRESHOLD."""

    weak: Augmentation
    strong: Augmentation
    adaptive: bool = False
    batch: int = UNLABELLED_BATCH

    def begin(self, classes: int) -> Loss:
        """The cross-entropy of the labelled inputs and of the unlabelled ones whose guess is confident."""
        thresholds = _Adaptive(classes) if self.adaptive else _constant

        def loss(step: Step) -> Tensor:
            with torch.no_grad():
                guessed = step.scores(self.weak(step.queries, step.generator)).softmax(1)
                confidence, guesses = guessed.max(1)
                confident = confidence >= thresholds(guessed)[guesses]
            batch = torch.cat([step.known, self.strong(step.queries, step.generator)])
            goals = torch.cat([step.goals, functional.one_hot(guesses, classes).to(step.goals)])
            labelled = torch.full((len(step.known),), 1 / len(step.known), device=batch.device)
            weights = torch.cat([labelled, confident * (_WEIGHT / len(step.queries))])
            losses = functional.cross_entropy(step.scores(batch), goals, reduction="none")
            return (losses * weights).sum()

        return loss


def _constant(guessed: Tensor) -> Tensor:
    return torch.full_like(guessed[0], _THRESHOLD)


class _Adaptive:
    """FreeMatch's threshold of each class: the mean confidence, times the class's mean probability over the largest
    one."""

    def __init__(self, classes: int) -> None:
        self._confidence = torch.tensor(1 / classes)
        self._probabilities = torch.full((classes,), 1 / classes)

    def __call__(self, guessed: Tensor) -> Tensor:
        self._confidence = torch.lerp(guessed.max(1).values.mean(), self._confidence.to(guessed), _DECAY)
        self._probabilities = torch.lerp(guessed.mean(0), self._probabilities.to(guessed), _DECAY)
        return self._confidence * self._probabilities / self._probabilities.max()


def fixmatch(*, device: str) -> SemiSupervisedKind:
    """FixMatch, for images and for standardised table rows."""
    return SemiSupervisedKind(
        PseudoLabels(WEAK_IMAGES, STRONG_IMAGES), PseudoLabels(WEAK_ROWS, STRONG_ROWS), torch_device(device)
    )


def freematch(*, device: str) -> SemiSupervisedKind:
    """FixMatch with FreeMatch's thresholds."""
    return SemiSupervisedKind(
        PseudoLabels(WEAK_IMAGES, STRONG_IMAGES, adaptive=True),
        PseudoLabels(WEAK_ROWS, STRONG_ROWS, adaptive=True),
        torch_device(device),
    )
