"""The public architecture of a private model, and exact integer matrix products.

Matrix products in Z_2^32 by float64 products that are exact: every partial sum is an integer below 2^53.

Integer matrices have no fast product in NumPy. Factors are therefore cut into signed halves of 16 bits whose products
a float64 holds (the splitting of Ozaki et al. 2012, "Error-free transformations of matrix multiplication").

What is public about a private model: its layers' shapes and its precision, never a weight.

All values between layers are flat rows, one per query; convolutions and pools see them as channels x height x width.

The sizes of a private inference's messages, checked against the hub's limits before anything is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Literal

import numpy as np
from jaxtyping import Float64, Int64, Shaped, UInt32
from numpy import ndarray

from protocols.errors import InvalidInput

Multiply = Callable[[UInt32[ndarray, "rows inner"]], UInt32[ndarray, "rows outputs"]]

# With more terms, a sum of products of 16-bit halves might exceed 2^53.
MAX_INNER = 2**20
_EXACT = 2.0**53


def by_uniform(matrix: UInt32[ndarray, "outputs inner"]) -> Multiply:
    """Rows -> rows @ matrix.T modulo 2^32, for any matrix."""
    low, high = _halves(matrix.T)
    swapped = np.concatenate([high, low])

    def multiply(rows: UInt32[ndarray, "rows inner"]) -> UInt32[ndarray, "rows outputs"]:
        left_low, left_high = _halves(rows)
        crossed = np.concatenate([left_low, left_high], axis=1) @ swapped
        return _wrapped(left_low @ low) + (_wrapped(crossed) << np.uint32(16))

    return multiply


def by_small(matrix: Int64[ndarray, "outputs inner"]) -> Multiply:
    """Rows -> rows @ matrix.T modulo 2^32, for a matrix whose rows have sums of absolute values below 2^37."""
    right = np.ascontiguousarray(matrix.T, dtype=np.float64)
    one_product = float(np.abs(right).sum(axis=0).max(initial=0.0)) * 2.0**31 < _EXACT

    def multiply(rows: UInt32[ndarray, "rows inner"]) -> UInt32[ndarray, "rows outputs"]:
        if one_product:
            return _wrapped(rows.view(np.int32).astype(np.float64) @ right)
        low, high = _halves(rows)
        return _wrapped(low @ right) + (_wrapped(high @ right) << np.uint32(16))

    return multiply


def _halves(
    values: UInt32[ndarray, "rows columns"],
) -> tuple[Float64[ndarray, "rows columns"], Float64[ndarray, "rows columns"]]:
    """(low, high), integers of at most 2^15 in size, with values = low + 2^16 high modulo 2^32."""
    low = values.astype(np.int16)
    high = ((values - low.astype(np.uint32)) >> np.uint32(16)).astype(np.int16)
    return low.astype(np.float64), high.astype(np.float64)


def _wrapped(exact: Float64[ndarray, "rows columns"]) -> UInt32[ndarray, "rows columns"]:
    return exact.astype(np.int64).astype(np.uint32)


MAX_FEATURES = 2**20
MAX_WEIGHTS = 2**25
_MAX_CLASSES = 256
# A batch takes two rounds of messages for a ReLU, and each may take the study's whole deadline.
MAX_LAYERS = 64
# A chunk of queries has at most so many numbers in its matrix of columns.
_CHUNK = 2**21


@dataclass(frozen=True)
class Precision:
    """Fixed point, public: x -> round(x 2^bits).

    input_bits: fraction bits of inputs and of what leaves a ReLU; weight_bits: of weights; accumulator_bits: sums and
    differences of scores fit in this many bits with sign, or the model is refused; input_bound: the largest absolute
    value of an input. All four are public, so they are chosen without looking at weights.
    """

    input_bits: int = 8
    weight_bits: int = 12
    accumulator_bits: int = 31
    input_bound: float | int = 1.0

    def __post_init__(self) -> None:
        for name, least, most in (("input_bits", 0, 16), ("weight_bits", 1, 16), ("accumulator_bits", 8, 32)):
            value = getattr(self, name)
            if not isinstance(value, int) or not least <= value <= most:
                raise InvalidInput(f"{name} is {value}; allowed: whole numbers from {least} to {most}")
        if not (isfinite(self.input_bound) and 0 < self.input_bound <= 2**20):
            raise InvalidInput(f"input_bound is {self.input_bound}; allowed: above 0, at most 2**20")


@dataclass(frozen=True)
class DenseShape:
    """outputs = weights @ inputs + bias."""

    inputs: int
    outputs: int

    def __post_init__(self) -> None:
        _check_sizes(self.inputs, self.outputs)

    @property
    def matrix(self) -> tuple[int, int]:
        """Outputs and inputs of the matrix of weights."""
        return (self.outputs, self.inputs)

    @property
    def bias_copies(self) -> int:
        return 1

    def columns(self, values: Shaped[ndarray, "queries inputs"]) -> Shaped[ndarray, "queries inputs"]:
        """The rows that the matrix multiplies."""
        return values

    def gathered(self, products: Shaped[ndarray, "rows filters"]) -> Shaped[ndarray, "queries outputs"]:
        """Products of those rows as flat outputs."""
        return products

    @property
    def chunk(self) -> int:
        """Queries that are worked on together."""
        return max(1, _CHUNK // self.inputs)


@dataclass(frozen=True)
class ConvolutionShape:
    """A cross-correlation; padding "same" adds zeros so that outputs = ceil(inputs / stride)."""

    channels: int
    height: int
    width: int
    filters: int
    kernel: tuple[int, int]
    stride: int
    padding: Literal["valid", "same"]

    def __post_init__(self) -> None:
        _check_sizes(self.channels, self.height, self.width, self.filters, *self.kernel, self.stride)
        if self.padding not in ("valid", "same"):
            raise InvalidInput(f"padding is {self.padding!r}; allowed: valid, same")
        if self.padding == "valid" and (self.kernel[0] > self.height or self.kernel[1] > self.width):
            raise InvalidInput(f"kernels are {self.kernel}; allowed: at most {self.height} x {self.width}")

    @property
    def _rows_columns(self) -> tuple[int, int]:
        if self.padding == "same":
            return -(-self.height // self.stride), -(-self.width // self.stride)
        return (self.height - self.kernel[0]) // self.stride + 1, (self.width - self.kernel[1]) // self.stride + 1

    @property
    def output_shape(self) -> tuple[int, int, int]:
        """Filters, height and width."""
        return (self.filters, *self._rows_columns)

    @property
    def inputs(self) -> int:
        return self.channels * self.height * self.width

    @property
    def outputs(self) -> int:
        return self.filters * self.bias_copies

    @property
    def matrix(self) -> tuple[int, int]:
        """Filters and terms of one output."""
        return (self.filters, self.channels * self.kernel[0] * self.kernel[1])

    @property
    def bias_copies(self) -> int:
        rows, columns = self._rows_columns
        return rows * columns

    def columns(self, values: Shaped[ndarray, "queries inputs"]) -> Shaped[ndarray, "rows terms"]:
        """One row for each query and position: what the kernels see there."""
        images = values.reshape(-1, self.channels, self.height, self.width)
        if self.padding == "same":
            pads = [self._pad(axis) for axis in (0, 1)]
            images = np.pad(images, ((0, 0), (0, 0), *pads))
        windows = np.lib.stride_tricks.sliding_window_view(images, self.kernel, axis=(2, 3))
        windows = windows[:, :, :: self.stride, :: self.stride].transpose(0, 2, 3, 1, 4, 5)
        return np.ascontiguousarray(windows).reshape(-1, self.matrix[1])

    def gathered(self, products: Shaped[ndarray, "rows filters"]) -> Shaped[ndarray, "queries outputs"]:
        """Products of those rows as flat outputs."""
        by_query = products.reshape(-1, self.bias_copies, self.filters).transpose(0, 2, 1)
        return np.ascontiguousarray(by_query).reshape(-1, self.outputs)

    def _pad(self, axis: int) -> tuple[int, int]:
        size, kernel = (self.height, self.width)[axis], self.kernel[axis]
        total = max(0, (self._rows_columns[axis] - 1) * self.stride + kernel - size)
        return total // 2, total - total // 2

    @property
    def chunk(self) -> int:
        """Queries that are worked on together."""
        return max(1, _CHUNK // (self.matrix[1] * self.bias_copies))


@dataclass(frozen=True)
class PoolShape:
    """Sums over squares of size x size that do not overlap: an average, up to a public factor."""

    channels: int
    height: int
    width: int
    size: int

    def __post_init__(self) -> None:
        _check_sizes(self.channels, self.height, self.width, self.size)
        if self.height % self.size or self.width % self.size:
            raise InvalidInput(f"squares of {self.size}; allowed: divisors of {self.height}, {self.width}")

    @property
    def inputs(self) -> int:
        return self.channels * self.height * self.width

    @property
    def outputs(self) -> int:
        return self.inputs // self.size**2

    def sums(self, values: Shaped[ndarray, "queries inputs"]) -> Shaped[ndarray, "queries outputs"]:
        """The sums, in the arithmetic of the values' dtype."""
        height, width = self.height // self.size, self.width // self.size
        squares = values.reshape(-1, self.channels, height, self.size, width, self.size)
        return squares.sum(axis=(3, 5), dtype=values.dtype).reshape(-1, self.outputs)


