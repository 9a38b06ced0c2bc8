"""What the stages for images share: which shapes they take, and how many images they hold at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float32
from numpy import ndarray

from protocols.errors import InvalidInput
from protocols.features.steps import STEPS

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
