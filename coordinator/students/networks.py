"""The students' networks as functions of their parameters, which makes averaging over steps simple."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from coordinator.students.validation import SMALLEST_IMAGE, is_image
from protocols.errors import InvalidInput
from runtime.torch_networks import (
    Parameters,
    Shapes,
    Statistics,
    batch_norm,
    dense_logits,
    dense_shapes,
    initial,
    norm_shapes,
    planes,
)

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
        """Parameters before training, see torch_networks.initial."""
        return initial(self.shapes(input_shape, classes), generator)


def convolutions(name: str, input_shape: tuple[int, ...]) -> tuple[Shapes, int]:
    """The weights of two convolutions, and how many values the second makes of an image, see _cnn_logits.

    Raises InvalidInput, with the network's name, for what is no image.
    """
    if not is_image(input_shape):
        raise InvalidInput(
            f"inputs of the {name} have shape {input_shape}; allowed: (height, width) or (height, width, 3), each side "
            f"at least {SMALLEST_IMAGE}"
        )
    first, second = _FILTERS
    height, width = ((length - 3) // 2 for length in input_shape[:2])
    channels = 1 if len(input_shape) == 2 else 3
    weights: Shapes = {"first.weight": (first, channels, 5, 5), "second.weight": (second, first, 3, 3)}
    return weights, second * ((height + 1) // 2) * ((width + 1) // 2)


def _cnn_shapes(input_shape: tuple[int, ...], classes: int) -> Shapes:
    weights, features = convolutions("cnn", input_shape)
    return (
        weights
        | norm_shapes("first_norm", _FILTERS[0])
        | norm_shapes("second_norm", _FILTERS[1])
        | dense_shapes(features, hidden=_HIDDEN, classes=classes)
    )


def _cnn_logits(parameters: Parameters, inputs: Tensor, found: Parameters | None) -> Tensor:
    """Two convolutions with stride 2, each with batch norm, then two dense layers."""
    # Strides instead of pooling: torch's max_pool2d is not vectorised on a CPU and takes most of the time.
    first = functional.conv2d(planes(inputs), parameters["first.weight"], stride=2)
    scale, offset = batch_norm(parameters, "first_norm", lambda: _batch_statistics(first), found)
    maps = torch.relu(first * scale.view(-1, 1, 1) + offset.view(-1, 1, 1))
    second = functional.conv2d(maps, parameters["second.weight"], stride=2, padding=1)
    scale, offset = batch_norm(parameters, "second_norm", lambda: _batch_statistics(second), found)
    return _dense_logits(parameters, torch.relu(second * scale.view(-1, 1, 1) + offset.view(-1, 1, 1)), found)


def _dense_logits(parameters: Parameters, inputs: Tensor, found: Parameters | None) -> Tensor:
    return dense_logits(parameters, inputs, _batch_statistics, found)


def _batch_statistics(values: Tensor) -> Statistics:
    """Mean and variance of each channel of [rows, channels, ...]."""
    variance, mean = torch.var_mean(values, [0, *range(2, values.ndim)], correction=0)
    return mean, variance


CNN: Final = StudentNetwork("cnn", _cnn_shapes, _cnn_logits)
MLP: Final = StudentNetwork(
    "mlp", lambda shape, classes: dense_shapes(math.prod(shape), hidden=_HIDDEN, classes=classes), _dense_logits
)
