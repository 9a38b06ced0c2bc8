"""The student `gan`, that of PATE-G (Papernot et al. 2017): a discriminator which also tells the classes apart.

Salimans et al. 2016, "Improved techniques for training GANs". Real or made is class K + 1, whose logit is fixed at 0
(section 5 there). The discriminator is the cnn with weight norm (Salimans & Kingma 2016, Eq. 2) in the place of batch
norm, which would tell real images from made ones by the batch that they come in; only its last layer learns how long
its weights are, so that noise on the features stays noise. The generator is that for MNIST: two hidden layers with
batch norm. It makes images whose features have the means that those of real ones have (section 3.1). For images alone:
on rows of tables it learned less than the mlp.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from benchmarks.semi_training import Loss, Method, Step, train_with
from coordinator.students.student import Released, Student, StudentKind
from coordinator.students.torch_student import (
    LABELLED_IMAGES,
    WEAK_IMAGES,
    Augmentation,
    Schedule,
    StudentNetwork,
    convolutions,
    cross_entropy,
)
from runtime.torch_networks import VARIANCE_FLOOR, Parameters, Shapes, initial, norm_shapes, planes, torch_device

_FEATURES: Final = 128
_SLOPE: Final = 0.2  # of the leaky rectifier below 0
_HIDDEN_GAIN: Final = math.sqrt(2)  # a rectifier halves the mean square, which this restores
_LATENT: Final = 100
_GENERATOR_UNITS: Final = 500
_TINY: Final = 1e-6
_EDGE: Final = 1e-3  # the least distance of a first output from either end of its range, as a share of it


def features(parameters: Parameters, images: Tensor) -> Float[Tensor, "images features"]:
    """The last hidden layer of the discriminator, whose means the generator is to match."""
    weights, shift = _normed(parameters["first.weight"]), parameters["first.shift"]
    maps = functional.leaky_relu(functional.conv2d(planes(images), weights, shift, stride=2), _SLOPE)
    weights, shift = _normed(parameters["second.weight"]), parameters["second.shift"]
    maps = functional.leaky_relu(functional.conv2d(maps, weights, shift, stride=2, padding=1), _SLOPE)
    weights, shift = _normed(parameters["hidden.weight"]), parameters["hidden.shift"]
    return functional.leaky_relu(maps.flatten(1) @ weights + shift, _SLOPE)


def class_logits(parameters: Parameters, found: Float[Tensor, "images features"]) -> Float[Tensor, "images classes"]:
    """The logits of the classes, from what `features` gave."""
    return found @ _normed(parameters["out.weight"]) * parameters["out.scale"] + parameters["out.shift"]


def _normed(weight: Tensor) -> Tensor:
    """The weights, those of each output with a length of _HIDDEN_GAIN."""
    inputs = 0 if weight.ndim == 2 else (1, 2, 3)
    return weight * (_HIDDEN_GAIN * torch.rsqrt(weight.square().sum(inputs, keepdim=True)))


def _logits(parameters: Parameters, inputs: Tensor, found: Parameters | None) -> Tensor:
    """Without batch norm there is nothing to write into `found`."""
    return class_logits(parameters, features(parameters, inputs))


def _layer(name: str, inputs: int, outputs: int) -> Shapes:
    return {f"{name}.weight": (inputs, outputs), f"{name}.shift": (outputs,)}


def _shapes(input_shape: tuple[int, ...], classes: int) -> Shapes:
    weights, flat = convolutions("gan", input_shape)
    shifts = {f"{name}.shift": weights[f"{name}.weight"][:1] for name in ("first", "second")}
    hidden, out = _layer("hidden", flat, _FEATURES), _layer("out", _FEATURES, classes)
    return weights | shifts | hidden | out | {"out.scale": (classes,)}


DISCRIMINATOR: Final = StudentNetwork("gan", _shapes, _logits)


@dataclass(frozen=True, eq=False)
class Generator:
    """Makes images of noise; each pixel lies within its range over the pool. `parameters` are to be trained."""

    parameters: Parameters = field(repr=False)
    least: Tensor = field(repr=False)
    most: Tensor = field(repr=False)

    @staticmethod
    def before_training(pool: Tensor, generator: np.random.Generator) -> Generator:
        """Makes images near to the mean of the pool [images, ...], so that no time is spent on finding it."""
        least, most, mean = pool.amin(0), pool.amax(0), pool.mean(0)
        shapes = (
            {"first.weight": (_LATENT, _GENERATOR_UNITS), "second.weight": (_GENERATOR_UNITS, _GENERATOR_UNITS)}
            | norm_shapes("first", _GENERATOR_UNITS)
            | norm_shapes("second", _GENERATOR_UNITS)
            | _layer("out", _GENERATOR_UNITS, mean.numel())
        )
        parameters = {name: value.to(pool.device) for name, value in initial(shapes, generator).items()}
        parameters["out.shift"] = torch.logit((mean - least) / (most - least).clamp(min=_TINY), eps=_EDGE).flatten()
        return Generator({name: value.requires_grad_() for name, value in parameters.items()}, least, most)

    def __call__(self, count: int, generator: np.random.Generator) -> Tensor:
        """This many images [count, ...], with gradients; `count` is at least 2."""
        hidden = torch.from_numpy(generator.random((count, _LATENT), np.float32)).to(self.least.device)
        for layer in ("first", "second"):
            hidden = hidden @ self.parameters[f"{layer}.weight"]
            variance, mean = torch.var_mean(hidden, 0, correction=0)
            hidden = (hidden - mean) * torch.rsqrt(variance + VARIANCE_FLOOR)
            hidden = torch.relu(hidden * self.parameters[f"{layer}.scale"] + self.parameters[f"{layer}.shift"])
        shares = torch.sigmoid(hidden @ self.parameters["out.weight"] + self.parameters["out.shift"])
        return torch.lerp(self.least, self.most, shares.view(count, *self.least.shape))


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

    def learn(self, released: Released) -> Student:
        """Trains on targets and unlabelled images; with nothing unlabelled, on targets alone."""
        return train_with(
            DISCRIMINATOR, released, change=LABELLED_IMAGES,
            method=FeatureMatching(WEAK_IMAGES, torch.tensor(released.unlabelled, device=self.device)),
            schedule=_SCHEDULE, device=self.device,
        )  # fmt: skip


def gan(*, device: str) -> GanKind:
    """PATE-G, for images [height, width] or [height, width, 3], each side at least 8."""
    return GanKind(torch_device(device))
