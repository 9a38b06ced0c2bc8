"""SoftMatch (Chen et al. 2023): FixMatch in which every guess counts, by how sure it is among the guesses.

The weight is a truncated Gaussian of the confidence (section 3.1), whose mean and variance are running ones, and the
confidence is that after uniform alignment (section 3.2).
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from coordinator.students.augmentation import STRONG_IMAGES, STRONG_ROWS, WEAK_IMAGES, WEAK_ROWS
from coordinator.students.fixmatch import PseudoLabels
from coordinator.students.semi_supervised import SemiSupervisedKind
from runtime.torch_networks import torch_device

_DECAY: Final = 0.99  # of the running figures; m in the paper, which has 0.999 for a training of a million steps


class Gaussian:
    """The weights of one training's guesses; called once a step, in the order of the steps."""

    def __init__(self, classes: int) -> None:
        self._mean, self._variance = torch.tensor(1 / classes), torch.tensor(1.0)
        self._probabilities = torch.full((classes,), 1 / classes)

    def __call__(self, guessed: Tensor) -> Tensor:
        """The weight of each guess, in (0, 1]: 1 from the mean confidence upwards. guessed: probabilities [queries,
        classes], of at least two queries."""
        self._probabilities = torch.lerp(guessed.mean(0), self._probabilities.to(guessed), _DECAY)
        aligned = guessed / self._probabilities
        confidence = (aligned / aligned.sum(1, keepdim=True)).max(1).values
        variance, mean = torch.var_mean(confidence)
        self._mean = torch.lerp(mean, self._mean.to(guessed), _DECAY)
        self._variance = torch.lerp(variance, self._variance.to(guessed), _DECAY)
        below = (confidence - self._mean).clamp(max=0)
        return torch.exp(-below.square() / (2 * self._variance))


def softmatch(*, device: str) -> SemiSupervisedKind:
    """FixMatch with SoftMatch's weights."""
    return SemiSupervisedKind(
        PseudoLabels(WEAK_IMAGES, STRONG_IMAGES, Gaussian),
        PseudoLabels(WEAK_ROWS, STRONG_ROWS, Gaussian),
        torch_device(device),
    )
