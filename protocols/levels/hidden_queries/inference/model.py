"""A private model as plain arrays: dense layers, convolutions, ReLU and average pools; and its inference in floats.

Weights may come from any framework. Dense weights are [outputs, inputs]; kernels are [filters, channels, height,
width]; an image is flattened as channels x height x width.

A model in fixed point, and its labels by plain integer arithmetic, which the private protocol gives bit for bit.

Weights are rounded to multiples of 2^-weight_bits, inputs to multiples of 2^-input_bits; sums are exact; a ReLU drops
the fraction bits that the weights brought, rounding half up. A pool sums, and the weights after it are divided by the
size of its squares before they are rounded. Nothing overflows: intervals (Moore 1966) for every sum,
over all inputs up to input_bound, are checked against accumulator_bits before anything is shared.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import log2
from typing import Literal

import numpy as np
from jaxtyping import Float, Float64, Int64
from numpy import ndarray

from protocols.errors import InvalidInput
from protocols.levels.hidden_queries.inference.architecture import (
    Architecture,
    ConvolutionShape,
    DenseShape,
    LayerShape,
    LinearShape,
    PoolShape,
    Precision,
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


@dataclass(frozen=True, eq=False)
class Weights:
    """One layer with weights, in integers. bias: one per output or filter, at the scale of the sums."""

    shape: LinearShape
    matrix: Int64[ndarray, "outputs terms"] = field(repr=False)
    bias: Int64[ndarray, " outputs"] = field(repr=False)

    def applied(self, values: Int64[ndarray, "queries inputs"]) -> Int64[ndarray, "queries outputs"]:
        """matrix @ values + bias, exactly, if no sum reaches 2^63."""
        shape = self.shape
        sums = [
            shape.gathered(shape.columns(values[start : start + shape.chunk]) @ self.matrix.T + self.bias)
            for start in range(0, len(values), shape.chunk)
        ]
        return np.concatenate(sums)


@dataclass(frozen=True, eq=False)
class QuantisedModel:
    """A model in fixed point: its public architecture, and the same layers with their private weights."""

    architecture: Architecture
    layers: tuple[Weights | PoolShape | ReLUShape, ...] = field(repr=False)


def quantise(model: Model, precision: Precision) -> QuantisedModel:
    """The model in fixed point.

    Raises InvalidInput, naming the layer and how large its sums can become, if some input would overflow the
    accumulators; nothing was shared then.
    """
    layers: list[Weights | PoolShape | ReLUShape] = []
    # A number represents the value number * factor / 2^bits.
    bits, factor = precision.input_bits, 1.0
    for layer, shape in zip(model.layers, model.shapes(), strict=True):
        if isinstance(layer, Dense | Convolution) and isinstance(shape, LinearShape):
            bits += precision.weight_bits
            layers.append(_rounded(shape, layer, factor * 2.0**precision.weight_bits, 2.0**bits))
            factor = 1.0
        elif isinstance(shape, PoolShape):
            factor /= shape.size**2
            layers.append(shape)
        elif isinstance(shape, ReLUShape):
            dropped = min(bits - precision.input_bits, precision.accumulator_bits - 2)
            layers.append(replace(shape, shift=dropped))
            bits -= dropped
    shapes = tuple(layer.shape if isinstance(layer, Weights) else layer for layer in layers)
    quantised = QuantisedModel(Architecture(model.features, shapes, precision), tuple(layers))
    _check_no_overflow(quantised)
    return quantised


def quantised_inputs(
    architecture: Architecture, inputs: Float[ndarray, "queries ..."]
) -> Int64[ndarray, "queries features"]:
    """Inputs in fixed point, one row per query. Raises InvalidInput above input_bound, without giving the value."""
    values = inputs.reshape(len(inputs), -1).astype(np.float64)
    if values.shape[1] != architecture.features:
        raise InvalidInput(f"queries have {values.shape[1]} values; the model takes {architecture.features}")
    check_inputs(values, architecture.precision)
    return np.rint(values * 2.0**architecture.precision.input_bits).astype(np.int64)


def check_inputs(inputs: Float[ndarray, "queries ..."], precision: Precision) -> None:
    """Raises InvalidInput above input_bound, without giving the value."""
    bound = precision.input_bound
    values = inputs.reshape(len(inputs), -1)
    if values.size and not (values.min() >= -bound and values.max() <= bound):
        bad = int(np.count_nonzero(~(np.abs(values) <= bound).all(axis=1)))
        raise InvalidInput(f"{bad} of {len(values)} queries have values outside the allowed -{bound:g} to {bound:g}")


def plain_inference(model: QuantisedModel, inputs: Float[ndarray, "queries ..."]) -> Int64[ndarray, " queries"]:
    """The quantised model's labels, by integer arithmetic in the clear; ties go to the lowest class."""
    values = quantised_inputs(model.architecture, inputs)
    for layer in model.layers:
        values = layer.sums(values) if isinstance(layer, PoolShape) else layer.applied(values)
    return values.argmax(axis=1)


