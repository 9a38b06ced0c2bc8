"""NumPy archives: `inputs`, `labels` (class ids or names) and, if the settings name them, patients and groups."""

from __future__ import annotations

import math
import zipfile
from typing import Final

import numpy as np
from jaxtyping import Float32
from numpy import ndarray
from numpy.lib import format as npy

from party.data.records import FILE_BYTES, VALUES, Records, check_file
from party.data.table import class_ids
from party.settings import DataSettings
from protocols.errors import DataCorrupt
from protocols.terms import Terms

_RANK: Final = 8
_TEXT: Final = 1024  # characters of the longest name


def load_npz(settings: DataSettings, terms: Terms) -> Records:
    """The records of an npz file, whose inputs are as the terms' input_shape. Raises DataUnavailable, DataCorrupt."""
    check_file(settings)
    path = settings.path
    try:
        with zipfile.ZipFile(path) as archive:
            inputs = _array(archive, "inputs", settings)
            labels = _array(archive, "labels", settings)
            patients = _texts(archive, settings.patient, settings)
            groups = _texts(archive, settings.group, settings)
    except (zipfile.BadZipFile, OSError, EOFError, ValueError, NotImplementedError, RuntimeError, SyntaxError) as error:
        raise DataCorrupt(f"{path} cannot be read: {str(error)[:200]}; allowed: npz without pickles") from error
    if inputs.dtype.kind not in "fiub" or labels.dtype.kind not in "iuU":
        raise DataCorrupt(f"{path}: inputs {inputs.dtype}, labels {labels.dtype}; allowed: numbers; ids or class names")
    with np.errstate(over="ignore"):
        encoded = inputs.astype(np.float32)
    if labels.dtype.kind == "U":
        return Records(encoded, class_ids([str(each) for each in labels.ravel()], settings, terms), patients, groups)
    if labels.size and int(labels.max()) > np.iinfo(np.int64).max:
        raise DataCorrupt(f"{path}: label {labels.max()}; allowed: 0 to {len(terms.class_names) - 1}")
    return Records(encoded, labels.astype(np.int64), patients, groups)


def npz_inputs(settings: DataSettings) -> Float32[ndarray, "rows ..."]:
    """The array `inputs` of an npz file alone. Raises DataUnavailable, DataCorrupt."""
    check_file(settings)
    try:
        with zipfile.ZipFile(settings.path) as archive:
            inputs = _array(archive, "inputs", settings)
    except (zipfile.BadZipFile, OSError, EOFError, ValueError, NotImplementedError, RuntimeError, SyntaxError) as error:
        raise DataCorrupt(
            f"{settings.path} cannot be read: {str(error)[:200]}; allowed: npz without pickles"
        ) from error
    if inputs.dtype.kind not in "fiub":
        raise DataCorrupt(f"{settings.path}: inputs {inputs.dtype}; allowed: numbers")
    with np.errstate(over="ignore"):
        return inputs.astype(np.float32)


def _array(archive: zipfile.ZipFile, name: str, settings: DataSettings) -> ndarray:
    """One array, read only if its header and its size agree: a header alone could ask for any amount of memory."""
    member = f"{name}.npy"
    if member not in archive.namelist():
        held = ", ".join(each.removesuffix(".npy") for each in archive.namelist())[:300]
        raise DataCorrupt(f"{settings.path} has no array {name!r}; allowed: one; it has {held}")
    size = archive.getinfo(member).file_size
    if size > FILE_BYTES:
        raise DataCorrupt(f"{settings.path}: array {name!r} has {size} bytes; allowed: at most {FILE_BYTES}")
    with archive.open(member) as file:
        version = npy.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise DataCorrupt(f"{settings.path}: array {name!r} is of npy version {version}; allowed: 1.0, 2.0")
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read(file)
        count = math.prod(shape)
        if dtype.hasobject or dtype.kind not in "fiubU" or not 1 <= len(shape) <= _RANK or dtype.itemsize == 0:
            raise DataCorrupt(
                f"{settings.path}: array {name!r} is {dtype} of rank {len(shape)}; allowed: numbers, texts"
            )
        if count > VALUES or count * dtype.itemsize + file.tell() != size:
            raise DataCorrupt(
                f"{settings.path}: array {name!r} of shape {shape} in {size} bytes; allowed: {dtype.itemsize} a value, "
                f"at most {VALUES} values"
            )
        if dtype.kind == "U" and dtype.itemsize > 4 * _TEXT:
            raise DataCorrupt(f"{settings.path}: array {name!r} of texts of {dtype}; allowed: up to {_TEXT} characters")
        data = file.read(count * dtype.itemsize)
    if len(data) != count * dtype.itemsize:
        raise DataCorrupt(f"{settings.path}: array {name!r} ends early; allowed: {count} values")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")


def _texts(archive: zipfile.ZipFile, name: str, settings: DataSettings) -> list[str] | None:
    return None if not name else [str(each) for each in _array(archive, name, settings).ravel()]
