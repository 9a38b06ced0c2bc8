"""The characters and type faces of the `glyphs` data set, and their templates rendered with FreeType.

matplotlib ships the faces. Only those listed here are used: each was looked at for every listed character.
Left out are the TeX-encoded cm* faces and the STIX size and non-Unicode faces (other shapes at the same code
points), the last-resort face (boxes) and the two DejaVu display faces (a handful of characters).

The `glyphs` data set: recognise a printed character, rendered at run time from matplotlib's own fonts.

A small stand-in for the Glyph set of Papernot et al. 2018 (Scalable Private Learning with PATE), which is not
published: grey images of 10 to 150 characters in many faces, turned, scaled, sheared, shifted, blurred and
covered with noise. No file and no network is needed, and any number of samples can be drawn.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
import scipy
from jaxtyping import Float32, Int64, UInt8
from matplotlib.ft2font import FT2Font, LoadFlags
from numpy import ndarray

from protocols.errors import DataUnavailable, InvalidInput
from protocols.study.findings import STATES
from simulations.datasets.dataset import Dataset, DatasetRequest
from simulations.datasets.rendered import drawn_dataset

FACES = (
    "DejaVuSans",
    "DejaVuSans-Bold",
    "DejaVuSans-Oblique",
    "DejaVuSans-BoldOblique",
    "DejaVuSansMono",
    "DejaVuSansMono-Bold",
    "DejaVuSansMono-Oblique",
    "DejaVuSansMono-BoldOblique",
    "DejaVuSerif",
    "DejaVuSerif-Bold",
    "DejaVuSerif-Italic",
    "DejaVuSerif-BoldItalic",
    "STIXGeneral",
    "STIXGeneralBol",
    "STIXGeneralItalic",
    "STIXGeneralBolIta",
)

# No two look alike once they are scaled to one size and turned a little: of c and C, 0 and O, X and the
# multiplication sign, Latin B and Greek Beta, A and Lambda, at most one is used. Candidates that a nearest
# neighbour classifier confused with an earlier one for more than a quarter of samples were left out. The
# first ten, the default task, are the furthest apart.
CHARACTERS = (
    "AEKMSTWXZ4"
    "012356789"
    "BCDFGHJLNPQRUVY"
    "adefhijmtkq"
    "ΓΔΞΣΦΨΩβδεζλμξσωπ"
    "БДЖЙЦЧЪЫЭЮЯЂЉЊЇЎ"
    "ÆŒæÞþßŘĶČŤŰÕﬁŋÅÇŠŽĞɐɘĄĘÊĳ"
    '&@#$%?!+=<>*{}[()~§¶†‡€£¢©±÷¿«»∂¬®\\:;"-•…№™¤½‰¥'
)

EXTENT = 44  # the longer side of every template's ink, in template pixels
CANVAS = 56  # the template's side; the margin stays empty
BLURS = (0.9, 1.6, 2.4)  # standard deviations in template pixels: sharp, soft, out of focus


def render_templates(characters: str) -> UInt8[ndarray, "blurs faces characters canvas canvas"]:
    """Draws every character in every face of FACES, its ink scaled to EXTENT and centred, once for every blur.

    Raises DataUnavailable when a face or a character in it is missing from the installed matplotlib.
    """
    ink = np.zeros((len(FACES), len(characters), CANVAS, CANVAS), dtype=np.uint8)
    folder = Path(matplotlib.get_data_path(), "fonts", "ttf")
    for row, face in enumerate(FACES):
        path = folder / f"{face}.ttf"
        if not path.is_file():
            raise DataUnavailable(
                f"glyphs: matplotlib {matplotlib.__version__} has no face {face} in {folder}; reinstall matplotlib"
            )
        font = FT2Font(str(path))
        for column, character in enumerate(characters):
            if font.get_char_index(ord(character)) == 0:
                raise DataUnavailable(f"glyphs: the face {face} has no character {character!r}; reinstall matplotlib")
            ink[row, column] = _draw(font, character)
    scale = np.stack([scipy.ndimage.gaussian_filter(ink.astype(np.float32), (0, 0, blur, blur)) for blur in BLURS])
    return np.rint(scale).astype(np.uint8)


def _draw(font: FT2Font, character: str) -> UInt8[ndarray, "canvas canvas"]:
    """One character, its ink's longer side EXTENT pixels (vector outlines are drawn anew, not resampled)."""
    size = float(EXTENT)
    ink = _ink(font, character, size)
    size *= EXTENT / max(ink.shape)
    ink = _ink(font, character, size)[:CANVAS, :CANVAS]
    top, left = (CANVAS - ink.shape[0]) // 2, (CANVAS - ink.shape[1]) // 2
    canvas = np.zeros((CANVAS, CANVAS), dtype=np.uint8)
    canvas[top : top + ink.shape[0], left : left + ink.shape[1]] = ink
    return canvas


