"""The teachers' networks as functions of their parameters, so that many of them can be stacked by torch.func.

`cnn` is the network of Individualized PATE (Boenisch et al. 2023): 32 convolutions 3x3, batch norm, max-pool, fully
connected 100, batch norm, softmax; of colour images the convolutions see all three channels. `small_cnn` has 8
convolutions with stride 2 instead of 32 and a pool; it can be computed on shares, as `mlp` can: see
protocols/levels/hidden_queries/inference. Batch norm keeps no running averages, which would be state that vmap cannot
write: in training it uses the batch's own statistics, and a last pass over the shard finds those that predictions use
("final statistics")."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from protocols.errors import InvalidInput
from protocols.levels.hidden_queries.inference.model import Convolution, Dense, ReLU, fold_batch_norm
from runtime.torch_networks import (
    VARIANCE_FLOOR,
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

_FILTERS: Final = 32
_SMALL_FILTERS: Final = 8
_HIDDEN: Final = 100
# The row and column offsets of the four positions of a 2x2 pooling window.
_POOL_OFFSETS: Final = ((0, 0), (0, 1), (1, 0), (1, 1))


@dataclass(frozen=True)
class TeacherNetwork:
    """One architecture.

    `trained(input_shape, classes)` and `found(input_shape)` give the shapes of the parameters that gradients train and
    of the final statistics. `logits(parameters, inputs, found)` uses the statistics in `parameters` if present,
    otherwise those of `inputs`; if `found` is a dict, it writes the ones that it used there. `layers(parameters)` is
    the trained network as layers that can be computed on shares; None if that is impossible.
    """

    name: str
    trained: Callable[[tuple[int, ...], int], Shapes]
    found: Callable[[tuple[int, ...]], Shapes]
    logits: Callable[[Parameters, Tensor, Parameters | None], Tensor]
    learning_rate: float
    augmented: bool
    images: bool
    layers: Callable[[Parameters], tuple[object, ...]] | None

    def initial(self, generator: np.random.Generator, input_shape: tuple[int, ...], classes: int) -> Parameters:
        """Parameters before training, see torch_networks.initial."""
        return initial(self.trained(input_shape, classes), generator)


def _cnn_trained(input_shape: tuple[int, ...], classes: int) -> Shapes:
    if len(input_shape) not in (2, 3) or min(input_shape[:2]) < 8 or input_shape[2:] not in ((), (3,)):
        raise InvalidInput(
            f"inputs of the cnn have shape {input_shape}; allowed: (height, width) or (height, width, 3), each side at "
            "least 8"
        )
    channels = 1 if len(input_shape) == 2 else 3
    pooled = _FILTERS * ((input_shape[0] - 2) // 2) * ((input_shape[1] - 2) // 2)
    convolution = {"conv.weight": (_FILTERS, channels, 3, 3)} | norm_shapes("conv_norm", _FILTERS)
    return convolution | dense_shapes(pooled, hidden=_HIDDEN, classes=classes)


_HIDDEN_FOUND: Final[Shapes] = {"hidden_norm.mean": (_HIDDEN,), "hidden_norm.variance": (_HIDDEN,)}
_CNN_FOUND: Final[Shapes] = {"conv_norm.mean": (_FILTERS,), "conv_norm.variance": (_FILTERS,)} | _HIDDEN_FOUND

_SMALL_CNN_FOUND: Final[Shapes] = {
    "conv_norm.mean": (_SMALL_FILTERS,),
    "conv_norm.variance": (_SMALL_FILTERS,),
} | _HIDDEN_FOUND


def _cnn_logits(parameters: Parameters, inputs: Tensor, found: Parameters | None) -> Tensor:
    weight = parameters["conv.weight"]
    inputs = planes(inputs)
    scale, offset = batch_norm(parameters, "conv_norm", lambda: _convolved_statistics(inputs, weight), found)
    # Batch norm is folded into the convolution. The four positions of each pooling window become four
    # groups of filters of one convolution with stride 2: the same result as convolving, normalising and
    # max-pooling, in a third of the time on a CPU, where torch's max_pool2d is not vectorised.
    scaled = weight * scale[:, None, None, None]
    filters = torch.cat([functional.pad(scaled, (x, 1 - x, y, 1 - y)) for y, x in _POOL_OFFSETS])
    windows = functional.conv2d(inputs, filters, stride=2)
    windows = windows.view(len(inputs), 4, _FILTERS, *windows.shape[2:])
    # max keeps the winning index, which makes its gradient cheaper; without gradients amax is faster.
    pooled = windows.max(1).values if torch.is_grad_enabled() else windows.amax(1)
    return _dense_logits(parameters, torch.relu(pooled + offset[:, None, None]), found)


def _dense_logits(parameters: Parameters, inputs: Tensor, found: Parameters | None) -> Tensor:
    return dense_logits(parameters, inputs, _batch_statistics, found)


def _small_cnn_trained(input_shape: tuple[int, ...], classes: int) -> Shapes:
    if len(input_shape) != 2 or min(input_shape) < 8:
        raise InvalidInput(
            f"inputs of the small_cnn have shape {input_shape}; allowed: (height, width), each at least 8"
        )
    rows, columns = ((side - 3) // 2 + 1 for side in input_shape)
    convolution = {"conv.weight": (_SMALL_FILTERS, 1, 3, 3)} | norm_shapes("conv_norm", _SMALL_FILTERS)
    return convolution | dense_shapes(_SMALL_FILTERS * rows * columns, hidden=_HIDDEN, classes=classes)


def _small_cnn_logits(parameters: Parameters, inputs: Tensor, found: Parameters | None) -> Tensor:
    images = functional.conv2d(inputs[:, None], parameters["conv.weight"], stride=2)
    pixels = images.movedim(1, -1).flatten(0, -2)
    scale, offset = batch_norm(parameters, "conv_norm", lambda: _batch_statistics(pixels), found)
    return _dense_logits(parameters, torch.relu(images * scale[:, None, None] + offset[:, None, None]), found)


def _small_cnn_layers(parameters: Parameters) -> tuple[object, ...]:
    kernels = parameters["conv.weight"].numpy()
    convolution = Convolution(kernels, np.zeros(len(kernels), np.float32), stride=2)
    return (_folded(convolution, parameters, "conv_norm"), ReLU(), *_dense_layers(parameters))


def _dense_layers(parameters: Parameters) -> tuple[object, ...]:
    hidden = Dense(parameters["hidden.weight"].numpy().T, np.zeros(_HIDDEN, np.float32))
    scores = Dense(parameters["out.weight"].numpy().T, parameters["out.shift"].numpy())
    return _folded(hidden, parameters, "hidden_norm"), ReLU(), scores


def _folded(layer: Dense | Convolution, parameters: Parameters, norm: str) -> Dense | Convolution:
    found = {name: parameters[f"{norm}.{name}"].numpy() for name in ("scale", "shift", "mean", "variance")}
    return fold_batch_norm(layer, **found, floor=VARIANCE_FLOOR)


def _batch_statistics(values: Float[Tensor, "rows channels"]) -> Statistics:
    mean = values.mean(0)
    return mean, (values - mean).square().mean(0)


def _convolved_statistics(
    images: Float[Tensor, "rows channels height width"], weight: Float[Tensor, "filters channels 3 3"]
) -> Statistics:
    """Mean and variance of each filter's output, from the covariance of the image patches, 9x9 for grey ones.

    A filter's output is w . patch, so its mean is w . mean(patch) and its variance w' Cov(patch) w. This is
    exact, and spares a pass over the whole convolved batch.
    """
    channels, height, width = images.shape[1], images.shape[2] - 2, images.shape[3] - 2
    patches = torch.stack(
        [
            images[:, channel, y : y + height, x : x + width]
            for channel in range(channels)
            for y in range(3)
            for x in range(3)
        ]
    ).flatten(1)
    mean = patches.mean(1)
    centred = patches - mean[:, None]
    covariance = centred @ centred.T / patches.shape[1]
    filters = weight.flatten(1)
    return filters @ mean, ((filters @ covariance) * filters).sum(1)


CNN: Final = TeacherNetwork(
    "cnn",
    _cnn_trained,
    lambda shape: _CNN_FOUND,
    _cnn_logits,
    learning_rate=0.02,
    augmented=True,
    images=True,
    layers=None,
)
SMALL_CNN: Final = TeacherNetwork(
    "small_cnn",
    _small_cnn_trained,
    lambda shape: _SMALL_CNN_FOUND,
    _small_cnn_logits,
    learning_rate=0.02,
    augmented=False,
    images=True,
    layers=_small_cnn_layers,
)
MLP: Final = TeacherNetwork(
    "mlp",
    lambda shape, classes: dense_shapes(math.prod(shape), hidden=_HIDDEN, classes=classes),
    lambda shape: _HIDDEN_FOUND,
    _dense_logits,
    learning_rate=0.01,
    augmented=False,
    images=False,
    layers=_dense_layers,
)
