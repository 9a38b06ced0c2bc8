"""Students that train a network on labelled and unlabelled inputs, by one method for images and one for table rows.

- FixMatch (Sohn et al. 2020, Eq. 3 and 4): a confident guess on a weak change is the target for a strong one.
- Mean teacher (Tarvainen & Valpola 2017, section 2): the student agrees with the running average of its parameters.
  Both see the same inputs, each changed in its own way; the difference of their probabilities is the consistency cost.
- Virtual adversarial training with entropy minimisation (Miyato et al. 2018, Eq. 5 to 10 and 14), the student of PATE
  (Papernot et al. 2018): the scores may not change in the direction, within a radius, in which they change most, which
  one step of the power method finds; and the probabilities of unlabelled inputs are to be certain.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from coordinator.students.student import Released, Student, StudentKind, is_image
from coordinator.students.torch_student import (
    CNN,
    LABELLED_IMAGES,
    MLP,
    STRONG_IMAGES,
    STRONG_ROWS,
    WEAK_IMAGES,
    WEAK_ROWS,
    Augmentation,
    Loss,
    Method,
    Schedule,
    Step,
    cross_entropy,
    train,
)
from runtime.torch_networks import torch_device

_SCHEDULE: Final = Schedule(batch=32, epochs=25, fewest_steps=800, most_steps=3000)
UNLABELLED_BATCH: Final = 96


@dataclass(frozen=True)
class SemiSupervisedKind(StudentKind):
    """The cnn on images of at least 8x8, grey or with a last axis of 3 colours, the mlp on everything else."""

    images: Method
    rows: Method
    device: torch.device

    def learn(self, released: Released) -> Student:
        """With nothing unlabelled it is supervised training, for the longer schedule of this kind."""
        image = is_image(released.inputs.shape[1:])
        return train(
            CNN if image else MLP, released, change=LABELLED_IMAGES if image else WEAK_ROWS,
            method=self.images if image else self.rows, schedule=_SCHEDULE, device=self.device,
        )  # fmt: skip


_THRESHOLD: Final = 0.95  # of the confidence above which a prediction becomes a label; tau in the paper
_PSEUDO_WEIGHT: Final = 1.0  # of the unlabelled loss; lambda_u in the paper


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
            weights = torch.cat([labelled, weight * (_PSEUDO_WEIGHT / len(step.queries))])
            losses = functional.cross_entropy(step.scores(batch), goals, reduction="none")
            return (losses * weights).sum()

        return loss


def _constant(classes: int) -> Weigh:
    return lambda guessed: (guessed.max(1).values >= _THRESHOLD).to(guessed)


def fixmatch(*, device: str) -> SemiSupervisedKind:
    """FixMatch, for images and for standardised table rows."""
    return SemiSupervisedKind(
        PseudoLabels(WEAK_IMAGES, STRONG_IMAGES, _constant),
        PseudoLabels(WEAK_ROWS, STRONG_ROWS, _constant),
        torch_device(device),
    )


_CONSISTENCY_WEIGHT: Final = 10.0  # of the squared distance of two rows of probabilities
_CONSISTENCY_RAMP: Final = 0.4  # the share of the training in which the weight grows to its full size


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
        return cross_entropy(scores[:labelled], step.goals) + _CONSISTENCY_WEIGHT * _ramp(step.progress) * distance


def _ramp(progress: float) -> float:
    """From e^-5 to 1, the sigmoid-shaped ramp-up of the paper's appendix B."""
    return math.exp(-5 * (1 - min(progress / _CONSISTENCY_RAMP, 1)) ** 2)


def mean_teacher(*, device: str) -> SemiSupervisedKind:
    """Mean teacher, for images and for standardised table rows."""
    return SemiSupervisedKind(
        Consistency(WEAK_IMAGES, STRONG_IMAGES), Consistency(WEAK_ROWS, STRONG_ROWS), torch_device(device)
    )


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
