"""FixMatch (Sohn et al. 2020, Eq. 3 and 4): a confident guess on a weak change is the target for a strong one.

FreeMatch (Wang et al. 2023, Eq. 4 to 7) is FixMatch whose thresholds follow the confidence of the student, overall and
in each class; its fairness loss is left out.
"""

from __future__ import annotations

from collections.abc import Callable
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


Weigh = Callable[[Tensor], Tensor]  # guessed probabilities [queries, classes] -> the weight of each guess, in [0, 1]


@dataclass(frozen=True)
class PseudoLabels(Method):
    """weighing(classes): how the guesses of one training are weighed, step by step."""

    weak: Augmentation
    strong: Augmentation
    weighing: Callable[[int], Weigh]
    batch: int = UNLABELLED_BATCH

    def begin(self, classes: int) -> Loss:
        """The cross-entropy of the labelled inputs, and of the unlabelled ones by the weights of their guesses."""
        weigh = self.weighing(classes)

        def loss(step: Step) -> Tensor:
            with torch.no_grad():
                guessed = step.scores(self.weak(step.queries, step.generator)).softmax(1)
                guesses, weight = guessed.argmax(1), weigh(guessed)
            batch = torch.cat([step.known, self.strong(step.queries, step.generator)])
            goals = torch.cat([step.goals, functional.one_hot(guesses, classes).to(step.goals)])
            labelled = torch.full((len(step.known),), 1 / len(step.known), device=batch.device)
            weights = torch.cat([labelled, weight * (_WEIGHT / len(step.queries))])
            losses = functional.cross_entropy(step.scores(batch), goals, reduction="none")
            return (losses * weights).sum()

        return loss


def _constant(classes: int) -> Weigh:
    return lambda guessed: (guessed.max(1).values >= _THRESHOLD).to(guessed)


class _Adaptive:
    """Whether each guess reaches FreeMatch's threshold of its class: the mean confidence, times the class's mean
    probability over the largest one."""

    def __init__(self, classes: int) -> None:
        self._confidence = torch.tensor(1 / classes)
        self._probabilities = torch.full((classes,), 1 / classes)

    def __call__(self, guessed: Tensor) -> Tensor:
        self._confidence = torch.lerp(guessed.max(1).values.mean(), self._confidence.to(guessed), _DECAY)
        self._probabilities = torch.lerp(guessed.mean(0), self._probabilities.to(guessed), _DECAY)
        thresholds = self._confidence * self._probabilities / self._probabilities.max()
        confidence, guesses = guessed.max(1)
        return (confidence >= thresholds[guesses]).to(guessed)


def fixmatch(*, device: str) -> SemiSupervisedKind:
    """FixMatch, for images and for standardised table rows."""
    return SemiSupervisedKind(
        PseudoLabels(WEAK_IMAGES, STRONG_IMAGES, _constant),
        PseudoLabels(WEAK_ROWS, STRONG_ROWS, _constant),
        torch_device(device),
    )


def freematch(*, device: str) -> SemiSupervisedKind:
    """FixMatch with FreeMatch's thresholds."""
    return SemiSupervisedKind(
        PseudoLabels(WEAK_IMAGES, STRONG_IMAGES, _Adaptive),
        PseudoLabels(WEAK_ROWS, STRONG_ROWS, _Adaptive),
        torch_device(device),
    )
