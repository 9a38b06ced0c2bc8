"""A private model as plain arrays: dense layers, convolutions, ReLU and average pools; and its inference in floats.

Weights may come from any framework. Dense weights are [outputs, inputs]; kernels are [filters, channels, height,
width]; an image is flattened as channels x height x width.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from jaxtyping import Float, Float64
from numpy import ndarray

from protocols.errors import InvalidInput
from protocols.levels.hidden_queries.inference.architecture import (
    ConvolutionShape,
    DenseShape,
    LayerShape,
    PoolShape,
    ReLUShape,
)

SUPPORTED = "Dense, Convolution (padding valid or same), ReLU, AveragePool; batch norm folded by `fold_batch_norm`"


@dataclass(frozen=True, eq=False)
class Dense:
    """weights @ inputs + bias."""

    weights: Float[ndarray, "outputs inputs"] = field(repr=False)
    bias: Float[ndarray, " biases"] = field(repr=False)


@dataclass(frozen=True, eq=False)
class Convolution:
    """A cross-correlation with kernels, and one bias per filter."""

    kernels: Float[ndarray, "filters channels height width"] = field(repr=False)
    bias: Float[ndarray, " biases"] = field(repr=False)
    stride: int = 1
    padding: Literal["valid", "same"] = "valid"


@dataclass(frozen=True)
class ReLU:
    """max(x, 0)."""


@dataclass(frozen=True)
class AveragePool:
    """Means over squares of size x size that do not overlap and cover the image."""

    size: int


@dataclass(frozen=True, eq=False)
class Model:
    """Layers over inputs of one shape: (features,), (height, width) or (channels, height, width).

    A layer is a Dense, a Convolution, a ReLU or an AveragePool.

    Raises InvalidInput for a layer that private inference does not support, and for shapes that do not fit together.
    """

    input_shape: tuple[int, ...]
    layers: tuple[object, ...]

    def __post_init__(self) -> None:
        if len(self.input_shape) not in (1, 2, 3) or min(self.input_shape) < 1:
            raise InvalidInput(f"input_shape is {self.input_shape}; allowed: one, two or three positive sizes")
        if not self.layers:
            raise InvalidInput(f"the model has no layers; supported: {SUPPORTED}")
        shape = self.input_shape
        for number, layer in enumerate(self.layers, 1):
            shape = _output_shape(number, layer, shape)

    @property
    def features(self) -> int:
        """Numbers in one input."""
        return int(np.prod(self.input_shape, dtype=np.int64))

    def shapes(self) -> tuple[LayerShape, ...]:
        """The layers' public shapes; no ReLU drops bits yet."""
        found, shape = [], self.input_shape
        for number, layer in enumerate(self.layers, 1):
            found.append(_public(layer, shape))
            shape = _output_shape(number, layer, shape)
        return tuple(found)


def fold_batch_norm(
    layer: Dense | Convolution, *, scale: Float[ndarray, " outputs"], shift: Float[ndarray, " outputs"],
    mean: Float[ndarray, " outputs"], variance: Float[ndarray, " outputs"], floor: float,
) -> Dense | Convolution:  # fmt: skip
    """The layer followed by batch norm with fixed statistics (Ioffe & Szegedy 2015, Algorithm 2), as one layer.

    floor: the constant that batch norm adds to the variance.
    """
    if not (np.isfinite(variance).all() and (variance + floor > 0).all()):
        raise InvalidInput("variance + floor is not above 0 everywhere; allowed: positive and finite")
    factor = scale / np.sqrt(variance + floor)
    bias = (layer.bias - mean) * factor + shift
    if isinstance(layer, Dense):
        return replace(layer, weights=layer.weights * factor[:, None], bias=bias)
    return replace(layer, kernels=layer.kernels * factor[:, None, None, None], bias=bias)


def matrix(layer: Dense | Convolution) -> Float64[ndarray, "outputs terms"]:
    """A layer's weights, one row per output or filter."""
    weights = layer.weights if isinstance(layer, Dense) else layer.kernels
    return weights.reshape(len(weights), -1).astype(np.float64)


def _output_shape(number: int, layer: object, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape after one layer; InvalidInput if the layer cannot take `shape`."""
    if isinstance(layer, Dense | Convolution):
        weights, rank = (layer.weights, 2) if isinstance(layer, Dense) else (layer.kernels, 4)
        if weights.ndim != rank or layer.bias.shape != weights.shape[:1] or not weights.size:
            raise InvalidInput(
                f"layer {number} has weights of shape {weights.shape} and biases of shape {layer.bias.shape}; allowed: "
                f"{rank} axes, none empty, and one bias for each of the first"
            )
        if not (np.isfinite(weights).all() and np.isfinite(layer.bias).all()):
            raise InvalidInput(f"layer {number} has weights or biases that are not finite")
    if isinstance(layer, Dense):
        if layer.weights.shape[1] != np.prod(shape):
            raise InvalidInput(f"layer {number} takes {layer.weights.shape[1]} values; it is given shape {shape}")
        return (len(layer.weights),)
    if isinstance(layer, ReLU):
        return shape
    if not isinstance(layer, Convolution | AveragePool):
        raise InvalidInput(f"layer {number} is a {type(layer).__name__}; supported: {SUPPORTED}")
    if len(shape) == 1:
        raise InvalidInput(f"layer {number}, {type(layer).__name__}, is given shape {shape}; allowed: images")
    channels, height, width = _image(shape)
    if isinstance(layer, AveragePool):
        if layer.size < 1 or height % layer.size or width % layer.size:
            raise InvalidInput(f"layer {number} pools squares of {layer.size}; allowed: divisors of {height}, {width}")
        return (channels, height // layer.size, width // layer.size)
    if layer.padding not in ("valid", "same") or layer.stride < 1:
        raise InvalidInput(
            f"layer {number} has padding {layer.padding!r} and stride {layer.stride}; allowed: valid or same; 1 or more"
        )
    _, taken, kernel_height, kernel_width = layer.kernels.shape
    if taken != channels or (layer.padding == "valid" and (kernel_height > height or kernel_width > width)):
        raise InvalidInput(f"layer {number} has kernels of shape {layer.kernels.shape}; it is given shape {shape}")
    public = _public(layer, shape)
    assert isinstance(public, ConvolutionShape)
    return public.output_shape


def _public(layer: object, shape: tuple[int, ...]) -> LayerShape:
    if isinstance(layer, Dense):
        return DenseShape(inputs=layer.weights.shape[1], outputs=layer.weights.shape[0])
    if isinstance(layer, ReLU):
        return ReLUShape(inputs=int(np.prod(shape, dtype=np.int64)), shift=0)
    channels, height, width = _image(shape)
    if isinstance(layer, AveragePool):
        return PoolShape(channels, height, width, layer.size)
    assert isinstance(layer, Convolution)  # the model was checked when it was made
    filters, _, kernel_height, kernel_width = layer.kernels.shape
    kernel = (kernel_height, kernel_width)
    return ConvolutionShape(channels, height, width, filters, kernel, layer.stride, layer.padding)


def _image(shape: tuple[int, ...]) -> tuple[int, int, int]:
    channels, height, width = shape if len(shape) == 3 else (1, *shape)
    return channels, height, width
