"""The `garments` data set: recognise a grey silhouette of one of ten garments, drawn at run time.

A stand-in for Fashion-MNIST that needs no file: the same classes and size, of which several differ by degrees alone
(t-shirt, shirt, pullover and coat by the length of sleeves and hem), so that it is harder than digits. Every sample is
made of capsules and trapezoids whose measures are drawn anew, with a shade, stripes and noise.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from jaxtyping import Bool, Float64, Int64
from numpy import ndarray

from simulations.datasets.dataset import Dataset, DatasetRequest
from simulations.datasets.rendered import drawn_dataset

CLASSES: Final = (
    "t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"
)  # fmt: skip
SIDE: Final = 28
DEFAULT_SIZES: Final = {"private": 20_000, "public": 5_000, "test": 2_000}

# The difficulty (docs/reference/datasets.md) comes from measures of the classes that overlap, and from noise.
_TURN: Final = np.deg2rad(6.0)  # uniform on +- this
_SHIFT: Final = 0.06  # uniform on +- this, each way, in halves of the image
_SHADE: Final = (0.35, 1.0)  # brightness of cloth, uniform between
_STRIPES: Final = 0.25  # the largest amplitude of stripes, relative to the shade
_NOISE: Final = 0.12  # standard deviation of a pixel's Gaussian noise, before clipping to [0, 1]
_CHUNK: Final = 512  # samples drawn at a time: bounds the memory

_Plane = Float64[ndarray, "samples pixels"]


def load(request: DatasetRequest) -> Dataset:
    """Images f32 [N, 28, 28] in [0, 1], cloth bright. Raises InvalidInput for another number of classes than 10."""
    return drawn_dataset(
        request,
        name="garments",
        class_names=CLASSES,
        sizes=DEFAULT_SIZES,
        draw=_draw,
        about="Silhouettes of ten garments, drawn from shapes of random measures; every sample is drawn anew.",
    )


def _draw(labels: Int64[ndarray, " samples"], rng: np.random.Generator) -> ndarray:
    """One image f32 [28, 28] for each label."""
    images = np.empty((len(labels), SIDE, SIDE), dtype=np.float32)
    for start in range(0, len(labels), _CHUNK):
        chosen = labels[start : start + _CHUNK]
        images[start : start + _CHUNK] = _drawn(chosen, rng).reshape(-1, SIDE, SIDE)
    return images


def _drawn(labels: Int64[ndarray, " samples"], rng: np.random.Generator) -> _Plane:
    count = len(labels)
    axis = (np.arange(SIDE) + 0.5) / SIDE * 2 - 1
    down, right = (grid.reshape(1, -1) for grid in np.meshgrid(axis, axis, indexing="ij"))
    angle, aside, below = (rng.uniform(-most, most, (count, 1)) for most in (_TURN, _SHIFT, _SHIFT))
    x = np.cos(angle) * right + np.sin(angle) * down - aside
    y = np.cos(angle) * down - np.sin(angle) * right - below
    cloth = np.zeros((count, SIDE * SIDE))
    # Every class draws for all samples, so that one sample does not depend on the labels of others.
    for number, shape in enumerate(_SHAPES):
        mine = labels == number
        measures = rng.uniform(0, 1, (count, 8))
        cloth[mine] = shape(x[mine], y[mine], measures[mine])
    shade = rng.uniform(*_SHADE, (count, 1))
    wave, turn, phase = rng.uniform(4, 14, (count, 1)), rng.uniform(0, np.pi, (count, 1)), rng.uniform(0, 7, (count, 1))
    stripes = np.sin(wave * (np.cos(turn) * x + np.sin(turn) * y) + phase)
    shade = shade * (1 - rng.uniform(0, _STRIPES, (count, 1)) * (1 + stripes))
    return np.clip(cloth * shade + rng.normal(0, _NOISE, cloth.shape), 0, 1)


def _between(measures: ndarray, at: int, low: float, high: float) -> Float64[ndarray, "samples 1"]:
    return low + (high - low) * measures[:, at : at + 1]


def _ink(distance: _Plane) -> _Plane:
    """1 inside, 0 outside, with an edge of about a pixel."""
    return np.clip(0.5 - distance * SIDE / 2, 0, 1)


def _capsule(
    x: _Plane, y: _Plane, start: tuple[ndarray | float, ...], end: tuple[ndarray | float, ...], radius: ndarray | float
) -> _Plane:
    """All that is within `radius` of a line from start to end, both (x, y)."""
    across, along = end[0] - start[0], end[1] - start[1]
    share = ((x - start[0]) * across + (y - start[1]) * along) / (across**2 + along**2)
    share = np.clip(share, 0, 1)
    return _ink(np.hypot(x - start[0] - share * across, y - start[1] - share * along) - radius)


def _trunk(
    x: _Plane, y: _Plane, top: ndarray | float, bottom: ndarray | float, above: ndarray, below: ndarray
) -> _Plane:
    """A trapezoid from top to bottom, half as wide as `above` and `below` there."""
    share = np.clip((y - top) / (bottom - top), 0, 1)
    return _ink(np.maximum(np.abs(x) - above - (below - above) * share, np.maximum(top - y, y - bottom)))


def _with_sleeves(
    x: _Plane, y: _Plane, trunk: _Plane, *, shoulder: ndarray, length: ndarray, open_by: ndarray
) -> _Plane:
    """A trunk with two sleeves from its shoulders, of this length, hanging open by an angle."""
    start = (shoulder, np.full_like(shoulder, -0.62))
    end = (shoulder + length * np.sin(open_by), -0.62 + length * np.cos(open_by))
    return np.maximum(trunk, _capsule(np.abs(x), y, start, end, 0.13))


def _top(
    x: _Plane, y: _Plane, m: ndarray, *, sleeves: tuple[float, float], hem: tuple[float, float], front: float
) -> _Plane:
    """What is worn above: sleeves and hem are the ranges of their length; front: how dark its middle is."""
    shoulder = _between(m, 0, 0.34, 0.46)
    trunk = _trunk(x, y, -0.75, _between(m, 1, *hem), shoulder, shoulder + _between(m, 2, -0.06, 0.1))
    made = _with_sleeves(
        x, y, trunk, shoulder=shoulder, length=_between(m, 3, *sleeves), open_by=_between(m, 4, 0.2, 0.75)
    )
    neck = _capsule(x, y, (0.0, -0.85), (0.0, -0.85 + 0.001), _between(m, 5, 0.1, 0.24))
    middle = _ink(np.abs(x) - 0.03) * front * _between(m, 6, 0.0, 1.0)
    return made * (1 - neck) * (1 - middle)


def _t_shirt(x: _Plane, y: _Plane, m: ndarray) -> _Plane:
    return _top(x, y, m, sleeves=(0.15, 0.6), hem=(0.5, 0.8), front=0.0)


def _trouser(x: _Plane, y: _Plane, m: ndarray) -> _Plane:
    hip, foot = _between(m, 0, 0.16, 0.24), _between(m, 1, 0.14, 0.34)
    legs = _capsule(
        np.abs(x), y, (hip, np.full_like(hip, -0.6)), (foot, _between(m, 2, 0.55, 0.85)), _between(m, 3, 0.1, 0.16)
    )
    return np.maximum(legs, _trunk(x, y, -0.85, -0.45, hip + 0.1, hip + 0.14))


def _pullover(x: _Plane, y: _Plane, m: ndarray) -> _Plane:
    return _top(x, y, m, sleeves=(0.75, 1.25), hem=(0.45, 0.8), front=0.0)


def _dress(x: _Plane, y: _Plane, m: ndarray) -> _Plane:
    waist = _between(m, 0, 0.16, 0.28)
    skirt = _trunk(x, y, -0.2, _between(m, 1, 0.6, 0.9), waist, waist + _between(m, 2, 0.05, 0.35))
    chest = _trunk(x, y, -0.85, -0.2, waist + _between(m, 3, 0.0, 0.12), waist)
    return _with_sleeves(
        x,
        y,
        np.maximum(skirt, chest),
        shoulder=waist,
        length=_between(m, 4, 0.02, 0.5),
        open_by=_between(m, 5, 0.2, 0.6),
    )


def _coat(x: _Plane, y: _Plane, m: ndarray) -> _Plane:
    return _top(x, y, m, sleeves=(0.85, 1.35), hem=(0.65, 0.92), front=0.9)


def _sandal(x: _Plane, y: _Plane, m: ndarray) -> _Plane:
    heel = _between(m, 0, 0.0, 0.35)
    sole = _capsule(x, y, (-0.75, 0.45 - heel), (0.75, np.full_like(heel, 0.5)), _between(m, 1, 0.05, 0.1))
    made = sole
    for at, place in ((2, -0.5), (3, 0.0), (4, 0.45)):
        lean = _between(m, at, -0.3, 0.3)
        rise = _between(m, at + 2, 0.15, 0.55)
        made = np.maximum(
            made, _capsule(x, y, (place + lean, 0.45 - rise), (np.full_like(lean, place), 0.45 - heel / 2), 0.05)
        )
    return made


def _shirt(x: _Plane, y: _Plane, m: ndarray) -> _Plane:
    return _top(x, y, m, sleeves=(0.4, 1.15), hem=(0.5, 0.85), front=0.5)


def _sneaker(x: _Plane, y: _Plane, m: ndarray) -> _Plane:
    return _shoe(x, y, m, shaft=(0.15, 0.5))


def _bag(x: _Plane, y: _Plane, m: ndarray) -> _Plane:
    width, top = _between(m, 0, 0.45, 0.85), _between(m, 1, -0.4, 0.1)
    case = _trunk(x, y, top, _between(m, 2, 0.4, 0.8), width, width + _between(m, 3, -0.15, 0.1))
    handle = np.abs(np.hypot(x / _between(m, 4, 0.5, 1.1), y - top) - _between(m, 5, 0.15, 0.5)) - 0.05
    return np.maximum(case, _ink(np.maximum(handle, y - top)))


def _ankle_boot(x: _Plane, y: _Plane, m: ndarray) -> _Plane:
    return _shoe(x, y, m, shaft=(0.35, 1.0))


def _shoe(x: _Plane, y: _Plane, m: ndarray, *, shaft: tuple[float, float]) -> _Plane:
    height = _between(m, 0, 0.12, 0.24)
    foot = _capsule(x, y, (-0.5, 0.5 - height), (_between(m, 1, 0.4, 0.65), np.full_like(height, 0.5)), height)
    leg = _trunk(x + 0.45, y, 0.45 - _between(m, 2, *shaft), 0.5, _between(m, 3, 0.15, 0.3), _between(m, 4, 0.2, 0.3))
    return np.maximum(foot, leg) * _below(y, 0.62)


def _below(y: _Plane, line: float) -> Bool[ndarray, "samples pixels"]:
    return y < line


_SHAPES: Final = (_t_shirt, _trouser, _pullover, _dress, _coat, _sandal, _shirt, _sneaker, _bag, _ankle_boot)