def _rounded(shape: LinearShape, layer: Dense | Convolution, scale: float, bias_scale: float) -> Weights:
    weights, bias = np.rint(matrix(layer) * scale), np.rint(layer.bias.astype(np.float64) * bias_scale)
    # Above 2^32 the layer overflows for any input; clipped so that the check below can say so.
    return Weights(
        shape,
        np.clip(weights, -(2.0**32), 2.0**32).astype(np.int64),
        np.clip(bias, -(2.0**40), 2.0**40).astype(np.int64),
    )


def _check_no_overflow(model: QuantisedModel) -> None:
    """Raises InvalidInput if some input of size input_bound could bring a sum beyond the accumulators."""
    precision = model.architecture.precision
    limit = 2 ** (precision.accumulator_bits - 1)
    top = int(np.rint(precision.input_bound * 2.0**precision.input_bits))
    high = np.full((1, model.architecture.features), top, dtype=np.int64)
    low = -high
    for number, (shape, layer) in enumerate(zip(model.architecture.layers, model.layers, strict=True), 1):
        if isinstance(layer, ReLUShape):
            low, high = layer.applied(low), layer.applied(high)
        elif isinstance(layer, PoolShape):
            low, high = layer.sums(low), layer.sums(high)
        else:
            # Floats first: what they cannot hold exactly is far above the limit, and integers might wrap.
            sizes = np.abs(layer.matrix).astype(np.float64).sum(axis=1).max() * float(
                max(np.abs(low).max(), high.max())
            )
            if sizes < 2.0**60:
                up = replace(layer, matrix=np.maximum(layer.matrix, 0))
                down = replace(layer, matrix=np.minimum(layer.matrix, 0), bias=0 * layer.bias)
                low, high = up.applied(low) + down.applied(high), up.applied(high) + down.applied(low)
            else:
                high = np.full((1, layer.shape.outputs), 2**62, dtype=np.int64)
                low = -high
        following = model.architecture.layers[number : number + 1]
        added = following[0].half if following and isinstance(following[0], ReLUShape) else 0
        reached = int(max(high.max() + added, -low.min()))
        if reached >= limit:
            raise InvalidInput(
                f"layer {number} ({type(shape).__name__.removesuffix('Shape')}) can reach {_power(reached)} for inputs "
                f"up to {precision.input_bound:g}; allowed: below 2**{precision.accumulator_bits - 1}, with "
                f"{precision.input_bits} input_bits and {precision.weight_bits} weight_bits: use fewer bits"
            )
    spread = int(high.max() - low.min())
    if spread >= limit:
        raise InvalidInput(
            f"scores of layer {len(model.layers)} can differ by {_power(spread)}; allowed: below "
            f"2**{precision.accumulator_bits - 1}: use fewer bits"
        )


def _power(size: int) -> str:
    return f"2**{log2(size):.1f}"
