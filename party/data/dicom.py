"""Folders of DICOM images, with labels from a CSV file: the one file that imports pydicom (extra `dicom`)."""

from __future__ import annotations

import io
import struct
import warnings
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Final, Self

import numpy as np
import pydicom
import pydicom.errors
from jaxtyping import Float32
from numpy import ndarray
from pydicom.uid import DeflatedExplicitVRLittleEndian

from party.data.records import DataSettings, Records, Source, labels_of
from protocols.array_files import FILE_BYTES
from protocols.errors import DataCorrupt
from protocols.reading import VALUES, open_file
from protocols.study.features import record_names
from protocols.study.terms import Terms
from runtime.settings import TomlTable
from runtime.tables import read_csv

_FILE: Final = "file"
# The group of a file that names how the rest is written stands within these bytes.
_HEADER: Final = 2**16


@dataclass(frozen=True)
class DicomFolder(Source):
    """path: a folder; labels: a CSV file with the column `file` (a name in the folder), the study's label, and
    `data.patient` if that is set. Pixels are scaled to [0, 1] by the bits that are stored; black is 0."""

    path: Path
    labels: Path

    @classmethod
    def of(cls, table: TomlTable, base: Path) -> Self:
        return cls(base / table.text("path"), base / table.text("labels"))

    @property
    def shown(self) -> str:
        return f"{self.path} ({self.labels.name})"

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.path, self.labels)

    def records(self, settings: DataSettings, terms: Terms) -> Records:
        """The images, [height, width] or [height, width, 3] by the terms. Raises DataUnavailable, DataCorrupt."""
        shape, form = terms.input_shape, settings.mapping.form
        if settings.group:
            raise DataCorrupt(f"{self.shown}: data.group is {settings.group!r}; allowed: none with images")
        if len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] != 3):
            raise DataCorrupt(f"{self.shown}: the study's inputs have shape {shape}; allowed: (h, w) or (h, w, 3)")
        names = [_FILE, *filter(None, [*map(settings.mapping.own, terms.labels), settings.patient])]
        columns = read_csv(self.labels, names, delimiter=form.delimiter or ",", encoding=form.encoding or "utf-8")
        files = columns[_FILE]
        if len(files) * prod(shape) > VALUES:
            raise DataCorrupt(f"{self.shown}: {len(files)} images of {shape}; allowed: at most {VALUES} values")
        used = np.ones(len(files), bool)
        labels = labels_of(columns, used, settings, terms)
        where = f"{self.labels}: column {settings.patient!r}"
        patients = None
        if settings.patient:
            patients = record_names(columns[settings.patient], missing=form.missing, where=where)
        inputs = np.zeros((len(files), *shape), np.float32)
        for row, name in enumerate(files):
            inputs[row] = self._image(name, row + 1, shape)
        return Records(inputs, labels, patients, None, used)

    def _image(self, name: str, row: int, shape: tuple[int, ...]) -> Float32[ndarray, "height width ..."]:
        """One image; its size is checked before its pixels are unpacked."""
        path = self.path / name
        if not name or not path.resolve().is_relative_to(self.path.resolve()):
            raise DataCorrupt(f"{self.labels}, row {row}: the file is not in {self.path}; allowed: a name in it")
        where = f"{self.labels}, row {row}"
        try:
            # pydicom's warnings quote values of the file, which are a patient's.
            with open_file(path, most=FILE_BYTES) as file, warnings.catch_warnings(action="ignore"):
                if _deflated(file):
                    raise DataCorrupt(f"{where}: the file is deflated as a whole; allowed: one that is not")
                found = pydicom.dcmread(file)
                size, channels = (int(found.Rows), int(found.Columns)), int(found.SamplesPerPixel)
                frames, bits = int(found.get("NumberOfFrames", 1) or 1), int(found.BitsStored)
                if size != shape[:2] or channels != (1 if len(shape) == 2 else 3) or frames != 1 or not 1 <= bits <= 32:
                    raise DataCorrupt(
                        f"{where}: {frames} frames of {size[0]} x {size[1]} pixels, {channels} channels, "
                        f"{bits} bits; allowed: one of {shape}"
                    )
                pixels = np.asarray(found.pixel_array, np.float64)
                least = -(2 ** (bits - 1)) if int(found.get("PixelRepresentation", 0)) else 0
                inverted = str(found.PhotometricInterpretation) == "MONOCHROME1"
        except (
            pydicom.errors.BytesLengthException,
            pydicom.errors.InvalidDicomError,
            struct.error,
            AttributeError,
            EOFError,
            KeyError,
            NotImplementedError,
            OSError,
            OverflowError,
            RuntimeError,
            TypeError,
            ValueError,
        ) as error:
            raise DataCorrupt(f"{where}: no DICOM image that can be read ({type(error).__name__})") from None
        scaled = np.clip((pixels - least) / (2**bits - 1), 0.0, 1.0)
        if scaled.shape != shape:
            raise DataCorrupt(f"{where}: pixels of shape {scaled.shape}; allowed: {shape}")
        return (1.0 - scaled if inverted else scaled).astype(np.float32)


def _deflated(file: io.BufferedIOBase) -> bool:
    """Whether a small file may unpack to a large one, which pydicom would do before any size is known."""
    start = file.read(_HEADER)
    file.seek(0)
    return DeflatedExplicitVRLittleEndian.encode() in start
