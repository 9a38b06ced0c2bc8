"""Deskew: images moved to their centre of mass and sheared upright by their moments; for a figure on a dark ground.

Recommended for handwriting by Guyon et al. 1991 and LeCun et al. 1998, section III.A. Positions are whole 256ths of a
pixel and brightness whole steps, so the result is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray

from protocols.errors import InvalidInput
from protocols.features.images import MOST_PIXEL, check_image, in_chunks
from protocols.features.stage import Stage
from protocols.features.steps import STEPS, whole_steps

_PARTS = 2**8
# More is no skew: the figure lies down.
_MOST_SHEAR = 1.0


@dataclass(frozen=True)
class Deskew(Stage):
    """Grey images [height, width] to such images. An image that is dark everywhere stays as it is."""

    number = 2
    layout = {}  # noqa: RUF012  # declared a ClassVar in Stage

    def output_shape(self, input_shape: tuple[int, ...]) -> tuple[int, ...]:
        check_image(input_shape)
        if len(input_shape) != 2:
            raise InvalidInput(f"deskewing is given images of shape {input_shape}; allowed: grey, (height, width)")
        return input_shape

    def __call__(self, records: Float32[ndarray, "records height width"]) -> Float32[ndarray, "records height width"]:
        return in_chunks(_deskewed, records, records.shape[1:])

    def arrays(self) -> dict[str, ndarray]:
        return {}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, ndarray]) -> Deskew:
        return cls()


def _deskewed(images: Float32[ndarray, "records height width"]) -> Float32[ndarray, "records height width"]:
    pixels = np.maximum(whole_steps(images, most=MOST_PIXEL), 0).astype(np.int64)
    height, width = pixels.shape[1:]
    rows, columns = np.arange(height), np.arange(width)
    mass = np.maximum(pixels.sum(axis=(1, 2)), 1)
    down, right = pixels.sum(axis=2) @ rows, pixels.sum(axis=1) @ columns
    # Covariance of row and column, and variance of the row, both times mass^2: below 2**63 for sides up to MOST_SIDE.
    skewed = ((pixels @ columns) @ rows) * mass.astype(object) - down.astype(object) * right
    tall = (pixels.sum(axis=2) @ rows**2) * mass.astype(object) - down.astype(object) ** 2
    shear = np.array([float(s / t) if t > 0 else 0.0 for s, t in zip(skewed, tall, strict=True)])
    shear = np.clip(shear, -_MOST_SHEAR, _MOST_SHEAR)
    empty = pixels.sum(axis=(1, 2)) == 0
    from_row = np.where(empty, 0.0, down / mass - (height - 1) / 2)[:, None] + rows
    from_column = (
        np.where(empty, 0.0, right / mass - (width - 1) / 2)[:, None, None]
        + (shear[:, None] * (rows - (height - 1) / 2))[:, :, None]
        + columns
    )
    moved = _between(pixels, np.broadcast_to(from_row[:, :, None], pixels.shape), axis=1)
    return ((_between(moved, from_column, axis=2) // _PARTS**2) / STEPS).astype(np.float32)


def _between(
    pixels: Int64[ndarray, "records height width"], places: Float64[ndarray, "records height width"], *, axis: int
) -> Int64[ndarray, "records height width"]:
    """_PARTS times the brightness at these places of an axis, linear between pixels and 0 outside."""
    whole = np.rint(places * _PARTS).astype(np.int64)
    first, part = whole // _PARTS, whole % _PARTS
    last = pixels.shape[axis] - 1

    def at(place: Int64[ndarray, "records height width"]) -> Int64[ndarray, "records height width"]:
        return np.take_along_axis(pixels, np.clip(place, 0, last), axis) * ((place >= 0) & (place <= last))

    return at(first) * (_PARTS - part) + at(first + 1) * part
