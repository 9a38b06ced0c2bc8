"""MixMatch (Berthelot et al. 2019, Algorithm 1): guessed and given labels are mixed with each other, inputs alike.

The guess is the mean over two changes of an unlabelled input, sharpened; MixUp (Zhang et al. 2018) mixes pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from coordinator.students.augmentation import LABELLED_IMAGES, WEAK_ROWS, Augmentation
from coordinator.students.semi_supervised import SemiSupervisedKind
from coordinator.students.torch_student import Loss, Method, Step, cross_entropy
from runtime.torch_networks import torch_device

_TEMPERATURE: Final = 0.5  # T in the paper
_CHANGES: Final = 2  # K in the paper
_BETA: Final = 0.75  # alpha in the paper, of the Beta distribution of the share of the larger part
# Of the unlabelled loss; lambda_u in the paper, which has 75 for the mean over 10 classes in the place of the sum, and
# many more steps. 7.5 makes students of two classes and six labels name one class only.
_WEIGHT: Final = 2.0
_RAMP: Final = 0.4  # the share of the training in which the weight grows from 0, linearly


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
        weight = _WEIGHT * min(step.progress / _RAMP, 1)
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