def _ink(font: FT2Font, character: str, size: float) -> UInt8[ndarray, "height width"]:
    font.set_size(size, 72)
    font.set_text(character, 0.0, flags=LoadFlags.NO_HINTING)
    font.draw_glyphs_to_bitmap(antialiased=True)
    image = np.asarray(font.get_image(), dtype=np.uint8)
    rows, columns = np.flatnonzero(image.any(axis=1)), np.flatnonzero(image.any(axis=0))
    return image[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


SIDE = 28
MIN_CLASSES, _MAX_CLASSES, DEFAULT_CLASSES = 10, len(CHARACTERS), 10
DEFAULT_SIZES = {"private": 60_000, "public": 10_000, "test": 2_000}

# The difficulty is chosen so that on the ten-class task a logistic regression trained on 240 rows is right 77 %
# of the time, 250 of them together 94 %, and a small CNN that sees all rows 97 %. Most of it is noise: it
# makes teachers err independently, where strong distortions would make linear teachers err alike.
ROTATION = np.deg2rad(9.0)  # uniform on +- this
SHEAR = 0.1  # uniform on +- this
INK_PIXELS = (20.0, 22.0)  # longer side of the ink in the image, uniform between
STRETCH = 0.05  # log of width over height, uniform on +- this
SHIFT = 0.9  # pixels, uniform on +- this, each way
CONTRAST = (0.6, 1.0)  # brightness of full ink, uniform between
NOISE = 0.63  # standard deviation of a pixel's Gaussian noise, before clipping to [0, 1]
# With 150 classes that noise leaves a teacher of 200 rows little to learn: 3 % right, where with this it is 35 %.
CLEAR_NOISE = 0.05

_CHUNK = 256  # samples distorted at a time: bounds the memory, changes no result


def load(request: DatasetRequest) -> Dataset:
    """The characters under strong noise, see `_rendered`."""
    return _rendered(request, name="glyphs", noise=NOISE)


def load_clear(request: DatasetRequest) -> Dataset:
    """The same characters under little noise: for many classes and thousands of teachers, see `_rendered`."""
    return _rendered(request, name="clear_glyphs", noise=CLEAR_NOISE)


def _rendered(request: DatasetRequest, *, name: str, noise: float) -> Dataset:
    """Images f32 [N, 28, 28] in [0, 1], ink bright; imbalance and wrong labels as `drawn` has them.

    Raises InvalidInput when classes is outside [10, 150].
    """
    classes = DEFAULT_CLASSES if request.classes is None else request.classes
    if not MIN_CLASSES <= classes <= _MAX_CLASSES:
        raise InvalidInput(f"{name}: classes is {classes}; allowed: {MIN_CLASSES} to {_MAX_CLASSES}")
    templates = render_templates(CHARACTERS[:classes])
    return drawn_dataset(
        request,
        name=name,
        class_names=CHARACTERS[:classes],
        sizes=DEFAULT_SIZES,
        draw=lambda labels, rng: render_samples(labels, templates, rng, noise=noise),
        about=(
            f"Printed characters rendered from {len(FACES)} faces shipped with matplotlib, {classes} "
            f"classes, pixel noise {noise:g}, class imbalance {request.imbalance:g}, "
            f"{100 * request.mislabelled:.1f} % of "
            f"private labels wrong. The private, public and test parts are split by rendered sample: all use the same "
            f"faces, and no rendered sample is in two parts."
        ),
    )


# A picture of a set has so many places by so many, each with one character at most, and these may be found in it.
_PLACES, _SET_SIDE, _SET_INK = 2, SIDE // 2, (10.0, 11.0)
_SET_CHARACTERS, _SET_SHARES = CHARACTERS[:6], (0.5, 0.4, 0.3, 0.2, 0.1, 0.05)
_SET_SIZES, _SET_NOISE = {"private": 20_000, "public": 2_000, "test": 1_000}, 0.25


def load_sets(request: DatasetRequest) -> Dataset:
    """Pictures f32 [N, 28, 28] of up to four characters, each in a quarter of its own; the findings are which of six
    are there, of half of the pictures to one of twenty. Raises InvalidInput where classes are named.
    """
    if request.classes not in (None, len(STATES)):
        raise InvalidInput(f"glyph_sets: classes is {request.classes}; allowed: none, as its findings are fixed")
    templates = render_templates(_SET_CHARACTERS)
    asked = {"private": request.private_size, "public": request.public_size, "test": request.test_size}
    made: dict[str, tuple[Float32[ndarray, "records 28 28"], Int64[ndarray, "records findings"]]] = {}
    for part, size in asked.items():
        rng = np.random.default_rng([request.seed, *f"glyph_sets {part}".encode()])
        made[part] = _draw_sets(_SET_SIZES[part] if size is None else size, templates, rng)
    return Dataset.of_parts(
        made,
        name="glyph_sets",
        kind="image",
        class_names=STATES,
        findings=tuple(_SET_CHARACTERS),
        about=(
            f"Pictures of up to four of the characters {' '.join(_SET_CHARACTERS)}, rendered from {len(FACES)} faces "
            f"shipped with matplotlib, pixel noise {_SET_NOISE:g}: the findings are which of them are there."
        ),
    )


def _draw_sets(
    size: int, templates: UInt8[ndarray, "blurs faces classes canvas canvas"], rng: np.random.Generator
) -> tuple[Float32[ndarray, "records 28 28"], Int64[ndarray, "records findings"]]:
    """Pictures, and which characters are in each: of more than there are places, some are left out."""
    findings, places = len(_SET_SHARES), _PLACES**2
    chosen = rng.random((size, findings)) < np.array(_SET_SHARES)
    order = np.argsort(np.where(chosen, rng.random((size, findings)), 2.0), axis=1)[:, :places]
    held = np.take_along_axis(chosen, order, axis=1)
    labels = np.zeros((size, findings), np.int64)
    np.put_along_axis(labels, order, held.astype(np.int64), axis=1)
    quarters = render_samples(order.ravel(), templates, rng, noise=0.0, side=_SET_SIDE, ink_pixels=_SET_INK)
    quarters[~held.ravel()] = 0
    place = rng.permuted(np.tile(np.arange(places), (size, 1)), axis=1)
    quarters = np.take_along_axis(quarters.reshape(size, places, -1), place[:, :, None], axis=1)
    grid = quarters.reshape(size, _PLACES, _PLACES, _SET_SIDE, _SET_SIDE).transpose(0, 1, 3, 2, 4)
    images = grid.reshape(size, SIDE, SIDE)
    images = images + rng.standard_normal(images.shape, dtype=np.float32) * np.float32(_SET_NOISE)
    return np.clip(images, 0.0, 1.0), labels


def render_samples(
    labels: Int64[ndarray, " records"],
    templates: UInt8[ndarray, "blurs faces classes canvas canvas"],
    rng: np.random.Generator,
    *,
    noise: float,
    side: int = SIDE,
    ink_pixels: tuple[float, float] = INK_PIXELS,
) -> Float32[ndarray, "records side side"]:
    """One distorted image per label: random face, blur and affine map (bilinear sampling), contrast and noise.

    noise: the standard deviation of a pixel's, before clipping to [0, 1]; side: of the image; ink_pixels: the range of
    its ink's longer side.
    """
    count = len(labels)
    blurs, faces, classes = templates.shape[:3]
    template = (rng.integers(blurs, size=count) * faces + rng.integers(faces, size=count)) * classes + labels
    angle = rng.uniform(-ROTATION, ROTATION, count)
    shear = rng.uniform(-SHEAR, SHEAR, count)
    zoom = EXTENT / rng.uniform(*ink_pixels, count)
    stretch = np.exp(rng.uniform(-STRETCH, STRETCH, count) / 2)
    shift = rng.uniform(-SHIFT, SHIFT, (count, 2)).astype(np.float32)
    contrast = rng.uniform(*CONTRAST, count).astype(np.float32)
    cosine, sine = np.cos(angle), np.sin(angle)
    # Rows are (y, x): template position = matrix @ (image position - shift), the inverse of the distortion.
    matrix = np.empty((count, 2, 2), dtype=np.float32)
    matrix[:, 0, 0], matrix[:, 0, 1] = zoom * stretch * cosine, -zoom * stretch * sine
    matrix[:, 1, 0] = zoom / stretch * (sine + shear * cosine)
    matrix[:, 1, 1] = zoom / stretch * (cosine - shear * sine)
    images = np.empty((count, side, side), dtype=np.float32)
    pixels = templates.reshape(-1)
    for start in range(0, count, _CHUNK):
        rows = slice(start, start + _CHUNK)
        ink = sample(pixels, template[rows], matrix[rows], shift[rows], side=side)
        ink *= (contrast[rows] / 255.0)[:, None]
        ink += rng.standard_normal(ink.shape, dtype=np.float32) * np.float32(noise)
        np.clip(ink, 0.0, 1.0, out=images[rows].reshape(ink.shape))
    return images


def sample(
    pixels: UInt8[ndarray, " all"],
    template: Int64[ndarray, " records"],
    matrix: Float32[ndarray, "records 2 2"],
    shift: Float32[ndarray, "records 2"],
    *,
    side: int,
) -> Float32[ndarray, "records pixels"]:
    """Reads each record's template at the mapped position of every pixel of an image of side x side; the margin is
    empty. pixels: of all templates, flat; matrix and shift: as in render_samples.
    """
    axis = np.arange(side, dtype=np.float32) - np.float32((side - 1) / 2)
    vertical, horizontal = (grid.reshape(-1) for grid in np.meshgrid(axis, axis, indexing="ij"))
    y = vertical[None, :] - shift[:, :1]
    x = horizontal[None, :] - shift[:, 1:]
    centre, last = np.float32((CANVAS - 1) / 2), np.float32(CANVAS - 1.001)
    source_y = np.clip(matrix[:, 0, :1] * y + matrix[:, 0, 1:] * x + centre, 0, last)
    source_x = np.clip(matrix[:, 1, :1] * y + matrix[:, 1, 1:] * x + centre, 0, last)
    top, left = source_y.astype(np.int32), source_x.astype(np.int32)
    corner = (template * (CANVAS * CANVAS)).astype(np.int32)[:, None] + top * CANVAS + left
    down, right = source_y - top.astype(np.float32), source_x - left.astype(np.float32)
    upper, lower = pixels.take(corner).astype(np.float32), pixels.take(corner + CANVAS).astype(np.float32)
    upper += (pixels.take(corner + 1) - upper) * right
    lower += (pixels.take(corner + (CANVAS + 1)) - lower) * right
    ink: Float32[ndarray, "records pixels"] = upper + (lower - upper) * down
    return ink
