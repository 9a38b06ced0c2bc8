"""Semi-supervised students that stand in a table: none was better there than `propagation` and `label_spreading`, which
come with Conclave. Each trains a network on labelled and unlabelled inputs, by one method for images and table rows.

- FixMatch (Sohn et al. 2020, Eq. 3 and 4): a confident guess on a weak change is the target for a strong one. For
  images, weak is a small shift and rotation, strong a larger affine map, contrast and Cutout (DeVries & Taylor 2017);
  for table rows weak is a little noise, strong is more noise and some features set to their mean, zero.
- Mean teacher (Tarvainen & Valpola 2017, section 2): the student agrees with the running average of its parameters.
  Both see the same inputs, each changed in its own way; the difference of their probabilities is the consistency cost.
- Virtual adversarial training with entropy minimisation (Miyato et al. 2018, Eq. 5 to 10 and 14), the student of PATE
  (Papernot et al. 2018): the scores may not change in the direction, within a radius, in which they change most, which
  one step of the power method finds; and the probabilities of unlabelled inputs are to be certain.
- FreeMatch (Wang et al. 2023, Eq. 4 to 7) is FixMatch with thresholds that follow the confidence of the student,
  overall and in each class; its fairness loss is left out. In SoftMatch (Chen et al. 2023) every guess counts, by how
  sure it is among the guesses: the weight is a truncated Gaussian of the confidence after uniform alignment (section
  3.2), whose mean and variance are running ones (section 3.1).
- MixMatch (Berthelot et al. 2019, Algorithm 1): guessed and given labels are mixed with each other, inputs alike. The
  guess is the mean over two changes of an unlabelled input, sharpened; MixUp (Zhang et al. 2018) mixes pairs.
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

from benchmarks.semi_training import Loss, Method, Step, train_with
from coordinator.students.student import Released, Student, StudentKind, is_image
from coordinator.students.torch_student import (
    CNN,
    LABELLED_IMAGES,
    MLP,
    WEAK_IMAGES,
    WEAK_ROWS,
    Augmentation,
    ImageChange,
    RowChange,
    Schedule,
    cross_entropy,
)
from runtime.torch_networks import torch_device

# Stronger changes (rotation 25, Cutout 0.35) cost FixMatch 5 points of accuracy on 8x8 digits and gain nothing on
# MNIST's 28x28.
STRONG_IMAGES: Final = ImageChange(rotation=15, shift=0.1, scale=0.15, shear=0.15, contrast=0.3, cutout=0.2)
STRONG_ROWS: Final = RowChange(noise=0.2, dropout=0.2)


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
        return train_with(
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
