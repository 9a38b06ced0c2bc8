"""Features of images: their pixels as an array, upright digits, and histograms of oriented gradients.

What the stages for images share: which shapes they take, and how many images they hold at once.

Deskew: images moved to their centre of mass and sheared upright by their moments; for a figure on a dark ground.

Recommended for handwriting by Guyon et al. 1991 and LeCun et al. 1998, section III.A. Positions are whole 256ths of a
pixel and brightness whole steps, so the result is the same on every machine.

Hog: histograms of oriented gradients, in whole numbers, so that a record has the same features on every machine.

Dalal & Triggs 2005, sections 6.1 to 6.4: unsigned gradients of the strongest channel, linear interpolation between
directions and between cells, and normalisation over overlapping neighbourhoods with clipping. Interpolation is what
nearest neighbours need; common libraries leave it out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray

from protocols.errors import InvalidInput
from protocols.features.stage import STEPS, Stage, whole_steps

LEAST_SIDE, MOST_SIDE, MOST_CHANNELS = 8, 1024, 16
# Brightness is in [0, 1]; four times as much leaves room for images that are not scaled so.
MOST_PIXEL = 4 * STEPS
_PIXELS_AT_ONCE = 2**17


def check_image(shape: tuple[int, ...]) -> None:
    """Raises InvalidInput unless this is (height, width) or (height, width, channels) of a size that is taken."""
    sides, channels = shape[:2], shape[2:]
    if not (
        len(shape) in (2, 3)
        and all(LEAST_SIDE <= side <= MOST_SIDE for side in sides)
        and all(1 <= each <= MOST_CHANNELS for each in channels)
    ):
        raise InvalidInput(
            f"features of images are given records of shape {shape}; allowed: (height, width) or (height, width, "
            f"channels), sides from {LEAST_SIDE} to {MOST_SIDE} and up to {MOST_CHANNELS} channels"
        )


def in_chunks(
    made: Callable[[Float32[ndarray, "chunk *shape"]], Float32[ndarray, "chunk *result"]],
    images: Float32[ndarray, "records *shape"],
    shape: tuple[int, ...],
) -> Float32[ndarray, "records *result"]:
    """Every image's result, of this shape, made of a bounded number of pixels at once."""
    found = np.empty((len(images), *shape), dtype=np.float32)
    rows = max(1, _PIXELS_AT_ONCE // int(np.prod(images.shape[1:])))
    for start in range(0, len(images), rows):
        found[start : start + rows] = made(images[start : start + rows])
    return found


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


_MOST_ORIENTATIONS, _MOST_CELLS = 32, 32
# Pixels along a cell: sums of gradients times their shares stay below 2**53, where they are exact.
_MOST_STEP = 128
# Directions are vectors of this length, shares of a pixel in a cell whole multiples of 1 / _SHARES.
_LENGTH, _SHARES = 2**10, 2**6
# A cell's mean gradient of one step counts so many units, and its squares stay exact below 2**53.
_UNITS = 2**5
# Added under the root, as the square of a mean gradient: what is weaker is not brought up to full strength.
_FAINT = 12 * _UNITS
# The share of one direction of one cell in its neighbourhood's norm, at most (Lowe 2004, section 6.1).
_MOST_SHARE = np.float32(0.2)


@dataclass(frozen=True)
class Hog(Stage):
    """orientations: directions in half a turn, 2 to 32; cells: how many along each side, 1 to 32 and at most the side.

    Each cell's histogram is divided by the norm of its own and its up to eight neighbours', then clipped. Raises
    InvalidInput.
    """

    number = 3
    layout = {"sizes": ("<i8", 1)}  # noqa: RUF012  # declared a ClassVar in Stage

    orientations: int
    cells: int

    def __post_init__(self) -> None:
        if not (2 <= self.orientations <= _MOST_ORIENTATIONS and 1 <= self.cells <= _MOST_CELLS):
            raise InvalidInput(
                f"hog has {self.orientations} orientations and {self.cells} cells a side; allowed: "
                f"2 to {_MOST_ORIENTATIONS}, and 1 to {_MOST_CELLS}"
            )

    def output_shape(self, input_shape: tuple[int, ...]) -> tuple[int, ...]:
        check_image(input_shape)
        fewest, most = -(-max(input_shape[:2]) // _MOST_STEP), min(input_shape[:2])
        if not fewest <= self.cells <= most:
            raise InvalidInput(
                f"hog has {self.cells} cells a side on images of shape {input_shape}; allowed: {fewest} to {most}"
            )
        return (self.cells**2 * self.orientations,)

    def __call__(self, records: Float32[ndarray, "records *shape"]) -> Float32[ndarray, "records features"]:
        return in_chunks(self._histograms, records, self.output_shape(records.shape[1:]))

    def arrays(self) -> dict[str, ndarray]:
        return {"sizes": np.array([self.orientations, self.cells], dtype="<i8")}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, ndarray]) -> Hog:
        sizes = arrays["sizes"].tolist()
        if len(sizes) != 2:
            raise InvalidInput(f"hog has {len(sizes)} sizes; allowed: orientations and cells")
        return cls(*sizes)

    def _histograms(self, images: Float32[ndarray, "records *shape"]) -> Float32[ndarray, "records features"]:
        down, right = _gradients(whole_steps(images, most=MOST_PIXEL))
        rows, columns = (_shares(length, self.cells) for length in images.shape[1:3])
        pooled = np.stack([rows @ each @ columns.T for each in _oriented(down, right, self.orientations)], axis=-1)
        # Of whole numbers: one rounding, the same everywhere. A cell's shares add up to its area, about.
        area = rows.sum() * columns.sum() / self.cells**2
        histograms = np.rint(pooled * (_UNITS / (area * _LENGTH)))
        energies = np.pad((histograms * histograms).sum(axis=-1), ((0, 0), (1, 1), (1, 1)))
        around = sum(
            energies[:, row : row + self.cells, column : column + self.cells] for row in range(3) for column in range(3)
        )
        found = (histograms / np.sqrt(around + _FAINT**2)[..., None]).astype(np.float32)
        clipped: Float32[ndarray, "records features"] = np.minimum(found, _MOST_SHARE).reshape(len(images), -1)
        return clipped


