"""The `street_digits` data set: recognise the middle digit of a house number in a colour image, rendered at run time.

A stand-in for SVHN (Netzer et al. 2011) that needs no file: digits of sixteen typefaces in any colour on a shaded
ground, with neighbours to both sides, bars across, blur and noise. The typefaces are those of glyphs.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from jaxtyping import Float32, Int64, UInt8
from numpy import ndarray

from simulations.datasets.dataset import Dataset, DatasetRequest
from simulations.datasets.glyphs import EXTENT, render_templates, sample
from simulations.datasets.rendered import drawn_dataset

DIGITS: Final = "0123456789"
SIDE: Final = 32
DEFAULT_SIZES: Final = {"private": 20_000, "public": 5_000, "test": 2_000}

_TURN: Final = np.deg2rad(15.0)  # uniform on +- this
_SHEAR: Final = 0.2  # uniform on +- this
_INK_PIXELS: Final = (16.0, 27.0)  # height of a digit in the image, uniform between
_SHIFT: Final = 2.5  # pixels, uniform on +- this, each way
_GAP: Final = (0.56, 0.8)  # from one digit's middle to the next, in heights
_NEIGHBOUR: Final = 0.7  # how often there is a digit on a side
_CONTRAST: Final = 0.2  # the least difference of brightness between digits and ground
_BARS: Final = 4  # across an image, of any brightness
_NOISE: Final = 0.07  # standard deviation of a value's Gaussian noise, before clipping to [0, 1]
_CHUNK: Final = 256  # samples rendered at a time: bounds the memory

_GREY: Final = np.array([0.299, 0.587, 0.114])


def load(request: DatasetRequest) -> Dataset:
    """Images f32 [N, 32, 32, 3] in [0, 1]. Raises InvalidInput for another number of classes than 10."""
    templates = render_templates(DIGITS)
    return drawn_dataset(
        request,
        name="street_digits",
        class_names=DIGITS,
        sizes=DEFAULT_SIZES,
        draw=lambda labels, rng: render(labels, templates, rng),
        about="House numbers rendered from faces shipped with matplotlib; every sample is rendered anew.",
    )


def render(
    labels: Int64[ndarray, " records"],
    templates: UInt8[ndarray, "blurs faces classes canvas canvas"],
    rng: np.random.Generator,
) -> Float32[ndarray, "records 32 32 3"]:
    """One image for each label, the digit in the middle."""
    images = np.empty((len(labels), SIDE, SIDE, 3), dtype=np.float32)
    for start in range(0, len(labels), _CHUNK):
        chosen = labels[start : start + _CHUNK]
        images[start : start + _CHUNK] = _rendered(chosen, templates, rng)
    return images


def _rendered(labels: Int64[ndarray, " records"], templates: ndarray, rng: np.random.Generator) -> ndarray:
    count = len(labels)
    ink = _numbers(labels, templates, rng)[..., None]
    ground, cloth = _colours(count, rng)
    axis = np.linspace(-1, 1, SIDE)
    down, right = np.meshgrid(axis, axis, indexing="ij")
    slope = rng.uniform(-0.15, 0.15, (2, count, 1, 1, 1))
    light = slope[0] * down[..., None] + slope[1] * right[..., None]
    behind = ground + light
    for _ in range(_BARS):
        place, lean = rng.uniform(-1, 1, (count, 1, 1)), rng.uniform(0, np.pi, (count, 1, 1))
        width, dark = rng.uniform(0.02, 0.1, (count, 1, 1)), rng.uniform(-0.3, 0.3, (count, 1, 1, 1))
        bar = np.abs(np.cos(lean) * right + np.sin(lean) * down - place) < width
        behind = behind + dark * bar[..., None]
    made = behind * (1 - ink) + (cloth + light) * ink
    return np.clip(made + rng.normal(0, _NOISE, made.shape), 0, 1).astype(np.float32)


def _numbers(labels: Int64[ndarray, " records"], templates: ndarray, rng: np.random.Generator) -> ndarray:
    """How much of each pixel is ink, [records, 32, 32]: the digit, and its neighbours where it has any."""
    count = len(labels)
    blurs, faces, classes = templates.shape[:3]
    face = rng.integers(blurs, size=count) * faces + rng.integers(faces, size=count)
    height = rng.uniform(*_INK_PIXELS, count)
    angle, shear = rng.uniform(-_TURN, _TURN, count), rng.uniform(-_SHEAR, _SHEAR, count)
    zoom, cosine, sine = EXTENT / height, np.cos(angle), np.sin(angle)
    matrix = np.empty((count, 2, 2), dtype=np.float32)
    matrix[:, 0, 0], matrix[:, 0, 1] = zoom * cosine, -zoom * sine
    matrix[:, 1, 0], matrix[:, 1, 1] = zoom * (sine + shear * cosine), zoom * (cosine - shear * sine)
    middle = rng.uniform(-_SHIFT, _SHIFT, (count, 2))
    step = (rng.uniform(*_GAP, count) * height)[:, None] * np.stack([sine, cosine], axis=1)
    pixels, found = templates.reshape(-1), np.zeros((count, SIDE * SIDE), dtype=np.float32)
    for side in (0, -1, 1):
        shown = labels if side == 0 else rng.integers(classes, size=count)
        there = 1.0 if side == 0 else rng.random((count, 1)) < _NEIGHBOUR
        shift = (middle + side * step).astype(np.float32)
        each = sample(pixels, face * classes + shown, matrix, shift, side=SIDE) / np.float32(255)
        found = np.maximum(found, each * there)
    return found.reshape(count, SIDE, SIDE)


def _colours(count: int, rng: np.random.Generator) -> tuple[ndarray, ndarray]:
    """Colours [records, 1, 1, 3] of the ground and of the digits, which differ in brightness by at least _CONTRAST."""
    ground, digits = rng.uniform(0.1, 0.9, (2, count, 3))
    bright = ground @ _GREY
    # Towards white or black, whichever leaves more room.
    towards = np.where(bright < 0.5, 1.0, 0.0)
    room = np.abs(towards - bright)
    wanted = bright + np.sign(towards - bright) * rng.uniform(_CONTRAST, np.maximum(room, _CONTRAST))
    digits = digits + (wanted - digits @ _GREY)[:, None]
    return ground[:, None, None, :], digits[:, None, None, :]
