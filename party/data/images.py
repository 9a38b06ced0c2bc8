"""Folders of images, one folder per class: the one file that imports Pillow (extra `images`)."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Final

import numpy as np
from jaxtyping import Float32
from numpy import ndarray
from PIL import Image, UnidentifiedImageError

from party.data.records import DataSettings, FileSource, Records, own_class_ids
from protocols.array_files import FILE_BYTES
from protocols.errors import DataCorrupt, DataUnavailable
from protocols.reading import VALUES, open_file
from protocols.study.terms import Terms

_FORMATS: Final = ("PNG", "JPEG", "BMP", "TIFF", "PPM")
_SUFFIXES: Final = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".pgm", ".ppm")


@dataclass(frozen=True)
class ImageFolder(FileSource):
    """path: a folder with one folder per class."""

    def records(self, settings: DataSettings, terms: Terms) -> Records:
        """Images of FOLDER/CLASS/*.png and the like, [height, width] or [height, width, 3] by the terms, in [0, 1].

        The patient is the part of a file's name before the first separator `data.patient`. Raises DataUnavailable, or
        DataCorrupt naming the file.
        """
        folder = self.path
        if not os.path.isdir(folder):  # Path.is_dir would raise without permission
            raise DataUnavailable(
                f"{folder} does not exist or is not a folder; allowed: a folder with one folder per class"
            )
        if len(terms.labels) != 1:
            raise DataCorrupt(f"{folder}: a folder for each class; allowed with several findings: loader npz or dicom")
        if settings.group:
            raise DataCorrupt(f"{folder}: data.group is {settings.group!r}; allowed: none with images")
        files = sorted(path for path in folder.glob("*/*") if path.suffix.lower() in _SUFFIXES)
        if not files:
            raise DataCorrupt(f"{folder} holds no image; allowed: {', '.join(_SUFFIXES)} in one folder per class")
        if len(files) * prod(terms.input_shape) > VALUES:
            raise DataCorrupt(f"{folder}: {len(files)} images of {terms.input_shape}; allowed: at most {VALUES} values")
        labels = own_class_ids([path.parent.name for path in files], settings, terms, column=terms.label)
        inputs = np.zeros((len(files), *terms.input_shape), np.float32)
        for row, path in enumerate(files):
            inputs[row] = _image(path, terms.input_shape)
        separator = settings.patient
        patients = [path.stem.partition(separator)[0] for path in files] if separator else None
        return Records(inputs, labels, patients)


def _image(path: Path, shape: tuple[int, ...]) -> Float32[ndarray, "height width ..."]:
    """One image; its size is checked before its pixels are decoded."""
    if len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] != 3):
        raise DataCorrupt(f"{path}: the study's inputs have shape {shape}; allowed for images: (h, w) or (h, w, 3)")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with open_file(path, most=FILE_BYTES) as file, Image.open(file, formats=_FORMATS) as image:
                if (image.height, image.width) != shape[:2]:
                    raise DataCorrupt(
                        f"{path} has {image.height} x {image.width} pixels; allowed: {shape[0]} x {shape[1]}"
                    )
                pixels = np.asarray(image.convert("L" if len(shape) == 2 else "RGB"), np.float32)
    except (
        UnidentifiedImageError,
        Image.DecompressionBombError,
        Image.DecompressionBombWarning,
        OSError,
        SyntaxError,
        ValueError,
    ) as error:
        raise DataCorrupt(f"{path} cannot be read: {str(error)[:200]}; allowed: {', '.join(_FORMATS)}") from error
    return pixels / np.float32(255)
