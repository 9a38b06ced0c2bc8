"""Virtual adversarial training with entropy minimisation (Miyato et al. 2018, Eq. 5 to 10 and 14).

The student of PATE (Papernot et al. 2018). The scores may not change in the direction, within a radius, in which they
change most, which one step of the power method finds; and the probabilities of unlabelled inputs are to be certain.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from coordinator.students.augmentation import WEAK_IMAGES, WEAK_ROWS, Augmentation
from coordinator.students.semi_supervised import UNLABELLED_BATCH, SemiSupervisedKind
from coordinator.students.torch_student import Loss, Method, Step, cross_entropy
from runtime.torch_networks import torch_device

# The length of the first step of the power method, relative to the radius; xi in the paper is their product.
_PROBE: Final = 0.1
_SMOOTHNESS: Final = 1.0  # weight of the adversarial loss; alpha in the paper
_CERTAINTY: Final = 1.0  # weight of the entropy of unlabelled inputs
_IMAGE_RADIUS: Final = 0.07
_ROW_RADIUS: Final = 0.2


@dataclass(frozen=True)
class Adversarial(Method):
    """radius: the root mean square of what is added to a feature; epsilon in the paper is radius * sqrt(features)."""

    change: Augmentation
    radius: float
    batch: int = UNLABELLED_BATCH

    def begin(self, classes: int) -> Loss:
        """The cross-entropy of labelled inputs, the adversarial loss of all, the entropy of unlabelled ones."""
        return self._loss

    def _loss(self, step: Step) -> Tensor:
        inputs = torch.cat([step.known, self.change(step.queries, step.generator)])
        scores = step.scores(inputs)
        certain = scores.detach()
        first = torch.from_numpy(step.generator.standard_normal(tuple(inputs.shape), np.float32)).to(inputs.device)
        probe = self._of_length(first, _PROBE).requires_grad_()
        (steepest,) = torch.autograd.grad(_divergence(certain, step.scores(inputs + probe)), probe)
        moved = step.scores(inputs + self._of_length(steepest, 1.0))
        labelled = len(step.known)
        unlabelled = scores[labelled:]
        entropy = -(unlabelled.softmax(1) * unlabelled.log_softmax(1)).sum(1).mean()
        supervised = cross_entropy(scores[:labelled], step.goals)
        return supervised + _SMOOTHNESS * _divergence(certain, moved) + _CERTAINTY * entropy

    def _of_length(self, directions: Tensor, share: float) -> Tensor:
        """The directions with this share of the radius."""
        flat = functional.normalize(directions.flatten(1), dim=1)
        return (flat * (share * self.radius * math.sqrt(flat.shape[1]))).view_as(directions)


def _divergence(certain: Tensor, moved: Tensor) -> Tensor:
    """The mean Kullback-Leibler divergence of the rows' probabilities."""
    return functional.kl_div(moved.log_softmax(1), certain.log_softmax(1), reduction="batchmean", log_target=True)


def vat(*, device: str) -> SemiSupervisedKind:
    """Virtual adversarial training, for images and for standardised table rows."""
    return SemiSupervisedKind(
        Adversarial(WEAK_IMAGES, _IMAGE_RADIUS), Adversarial(WEAK_ROWS, _ROW_RADIUS), torch_device(device)
    )