def _gradients(
    pixels: Float64[ndarray, "records *shape"],
) -> tuple[Float64[ndarray, "records height width"], Float64[ndarray, "records height width"]]:
    """Differences of a pixel's neighbours, down and to the right, of the channel in which they are strongest."""
    channels = pixels[..., None] if pixels.ndim == 3 else pixels
    padded = np.pad(channels, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="edge")
    down, right = padded[:, 2:, 1:-1] - padded[:, :-2, 1:-1], padded[:, 1:-1, 2:] - padded[:, 1:-1, :-2]
    if channels.shape[-1] == 1:
        return down[..., 0], right[..., 0]
    strongest = (down * down + right * right).argmax(axis=-1)[..., None]
    return (np.take_along_axis(down, strongest, axis=-1)[..., 0], np.take_along_axis(right, strongest, axis=-1)[..., 0])


def _oriented(
    down: Float64[ndarray, "records height width"], right: Float64[ndarray, "records height width"], orientations: int
) -> list[Float64[ndarray, "records height width"]]:
    """Each direction's part of every gradient: linear between the two that it lies between, and 0 in the others.

    Between directions u and v a gradient is a * u + b * v; a is its cross product with v, up to a constant.
    """
    angles = np.pi * np.arange(orientations) / orientations
    across: Int64[ndarray, " orientations"] = np.rint(np.cos(angles) * _LENGTH).astype(np.int64)
    along: Int64[ndarray, " orientations"] = np.rint(np.sin(angles) * _LENGTH).astype(np.int64)
    crossed = [right * y - down * x for x, y in zip(across.tolist(), along.tolist(), strict=True)]
    found = []
    for direction in range(orientations):
        # Half a turn on, a direction's cross product has the other sign.
        after = crossed[direction + 1] if direction + 1 < orientations else -crossed[0]
        before = -crossed[direction - 1] if direction else crossed[-1]
        low, high = np.minimum(after, before), np.maximum(after, before)
        found.append(np.maximum(low, 0) - np.minimum(high, 0))
    return found


def _shares(length: int, cells: int) -> Float64[ndarray, "cells length"]:
    """How much of each pixel of a side belongs to each cell: linear between the centres of cells."""
    step = length / cells
    centres = (np.arange(cells) + 0.5) * step - 0.5
    return np.rint(np.maximum(0.0, 1 - np.abs(np.arange(length) - centres[:, None]) / step) * _SHARES)
