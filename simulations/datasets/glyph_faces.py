"""The characters and type faces of the `glyphs` data set, and their templates rendered with FreeType.

matplotlib ships the faces. Only those listed here are used: each was looked at for every listed character.
Left out are the TeX-encoded cm* faces and the STIX size and non-Unicode faces (other shapes at the same code
points), the last-resort face (boxes) and the two DejaVu display faces (a handful of characters).
"""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
import scipy
from jaxtyping import UInt8
from matplotlib.ft2font import FT2Font, LoadFlags
from numpy import ndarray

from protocols.errors import DataUnavailable

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


def render_templates(
    characters: str, faces: tuple[str, ...] = FACES
) -> UInt8[ndarray, "blurs faces characters canvas canvas"]:
    """Draws every character in every face, its ink scaled to EXTENT and centred, once for every blur.

    Raises DataUnavailable when a face or a character in it is missing from the installed matplotlib.
    """
    ink = np.zeros((len(faces), len(characters), CANVAS, CANVAS), dtype=np.uint8)
    folder = Path(matplotlib.get_data_path(), "fonts", "ttf")
    for row, face in enumerate(faces):
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
