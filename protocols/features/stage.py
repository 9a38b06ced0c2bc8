"""Whole steps: features are scaled, rounded and clipped to integers, so that sums and products of them are exact.

Sums of whole numbers below 2**53 are the same in any order in float64, so on every machine and with every BLAS.

Stage: one step of a feature map. A new kind is a file with one class, and a line in feature_map.KINDS.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Final

import numpy as np
from jaxtyping import Float, Float32, Float64
from numpy import ndarray

# A feature of 1 is so many steps; larger ones than MOST_STEPS are clipped to it.
STEPS: Final = 2**10
MOST_STEPS: Final = 2**17
EXACT: Final = 2**53


def whole_steps(
    values: Float[ndarray, "*shape"], *, scale: Float64[ndarray, " width"] | float = 1.0, most: int = MOST_STEPS
) -> Float64[ndarray, "*shape"]:
    """Values times `scale` as whole steps, from -most to most."""
    return np.clip(np.rint(values.astype(np.float64) * scale * STEPS), -most, most)


class Stage(ABC):
    """A public function of one record, without state: the same record gives the same features on every call."""

    # Its number in files and digests.
    number: ClassVar[int]
    # The arrays that define it, as little-endian dtype and rank.
    layout: ClassVar[Mapping[str, tuple[str, int]]]

    @abstractmethod
    def output_shape(self, input_shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of one record's result. Raises InvalidInput for records that it cannot take."""

    @abstractmethod
    def __call__(self, records: Float32[ndarray, "records *shape"]) -> Float32[ndarray, "records *result"]:
        """Every record's result; records are finite and of a shape that output_shape allows."""

    @abstractmethod
    def arrays(self) -> dict[str, ndarray]:
        """What defines it, as `layout` says."""

    @classmethod
    @abstractmethod
    def of_arrays(cls, arrays: Mapping[str, ndarray]) -> Stage:
        """The stage that arrays of this layout define; untrusted. Raises InvalidInput."""
