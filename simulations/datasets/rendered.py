"""A cache of data sets that are computed rather than read: the arrays as .npy files, mapped into memory.

A folder is named by everything that the data depend on: the request, the source code of the data set, and the
versions of the packages that draw it. A folder that cannot be read is made again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import numpy as np

from protocols.array_files import array_parts, read_array
from protocols.errors import DataCorrupt, DataUnavailable
from protocols.reading import read_json
from runtime.files import write_atomically
from simulations.datasets.dataset import Dataset, content_digest
from simulations.datasets.request import DatasetRequest
from simulations.source import source_digest

_ARRAYS = ("private_inputs", "private_labels", "public_inputs", "public_labels", "test_inputs", "test_labels")


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
    words = {key: getattr(dataset, key) for key in ("name", "kind", "class_names", "about")}
    # Written last, so that a folder with it is complete.
    write_atomically(folder / "about.json", json.dumps(words))
    # Mapped from now on: a million images would otherwise stay in memory until the end.
    return _kept(folder) or dataset


def _kept(folder: Path) -> Dataset | None:
    """The data set of a folder, its arrays mapped; None where it is missing or cannot be read."""
    try:
        words = read_json(folder / "about.json")
        arrays = {part: np.asarray(read_array(folder / f"{part}.npy", mapped=True)) for part in _ARRAYS}
        return Dataset(
            name=words["name"],
            kind=words["kind"],
            class_names=tuple(words["class_names"]),
            about=words["about"],
            private_inputs=arrays["private_inputs"],
            private_labels=arrays["private_labels"],
            public_inputs=arrays["public_inputs"],
            public_labels=arrays["public_labels"],
            test_inputs=arrays["test_inputs"],
            test_labels=arrays["test_labels"],
        )
    except (DataUnavailable, DataCorrupt, ValueError, KeyError, TypeError):
        return None
