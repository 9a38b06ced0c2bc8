"""The students' networks as functions of their parameters, which makes averaging over steps simple.

Batch norm (Ioffe & Szegedy 2015, Alg. 1) uses the batch's own statistics while training; the last pass of
the training writes those that predictions use into the parameters, under the names `<layer>.mean` and
`.variance`.
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

from protocols.errors import InvalidInput

Parameters = dict[str, Tensor]
Shapes = dict[str, tuple[int, ...]]

_VARIANCE_FLOOR: Final = 1e-5
_SMALLEST_IMAGE: Final = 8
_FILTERS: Final = (32, 64)
_HIDDEN: Final = 128


@dataclass(frozen=True)
class StudentNetwork:
    """One architecture: the shapes of its parameters for (input_shape, classes), and its logits.

    `logits(parameters, inputs, found)` normalises with the statistics in `parameters` if present,
    otherwise with those of `inputs`; if `found` is a dict, it writes the ones that it used there.
    """

    name: str
    shapes: Callable[[tuple[int, ...], int], Shapes]
    logits: Callable[[Parameters, Tensor, Parameters | None], Tensor]

    def initial(self, generator: np.random.Generator, input_shape: tuple[int, ...], classes: int) -> Parameters:
        """He-normal weights from the generator; batch norm starts as the identity, the last layer flat."""
        parameters: Parameters = {}
        for name, shape in self.shapes(input_shape, classes).items():
            if name.endswith(".scale"):
                parameters[name] = torch.ones(shape)
            elif name.endswith(".shift"):
                parameters[name] = torch.zeros(shape)
            else:
                inputs = shape[0] if len(shape) == 2 else math.prod(shape[1:])
                weights = generator.standard_normal(shape, np.float32)
                parameters[name] = torch.from_numpy(weights) * math.sqrt(2 / inputs)
        parameters["out.weight"] *= 0.1
        return parameters


def is_image(input_shape: tuple[int, ...]) -> bool:
    """Whether inputs of this shape are images that the cnn takes."""
    return len(input_shape) == 2 and min(input_shape) >= _SMALLEST_IMAGE


def _cnn_shapes(input_shape: tuple[int, ...], classes: int) -> Shapes:
    if not is_image(input_shape):
        raise InvalidInput(
            f"inputs of the cnn have shape {input_shape}; allowed: (height, width), each at least {_SMALLEST_IMAGE}"
        )
    first, second = _FILTERS
    height, width = ((length - 3) // 2 for length in input_shape)
    features = second * ((height + 1) // 2) * ((width + 1) // 2)
    return (
        {"first.weight": (first, 1, 5, 5), "second.weight": (second, first, 3, 3)}
        | _norm_shapes("first_norm", first)
        | _norm_shapes("second_norm", second)
        | _dense_shapes(features, classes)
    )


def _dense_shapes(features: int, classes: int) -> Shapes:
    return (
        {"hidden.weight": (features, _HIDDEN)}
        | _norm_shapes("hidden_norm", _HIDDEN)
        | {"out.weight": (_HIDDEN, classes), "out.shift": (classes,)}
    )


def _norm_shapes(layer: str, channels: int) -> Shapes:
    return {f"{layer}.scale": (channels,), f"{layer}.shift": (channels,)}


def _cnn_logits(parameters: Parameters, inputs: Tensor, found: Parameters | None) -> Tensor:
    """Two convolutions with stride 2, each with batch norm, then two dense layers."""
    # Strides instead of pooling: torch's max_pool2d is not vectorised on a CPU and takes most of the time.
    maps = functional.conv2d(inputs[:, None], parameters["first.weight"], stride=2)
    scale, offset = _norm(parameters, "first_norm", maps, found)
    maps = torch.relu(maps * scale.view(-1, 1, 1) + offset.view(-1, 1, 1))
    maps = functional.conv2d(maps, parameters["second.weight"], stride=2, padding=1)
    scale, offset = _norm(parameters, "second_norm", maps, found)
    return _dense_logits(parameters, torch.relu(maps * scale.view(-1, 1, 1) + offset.view(-1, 1, 1)), found)


def _dense_logits(parameters: Parameters, inputs: Tensor, found: Parameters | None) -> Tensor:
    hidden = inputs.flatten(1) @ parameters["hidden.weight"]
    scale, offset = _norm(parameters, "hidden_norm", hidden, found)
    return torch.relu(hidden * scale + offset) @ parameters["out.weight"] + parameters["out.shift"]


def _norm(parameters: Parameters, layer: str, values: Tensor, found: Parameters | None) -> tuple[Tensor, Tensor]:
    """The factor and the offset that batch norm applies to each channel of [rows, channels, ...]."""
    if f"{layer}.mean" in parameters:
        mean, variance = parameters[f"{layer}.mean"], parameters[f"{layer}.variance"]
    else:
        axes = [0, *range(2, values.ndim)]
        variance, mean = torch.var_mean(values, axes, correction=0)
    if found is not None:
        found[f"{layer}.mean"], found[f"{layer}.variance"] = mean, variance
    scale = parameters[f"{layer}.scale"] * torch.rsqrt(variance + _VARIANCE_FLOOR)
    return scale, parameters[f"{layer}.shift"] - mean * scale


CNN: Final = StudentNetwork("cnn", _cnn_shapes, _cnn_logits)
MLP: Final = StudentNetwork("mlp", lambda shape, classes: _dense_shapes(math.prod(shape), classes), _dense_logits)
