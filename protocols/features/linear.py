"""Linear maps of features in whole numbers: a matrix times a record, and a scale for each value.

LinearMap: a matrix times a record, in whole numbers: principal components of a public pool, or a random projection.

Scale: each value less a constant and times another, in whole numbers, so that it is the same on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray

from protocols.errors import InvalidInput
from protocols.features.stage import EXACT, MOST_STEPS, STEPS, Stage, whole_steps

# An entry of 1 of the matrix is so many units.
MATRIX_UNITS = 2**14
_ROWS = 4096


@dataclass(frozen=True, eq=False)
class LinearMap(Stage):
    """Records x of any shape, flattened, become x @ matrix - offset, in units of 1 / (STEPS * UNITS).

    Raises InvalidInput where a sum might not be exact: each column's absolute sum, times MOST_STEPS, and its offset
    stay below 2**53.
    """

    number = 1
    layout = {"matrix": ("<i8", 2), "offset": ("<i8", 1)}  # noqa: RUF012  # declared a ClassVar in Stage

    matrix: Int64[ndarray, "inputs outputs"] = field(repr=False)
    offset: Int64[ndarray, " outputs"] = field(repr=False)

    def __post_init__(self) -> None:
        inputs, outputs = self.matrix.shape
        if inputs < 1 or outputs < 1:
            raise InvalidInput(
                f"a linear feature map has a matrix of shape {self.matrix.shape}; allowed: (inputs, outputs), each at "
                "least 1"
            )
        # In float64 first: sums of untrusted integers may not fit 64 bits.
        reach = np.abs(self.matrix.astype(np.float64)).sum(axis=0) * MOST_STEPS + np.abs(self.offset.astype(np.float64))
        if reach.max() >= EXACT / 2:
            raise InvalidInput(
                f"a linear feature map may reach {reach.max():.3g} units; allowed: below {EXACT // 2}, for exact sums"
            )

    @classmethod
    def of(cls, matrix: Float64[ndarray, "inputs outputs"], mean: Float64[ndarray, " inputs"]) -> LinearMap:
        """The map x -> (x - mean) @ matrix, rounded to units. Raises InvalidInput."""
        if not (np.isfinite(matrix).all() and np.isfinite(mean).all()):
            raise InvalidInput("a linear feature map holds NaN or infinite values; allowed: finite")
        units = np.rint(matrix * MATRIX_UNITS)
        centre = whole_steps(mean)
        return cls(units.astype(np.int64), np.rint(centre @ units).astype(np.int64))

    def output_shape(self, input_shape: tuple[int, ...]) -> tuple[int, ...]:
        inputs, outputs = self.matrix.shape
        if math.prod(input_shape) != inputs:
            raise InvalidInput(
                f"a linear feature map of {inputs} values is given records of shape {input_shape}; "
                f"allowed: {inputs} values each"
            )
        return (outputs,)

    def __call__(self, records: Float32[ndarray, "records *shape"]) -> Float32[ndarray, "records outputs"]:
        flat = records.reshape(len(records), self.matrix.shape[0])
        matrix, offset = self.matrix.astype(np.float64), self.offset.astype(np.float64)
        found = np.empty((len(flat), self.matrix.shape[1]), dtype=np.float32)
        for start in range(0, len(flat), _ROWS):
            exact = whole_steps(flat[start : start + _ROWS]) @ matrix - offset
            found[start : start + _ROWS] = exact / (STEPS * MATRIX_UNITS)
        return found

    def arrays(self) -> dict[str, ndarray]:
        return {"matrix": self.matrix, "offset": self.offset}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, ndarray]) -> LinearMap:
        matrix, offset = arrays["matrix"], arrays["offset"]
        if offset.shape != matrix.shape[1:]:
            raise InvalidInput(f"a linear map has {offset.size} offsets; allowed: the {matrix.shape[1]} of its outputs")
        return cls(matrix, offset)


@dataclass(frozen=True, eq=False)
class Scale(Stage):
    """Records x of any shape, flattened, become x * factors - offset, in units of 1 / (STEPS * UNITS).

    Raises InvalidInput where a product might not be exact: each factor times MOST_STEPS, and its offset, stay below
    2**52.
    """

    number = 5
    layout = {"factors": ("<i8", 1), "offset": ("<i8", 1)}  # noqa: RUF012  # declared a ClassVar in Stage

    factors: Int64[ndarray, " values"] = field(repr=False)
    offset: Int64[ndarray, " values"] = field(repr=False)

    def __post_init__(self) -> None:
        if not len(self.factors) or self.factors.shape != self.offset.shape:
            raise InvalidInput(
                f"a scale has {self.factors.size} factors and {self.offset.size} offsets; allowed: as many, at least 1"
            )
        # In float64 first: products of untrusted integers may not fit 64 bits.
        reach = np.abs(self.factors.astype(np.float64)) * MOST_STEPS + np.abs(self.offset.astype(np.float64))
        if reach.max() >= EXACT / 2:
            raise InvalidInput(
                f"a scale may reach {reach.max():.3g} units; allowed: below {EXACT // 2}, for exact products"
            )

    @classmethod
    def of(cls, mean: Float64[ndarray, " values"], factors: Float64[ndarray, " values"]) -> Scale:
        """The map x -> (x - mean) * factors, rounded to units. Raises InvalidInput."""
        if not (np.isfinite(mean).all() and np.isfinite(factors).all()):
            raise InvalidInput("a scale holds NaN or infinite values; allowed: finite")
        units = np.rint(factors * MATRIX_UNITS)
        return cls(units.astype(np.int64), (whole_steps(mean) * units).astype(np.int64))

    def output_shape(self, input_shape: tuple[int, ...]) -> tuple[int, ...]:
        if math.prod(input_shape) != len(self.factors):
            raise InvalidInput(
                f"a scale of {len(self.factors)} values is given records of shape {input_shape}; "
                f"allowed: {len(self.factors)} values each"
            )
        return (len(self.factors),)

    def __call__(self, records: Float32[ndarray, "records *shape"]) -> Float32[ndarray, "records values"]:
        flat = records.reshape(len(records), len(self.factors))
        exact = whole_steps(flat) * self.factors.astype(np.float64) - self.offset.astype(np.float64)
        return (exact / (STEPS * MATRIX_UNITS)).astype(np.float32)

    def arrays(self) -> dict[str, ndarray]:
        return {"factors": self.factors, "offset": self.offset}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, ndarray]) -> Scale:
        return cls(arrays["factors"], arrays["offset"])
