"""Files of data sets: where they are looked for, and what published.json says of them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any  # the values of a JSON object

import numpy as np
from jaxtyping import Shaped
from numpy import ndarray

from protocols import reading
from protocols.array_files import read_arrays
from protocols.errors import DataCorrupt, DataUnavailable
from protocols.study.terms import Feature
from runtime.shipped import heart_disease

ENVIRONMENT = "CONCLAVE_DATA"


@dataclass(frozen=True)
class DataSource:
    """Where one data set comes from: its sub-folder, and how a user with internet fills it."""

    folder: str
    url: str
    steps: str  # completes the sentence "To get it: ..."


@dataclass(frozen=True)
class Published:
    """What published.json says of a data set.

    about: a sentence for reports; checksums: of the content of each file, by its name; sizes: of the public and the
    test part where none is asked for; columns: how those of a table become features; more: what one loader alone reads.
    """

    name: str
    source: DataSource
    about: str
    checksums: dict[str, str]
    sizes: tuple[int, ...]
    classes: tuple[str, ...]
    columns: tuple[Feature, ...]
    more: dict[str, Any]


def published(name: str, *, task: str | None = None) -> Published:
    """What published.json says of a data set, and of one of its tasks, where it has several."""
    said = _published()[name]
    of_task = said.get("tasks", {}).get(task or name)
    columns = [{**each, "categories": tuple(each.get("categories", ()))} for each in said.get("columns", ())]
    return Published(
        name=task or name,
        source=DataSource(name, **said["source"]),
        about=said["about"] if of_task is None else f"{said['about']} {of_task['about']}",
        checksums=said.get("checksums", {}),
        sizes=tuple(said.get("sizes", ())),
        classes=tuple((of_task or said)["classes"]),
        columns=tuple(Feature(**each) for each in columns),
        more=said,
    )


@cache
def _published() -> dict[str, dict[str, Any]]:
    found = reading.read_json(Path(__file__).with_name("published.json"))
    assert isinstance(found, dict)  # a file of this project
    return {**found, heart_disease.FOLDER: heart_disease.about()}


def published_majority(name: str | None) -> float | None:
    """The share of the most frequent class among all records, as it was published; None where that is not known."""
    share: float | None = _published().get(name or "", {}).get("majority")
    return share


def data_folder(data_dir: Path | None) -> Path | None:
    """The folder given, else the one that CONCLAVE_DATA names, else None."""
    if data_dir is not None:
        return data_dir
    named = os.environ.get(ENVIRONMENT)
    return Path(named) if named else None


def find(source: DataSource, data_dir: Path | None, names: Sequence[str]) -> Path:
    """The path of the first of the named files that is in the data set's folder.

    Raises DataUnavailable, which says where it was looked for and how to get it.
    """
    root = data_folder(data_dir)
    if root is not None:
        for name in names:
            path = root / source.folder / name
            if path.is_file():
                return path
    looked = (
        f"no folder was named: --data-dir was not given and {ENVIRONMENT} is not set"
        if root is None
        else f"none of {', '.join(names)} is in {root / source.folder}"
    )
    raise DataUnavailable(
        f"the data set {source.folder} was not found: {looked}. To get it: {source.steps} (from "
        f"{source.url}), put the files into DIR/{source.folder}/, then set {ENVIRONMENT}=DIR or give "
        f"--data-dir DIR. The data sets glyphs and heart_disease need no file."
    )


def read_npz(path: Path, names: Sequence[str] | None = None) -> dict[str, Shaped[ndarray, "*shape"]]:
    """The arrays of an npz file (those named, or all); pickled objects are refused.

    Raises DataCorrupt when the file is damaged, holds objects, or lacks a named array.
    """
    try:
        return read_arrays(path, names)
    except DataUnavailable as error:
        raise DataCorrupt(str(error)) from None


def row_digests(inputs: Shaped[ndarray, "rows ..."], labels: Shaped[ndarray, "rows ..."] | None = None) -> list[bytes]:
    """The SHA-256 of each row's bytes, followed by its label's byte (labels are uint8) where there are
    labels."""
    rows = np.ascontiguousarray(inputs).reshape(len(inputs), -1)
    if labels is not None:
        rows = np.concatenate([rows, labels.reshape(len(rows), -1).astype(np.uint8)], axis=1)
    return [hashlib.sha256(row.data).digest() for row in rows]
