"""Semi-supervised students that stand in a table: none was better there than those that come with Conclave.

- FreeMatch (Wang et al. 2023, Eq. 4 to 7) is FixMatch with thresholds that follow the confidence of the student,
  overall and in each class; its fairness loss is left out. In SoftMatch (Chen et al. 2023) every guess counts, by how
  sure it is among the guesses: the weight is a truncated Gaussian of the confidence after uniform alignment (section
  3.2), whose mean and variance are running ones (section 3.1).
- MixMatch (Berthelot et al. 2019, Algorithm 1): guessed and given labels are mixed with each other, inputs alike. The
  guess is the mean over two changes of an unlabelled input, sharpened; MixUp (Zhang et al. 2018) mixes pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from coordinator.students.semi_supervised import PseudoLabels, SemiSupervisedKind
from coordinator.students.torch_student import (
    LABELLED_IMAGES,
    STRONG_IMAGES,
    STRONG_ROWS,
    WEAK_IMAGES,
    WEAK_ROWS,
    Augmentation,
    Loss,
    Method,
    Step,
    cross_entropy,
)
from runtime.torch_networks import torch_device

_DECAY: Final = 0.99  # of FreeMatch's running means; the paper has 0.999 for a training of a million steps


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


def freematch(*, device: str) -> SemiSupervisedKind:
    """FixMatch with FreeMatch's thresholds."""
    return SemiSupervisedKind(
        PseudoLabels(WEAK_IMAGES, STRONG_IMAGES, _Adaptive),
        PseudoLabels(WEAK_ROWS, STRONG_ROWS, _Adaptive),
        torch_device(device),
    )


_SOFT_DECAY: Final = 0.99  # of the running figures; m in the paper, which has 0.999 for a training of a million steps


class Gaussian:
    """The weights of one training's guesses; called once a step, in the order of the steps."""

    def __init__(self, classes: int) -> None:
        self._mean, self._variance = torch.tensor(1 / classes), torch.tensor(1.0)
        self._probabilities = torch.full((classes,), 1 / classes)

    def __call__(self, guessed: Tensor) -> Tensor:
        """The weight of each guess, in (0, 1]: 1 from the mean confidence upwards. guessed: probabilities [queries,
        classes], of at least two queries."""
        self._probabilities = torch.lerp(guessed.mean(0), self._probabilities.to(guessed), _SOFT_DECAY)
        aligned = guessed / self._probabilities
        confidence = (aligned / aligned.sum(1, keepdim=True)).max(1).values
        variance, mean = torch.var_mean(confidence)
        self._mean = torch.lerp(mean, self._mean.to(guessed), _SOFT_DECAY)
        self._variance = torch.lerp(variance, self._variance.to(guessed), _SOFT_DECAY)
        below = (confidence - self._mean).clamp(max=0)
        return torch.exp(-below.square() / (2 * self._variance))


def softmatch(*, device: str) -> SemiSupervisedKind:
    """FixMatch with SoftMatch's weights."""
    return SemiSupervisedKind(
        PseudoLabels(WEAK_IMAGES, STRONG_IMAGES, Gaussian),
        PseudoLabels(WEAK_ROWS, STRONG_ROWS, Gaussian),
        torch_device(device),
    )


_TEMPERATURE: Final = 0.5  # T in the paper
_CHANGES: Final = 2  # K in the paper
_BETA: Final = 0.75  # alpha in the paper, of the Beta distribution of the share of the larger part
# Of the unlabelled loss; lambda_u in the paper, which has 75 for the mean over 10 classes in the place of the sum, and
# many more steps. 7.5 makes students of two classes and six labels name one class only.
_MIXED_WEIGHT: Final = 2.0
_MIXED_RAMP: Final = 0.4  # the share of the training in which the weight grows from 0, linearly


@dataclass(frozen=True)
class Mixed(Method):
    """change: of unlabelled inputs, which become `_CHANGES` times as many."""

    change: Augmentation
    batch: int = 48

    def begin(self, classes: int) -> Loss:
        """The cross-entropy of mixed labelled inputs and the squared distance of mixed unlabelled ones."""
        return self._loss

    def _loss(self, step: Step) -> Tensor:
        copies = torch.cat([self.change(step.queries, step.generator) for _ in range(_CHANGES)])
        with torch.no_grad():
            guessed = step.scores(copies).softmax(1).view(_CHANGES, len(step.queries), -1).mean(0)
            sharp = guessed ** (1 / _TEMPERATURE)
            sharp = (sharp / sharp.sum(1, keepdim=True)).repeat(_CHANGES, 1)
        inputs, goals = torch.cat([step.known, copies]), torch.cat([step.goals, sharp])
        inputs, goals = _mixed(inputs, goals, step.generator)
        scores, labelled = step.scores(inputs), len(step.known)
        distance = (scores[labelled:].softmax(1) - goals[labelled:]).square().sum(1).mean()
        weight = _MIXED_WEIGHT * min(step.progress / _MIXED_RAMP, 1)
        return cross_entropy(scores[:labelled], goals[:labelled]) + weight * distance


def _mixed(inputs: Tensor, goals: Tensor, generator: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Each row with another one, of which it has at least as large a part."""
    share = generator.beta(_BETA, _BETA, len(inputs)).astype(np.float32)
    larger = torch.from_numpy(np.maximum(share, 1 - share)).to(inputs.device)
    other = torch.from_numpy(generator.permutation(len(inputs))).to(inputs.device)
    parts = larger.view(-1, *[1] * (inputs.ndim - 1))
    return torch.lerp(inputs[other], inputs, parts), torch.lerp(goals[other], goals, larger[:, None])


def mixmatch(*, device: str) -> SemiSupervisedKind:
    """MixMatch, for images and for standardised table rows."""
    return SemiSupervisedKind(Mixed(LABELLED_IMAGES), Mixed(WEAK_ROWS), torch_device(device))
