"""Data sets of images that are drawn at run time: three parts, each of its own random stream, in any size.

A cache of data sets that are computed rather than read: the arrays as .npy files, mapped into memory.

A folder is named by everything that the data depend on: the request, the source code of the data set, and the
versions of the packages that draw it. A folder that cannot be read is made again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any  # the words of a JSON file, and arrays

import numpy as np
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray

from protocols.array_files import array_parts, read_array
from protocols.errors import DataCorrupt, DataUnavailable, InvalidInput
from protocols.reading import read_json
from runtime.files import write_atomically
from simulations.datasets.dataset import Dataset, DatasetRequest, content_digest, largest_remainder
from simulations.source import source_digest

Draw = Callable[[Int64[ndarray, " records"], np.random.Generator], Float32[ndarray, "records ..."]]


def drawn_dataset(
    request: DatasetRequest, *, name: str, class_names: Sequence[str], sizes: Mapping[str, int], draw: Draw, about: str
) -> Dataset:
    """Draws labels, and an image for each, of the three parts; each part's stream is that of (seed, name, part).

    sizes: of "private", "public" and "test", where the request names none. Classes are equally frequent; with
    `imbalance` r the private class sizes fall geometrically, the first r times the last (Cui et al. 2019,
    "Class-Balanced Loss", section 5), public and test stay balanced. `mislabelled` of the private labels are
    replaced by another class, uniformly.

    Raises InvalidInput for a number of classes other than that of the names.
    """
    classes = len(class_names)
    if request.classes not in (None, classes):
        raise InvalidInput(f"{name}: classes is {request.classes}; allowed: {classes}")
    asked = {"private": request.private_size, "public": request.public_size, "test": request.test_size}
    made: dict[str, tuple[Float32[ndarray, "records ..."], Int64[ndarray, " records"]]] = {}
    for part, size in asked.items():
        rng = np.random.default_rng([request.seed, *f"{name} {part}".encode()])
        shares = np.ones(classes)
        if part == "private":
            shares = request.imbalance ** -np.linspace(0, 1, classes)
        labels = _draw_labels(sizes[part] if size is None else size, shares, rng)
        inputs = draw(labels, rng)
        if part == "private":
            labels = _mislabel(labels, request.mislabelled, classes, rng)
        made[part] = inputs, labels
    return Dataset.of_parts(made, name=name, kind="image", class_names=tuple(class_names), about=about)


def _draw_labels(
    size: int, shares: Float64[ndarray, " classes"], rng: np.random.Generator
) -> Int64[ndarray, " records"]:
    """Labels in random order with class sizes in proportion to `shares`, rounded by largest remainder."""
    counts = largest_remainder(size * shares / shares.sum(), size)
    labels = np.repeat(np.arange(len(shares), dtype=np.int64), counts)
    rng.shuffle(labels)
    return labels


def _mislabel(
    labels: Int64[ndarray, " records"], share: float, classes: int, rng: np.random.Generator
) -> Int64[ndarray, " records"]:
    """The labels with round(share * records) of them replaced by another class, chosen uniformly."""
    wrong = rng.choice(len(labels), size=round(share * len(labels)), replace=False)
    changed = labels.copy()
    changed[wrong] = (labels[wrong] + rng.integers(1, classes, size=len(wrong))) % classes
    return changed


_ARRAYS = ("private_inputs", "private_labels", "public_inputs", "public_labels", "test_inputs", "test_labels")
_WORDS = ("name", "kind", "class_names", "about")


def rendered(
    name: str, request: DatasetRequest, *, load: Callable[[str, DatasetRequest], Dataset], cache_dir: Path
) -> Dataset:
    """load(name, request), from the cache if possible. The data set must have neither sites nor patients.

    Raises what `load` raises, and StorageFailed.
    """
    about = json.dumps({**asdict(request), "data_dir": None, "schema": None}, sort_keys=True)
    versions = " ".join(f"{package} {version(package)}" for package in ("numpy", "scipy", "matplotlib"))
    key = content_digest(text=f"{name} {about} {versions} {source_digest(__package__)}")
    folder = cache_dir / "datasets" / key
    if (kept := _kept(folder)) is not None:
        return kept
    dataset = load(name, request)
    for part in _ARRAYS:
        write_atomically(folder / f"{part}.npy", array_parts(getattr(dataset, part)))
    words = {key: getattr(dataset, key) for key in _WORDS}
    # Written last, so that a folder with it is complete.
    write_atomically(folder / "about.json", json.dumps(words))
    # Mapped from now on: a million images would otherwise stay in memory until the end.
    return _kept(folder) or dataset


def _kept(folder: Path) -> Dataset | None:
    """The data set of a folder, its arrays mapped; None where it is missing or cannot be read."""
    try:
        words = read_json(folder / "about.json")
        said: dict[str, Any] = {key: words[key] for key in _WORDS}
        said |= {part: np.asarray(read_array(folder / f"{part}.npy", mapped=True)) for part in _ARRAYS}
        return Dataset(**{**said, "class_names": tuple(said["class_names"])})
    except (DataUnavailable, DataCorrupt, ValueError, KeyError, TypeError):
        return None
