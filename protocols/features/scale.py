"""Scale: each value less a constant and times another, in whole numbers, so that it is the same on every machine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray

from protocols.errors import InvalidInput
from protocols.features.linear import UNITS
from protocols.features.stage import Stage
from protocols.features.steps import EXACT, MOST_STEPS, STEPS, whole_steps


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
        units = np.rint(factors * UNITS)
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
        return (exact / (STEPS * UNITS)).astype(np.float32)

    def arrays(self) -> dict[str, ndarray]:
        return {"factors": self.factors, "offset": self.offset}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, ndarray]) -> Scale:
        return cls(arrays["factors"], arrays["offset"])
