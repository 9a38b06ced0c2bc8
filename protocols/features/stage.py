"""Stage: one step of a feature map. A new kind is a file with one class, and a line in feature_map.KINDS."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from jaxtyping import Float32
from numpy import ndarray


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
