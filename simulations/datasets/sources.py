"""Files of data sets: where they are looked for, and the check that they hold what was published.

A checksum here is taken over decoded content: the SHA-256 of the SHA-256 digests of the single rows, sorted
first where the order of rows carries no meaning. An official download, a recompressed copy and a shuffled one
all pass; a changed pixel, a missing or a doubled row does not.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import zlib
from collections.abc import Iterable, Sequence
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

ENVIRONMENT = "CONCLAVE_DATA"
_FILE_BYTES = 2**31
_CHUNK_BYTES = 2**20


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
    return found


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
        f"--data-dir DIR. The data set glyphs needs no file."
    )


def read_bytes(path: Path) -> bytes:
    """The file's content, decompressed when its name ends in .gz. Raises DataCorrupt when it cannot be
    read."""
    try:
        content = reading.read_bytes(path, most=_FILE_BYTES)
        if path.suffix != ".gz":
            return content
        with gzip.open(io.BytesIO(content)) as file:
            parts = []
            while part := file.read(_CHUNK_BYTES):  # in chunks, as a read allocates what it is asked for
                parts.append(part)
                if len(parts) * _CHUNK_BYTES > _FILE_BYTES:
                    raise DataCorrupt(f"{path} unpacks to more than {_FILE_BYTES} bytes; allowed: at most that")
        return b"".join(parts)
    except (DataUnavailable, OSError, EOFError, zlib.error) as error:
        raise DataCorrupt(f"{path} cannot be read: {error}; allowed: a readable, complete file") from error


def read_lines(path: Path) -> list[str]:
    """The file's lines without trailing blanks; empty lines are left out. Raises DataCorrupt."""
    try:
        text = read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataCorrupt(f"{path} is not UTF-8 text: {error}; allowed: UTF-8") from error
    return [line.rstrip() for line in text.splitlines() if line.strip()]


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


def line_digests(lines: Iterable[str]) -> list[bytes]:
    """The SHA-256 of each line."""
    return [hashlib.sha256(line.encode()).digest() for line in lines]


def check_content(path: Path, digests: list[bytes], expected: str, *, ordered: bool) -> None:
    """Raises DataCorrupt unless the rows, in any order unless `ordered`, are those that were published."""
    content = hashlib.sha256(b"".join(digests if ordered else sorted(digests))).hexdigest()
    if content != expected:
        raise DataCorrupt(
            f"{path} does not hold the published rows{' in their order' if ordered else ''}: {len(digests)} "
            f"rows with content checksum {content}; expected {expected}"
        )