@dataclass(frozen=True)
class ReLUShape:
    """max(x, 0) / 2^shift, rounded to the nearest integer, halves upwards."""

    inputs: int
    shift: int

    def __post_init__(self) -> None:
        _check_sizes(self.inputs, self.shift + 1)

    @property
    def outputs(self) -> int:
        return self.inputs

    @property
    def half(self) -> int:
        """What is added before the lowest bits are dropped, so that this rounds; negative x still gives 0."""
        return (1 << self.shift) >> 1

    def applied(self, values: Int64[ndarray, "queries inputs"]) -> Int64[ndarray, "queries inputs"]:
        """The layer in the clear."""
        return np.maximum(values + self.half, 0) >> self.shift


LinearShape = DenseShape | ConvolutionShape
LayerShape = LinearShape | PoolShape | ReLUShape


@dataclass(frozen=True)
class Architecture:
    """The public shape of a quantised model. Its last layer's outputs are the classes' scores."""

    features: int
    layers: tuple[LayerShape, ...]
    precision: Precision

    def __post_init__(self) -> None:
        if len(self.layers) > MAX_LAYERS:
            raise InvalidInput(f"the model has {len(self.layers)} layers; allowed: at most {MAX_LAYERS}")
        width = self.features
        for number, layer in enumerate(self.layers, 1):
            if layer.inputs != width:
                raise InvalidInput(f"layer {number} takes {layer.inputs} values; the layer before it gives {width}")
            width = layer.outputs
            if not 1 <= width <= MAX_FEATURES:
                raise InvalidInput(f"layer {number} gives {width} values; allowed: 1 to {MAX_FEATURES}")
            if isinstance(layer, LinearShape) and layer.matrix[1] > MAX_INNER:
                raise InvalidInput(f"layer {number} sums {layer.matrix[1]} terms; allowed: at most {MAX_INNER}")
            if isinstance(layer, LinearShape) and layer.matrix[0] * layer.matrix[1] > MAX_WEIGHTS:
                weights = layer.matrix[0] * layer.matrix[1]
                raise InvalidInput(f"layer {number} has {weights} weights; allowed: at most {MAX_WEIGHTS}")
            if isinstance(layer, ReLUShape) and layer.shift > self.precision.accumulator_bits - 2:
                most = self.precision.accumulator_bits - 2
                raise InvalidInput(f"layer {number} drops {layer.shift} bits; allowed: 0 to {most}")
        if not any(isinstance(layer, LinearShape) for layer in self.layers):
            raise InvalidInput("the model has no layer with weights; allowed: at least one dense layer or convolution")
        if not 2 <= width <= _MAX_CLASSES:
            raise InvalidInput(f"the model has {width} classes; allowed: 2 to {_MAX_CLASSES}")

    @property
    def classes(self) -> int:
        """Scores that the last layer gives."""
        return self.layers[-1].outputs


def _check_sizes(*sizes: int) -> None:
    for size in sizes:
        if not 1 <= size <= MAX_FEATURES:
            raise InvalidInput(f"a size is {size}; allowed: 1 to {MAX_FEATURES}")
