"""The discriminator and the generator of the student `gan`, as functions of their parameters.

The discriminator is the cnn with weight norm (Salimans & Kingma 2016, Eq. 2) in the place of batch norm, which would
tell real images from made ones by the batch that they come in. Only its last layer learns how long its weights are, so
that noise on the features stays noise. The generator is that of Salimans et al. 2016 for MNIST: two hidden layers with
batch norm, and any number of outputs.
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

from coordinator.students.networks import StudentNetwork, convolutions
from runtime.torch_networks import VARIANCE_FLOOR, Parameters, Shapes, initial, norm_shapes, planes

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
