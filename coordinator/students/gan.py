"""PATE-G, the student of Papernot et al. 2017: the discriminator of a generative adversarial network, which also tells
the classes apart (Salimans et al. 2016, "Improved techniques for training GANs").

Real or made is class K + 1, whose logit is fixed at 0 (section 5 there). The generator makes images whose features have
the means that those of real ones have (section 3.1). For images alone: on rows of tables it learned less than the mlp.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import torch
from jaxtyping import Float, Float32
from numpy import ndarray
from torch import Tensor
from torch.nn import functional

from coordinator.students.augmentation import LABELLED_IMAGES, WEAK_IMAGES, Augmentation
from coordinator.students.gan_networks import DISCRIMINATOR, Generator, class_logits, features
from coordinator.students.student import Student, StudentKind
from coordinator.students.torch_student import Loss, Method, Schedule, Step, cross_entropy, train
from coordinator.students.validation import check_released
from runtime.torch_networks import torch_device

_SCHEDULE: Final = Schedule(batch=32, epochs=25, fewest_steps=800, most_steps=3000)
_INPUT_NOISE: Final = 0.1  # standard deviation of what is added to what the discriminator sees
_FEATURE_NOISE: Final = 0.3  # and to its features
_GENERATOR_RATE: Final = 3e-3  # learning rate and momentum of Salimans et al. for MNIST
_GENERATOR_MOMENTA: Final = (0.5, 0.999)


@dataclass(frozen=True, eq=False)
class FeatureMatching(Method):
    """change: of the unlabelled inputs; pool: all of them."""

    change: Augmentation
    pool: Tensor = field(repr=False)
    batch: int = 64

    def begin(self, classes: int) -> Loss:
        """The cross-entropy of the labelled inputs and the adversarial loss; each call also trains the generator."""
        generator: Generator | None = None
        optimizer: torch.optim.Optimizer | None = None

        def loss(step: Step) -> Tensor:
            nonlocal generator, optimizer
            if generator is None or optimizer is None:
                generator = Generator.before_training(self.pool, step.generator)
                optimizer = torch.optim.Adam(
                    generator.parameters.values(), lr=_GENERATOR_RATE, betas=_GENERATOR_MOMENTA, fused=True
                )
            made = generator(self.batch, step.generator)
            real = slice(len(step.known), len(step.known) + self.batch)
            inputs = torch.cat([step.known, self.change(step.queries, step.generator), made.detach()])
            found = features(step.parameters, _noisy(inputs, _INPUT_NOISE, step.generator))
            logits = class_logits(step.parameters, _noisy(found, _FEATURE_NOISE, step.generator)) + step.offsets
            matched = features(step.parameters, _noisy(made, _INPUT_NOISE, step.generator))
            _descend(optimizer, generator, (matched.mean(0) - found[real].detach().mean(0)).square().sum())
            supervised = cross_entropy(logits[: real.start], step.goals)
            return supervised + adversarial(logits[real], logits[real.stop :])

        return loss


def adversarial(real: Float[Tensor, "real classes"], made: Float[Tensor, "made classes"]) -> Tensor:
    """Half of -log D of real inputs and half of -log(1 - D) of made ones, means over each, from their logits.

    D = Z / (Z + 1), where Z is the sum of exp of an input's logits (Salimans et al. 2016, section 5).
    """
    return (functional.softplus(-real.logsumexp(1)).mean() + functional.softplus(made.logsumexp(1)).mean()) / 2


def _noisy(values: Tensor, deviation: float, generator: np.random.Generator) -> Tensor:
    noise = torch.from_numpy(generator.standard_normal(tuple(values.shape), np.float32)).to(values.device)
    return values + deviation * noise


def _descend(optimizer: torch.optim.Optimizer, generator: Generator, loss: Tensor) -> None:
    """One step of the generator's parameters alone, whatever else the loss depends on."""
    parameters = list(generator.parameters.values())
    for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        parameter.grad = gradient
    optimizer.step()


@dataclass(frozen=True)
class GanKind(StudentKind):
    """For images of at least 8x8, grey or with a last axis of 3 colours."""

    device: torch.device

    @property
    def needs_images(self) -> bool:
        return True

    def fit(
        self,
        inputs: Float32[ndarray, "answered ..."],
        targets: Float32[ndarray, "answered classes"],
        *,
        unlabelled: Float32[ndarray, "rest ..."],
        classes: int,
        seed: int,
    ) -> Student:
        """Trains on targets and unlabelled images, see StudentKind.fit; with `unlabelled` empty, on targets alone."""
        check_released(inputs, targets, unlabelled, classes, seed)
        return train(
            DISCRIMINATOR,
            inputs,
            targets,
            unlabelled,
            change=LABELLED_IMAGES,
            method=FeatureMatching(WEAK_IMAGES, torch.tensor(unlabelled, device=self.device)),
            schedule=_SCHEDULE,
            classes=classes,
            seed=seed,
            device=self.device,
        )


def gan(*, device: str) -> GanKind:
    """PATE-G, for images [height, width] or [height, width, 3], each side at least 8."""
    return GanKind(torch_device(device))
