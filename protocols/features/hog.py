"""Hog: histograms of oriented gradients, in whole numbers, so that a record has the same features on every machine.

Dalal & Triggs 2005, sections 6.1 to 6.4: unsigned gradients of the strongest channel, linear interpolation between
directions and between cells, and normalisation over overlapping neighbourhoods with clipping. Interpolation is what
nearest neighbours need; common libraries leave it out.
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
from protocols.features.steps import whole_steps

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
    return (
        np.take_along_axis(down, strongest, axis=-1)[..., 0],
        np.take_along_axis(right, strongest, axis=-1)[..., 0],
    )


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
