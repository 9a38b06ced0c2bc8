"""The four idx files of MNIST and of data sets in its format, or one npz archive with the same arrays."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final

import numpy as np
from jaxtyping import UInt8
from numpy import ndarray

from protocols.errors import DataCorrupt
from simulations.datasets.sources import DataSource, find, read_bytes, read_npz

_NAMES: Final = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def read_images(
    source: DataSource, data_dir: Path | None, *, archive: str
) -> tuple[Path, tuple[UInt8[ndarray, ...], UInt8[ndarray, ...], UInt8[ndarray, ...], UInt8[ndarray, ...]]]:
    """Training images and labels, test images and labels, and the file that errors name.

    archive: the npz file that is looked for first, with x_train, y_train, x_test and y_test. Raises DataUnavailable
    without files, DataCorrupt for others than images u8 [N, height, width] with a label u8 each.
    """
    path = find(source, data_dir, [archive, f"{_NAMES[0]}.gz", _NAMES[0]])
    if path.suffix == ".npz":
        names = ("x_train", "y_train", "x_test", "y_test")
        found = read_npz(path, names)
        arrays = [found[name] for name in names]
    else:
        arrays = [_read_idx(find(source, data_dir, [f"{name}.gz", name])) for name in _NAMES]
    for array, dimensions in zip(arrays, (3, 1, 3, 1), strict=True):
        if array.dtype != np.uint8 or array.ndim != dimensions:
            raise DataCorrupt(
                f"{path} holds an array {array.dtype}{list(array.shape)}; allowed: uint8 with {dimensions} dimensions"
            )
    for images, labels in (arrays[:2], arrays[2:]):
        if len(images) != len(labels):
            raise DataCorrupt(f"{path} holds {len(images)} images but {len(labels)} labels; allowed: equally many")
    train_images, train_labels, test_images, test_labels = arrays
    return path, (train_images, train_labels, test_images, test_labels)


def _read_idx(path: Path) -> UInt8[ndarray, ...]:
    """An idx file: two zero bytes, type (8 = unsigned byte), rank, sizes as big-endian u32, then the
    values."""
    content = read_bytes(path)
    rank = content[3] if len(content) > 3 else 0
    header = 4 + 4 * rank
    shape = [int.from_bytes(content[at : at + 4], "big") for at in range(4, header, 4)]
    if content[:3] != b"\0\0\x08" or rank == 0 or len(content) != header + math.prod(shape):
        raise DataCorrupt(f"{path} is not an idx file of unsigned bytes: {len(content)} bytes do not fit its header")
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)
