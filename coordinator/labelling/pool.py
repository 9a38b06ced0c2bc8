"""The pool of public queries: read from npy, npz or csv, and checked against the study's terms. No pickle is read."""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float32
from numpy import ndarray

from protocols.array_files import FILE_BYTES, array_names, read_array, read_arrays
from protocols.errors import DataCorrupt, DataUnavailable, InvalidInput
from protocols.reading import open_file
from protocols.study.deployed import DeployedStudy
from protocols.study.queries import pool_digest
from protocols.study.terms import Feature
from runtime.files import write

KINDS = (".npy", ".npz", ".csv")
_KEYS = ("pool", "inputs", "x")
_CHUNK = 65_536
_MISSING = frozenset({"", "NA", "NaN", "nan", "?"})


def read_pool(path: Path, *, features: Sequence[Feature] = ()) -> Float32[ndarray, "queries ..."]:
    """The queries in a file, as float32. features: how columns of a csv become inputs; without, all are numbers.

    Raises DataUnavailable, DataCorrupt, and InvalidInput for an unknown kind of file or columns that are missing.
    """
    try:
        open_file(path, most=FILE_BYTES).close()
    except DataUnavailable:
        raise DataUnavailable(f"pool file {path} does not exist") from None
    kind = path.suffix.lower()
    if kind not in KINDS:
        raise InvalidInput(f"pool file {path.name} ends in {kind!r}; allowed: {', '.join(KINDS)}")
    try:
        given = _read_csv(path, features) if kind == ".csv" else _read_arrays(path)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataCorrupt(f"pool file {path} cannot be read: {error}") from None
    if not (np.issubdtype(given.dtype, np.floating) or np.issubdtype(given.dtype, np.integer)):
        raise InvalidInput(f"pool file {path.name} holds {given.dtype}; allowed: numbers")
    if given.ndim < 2 or given.size == 0:
        raise InvalidInput(f"pool file {path.name} holds an array {given.shape}; allowed: [queries, features, ...]")
    with np.errstate(over="ignore"):
        pool = np.ascontiguousarray(given, dtype="<f4")
    finite = np.isfinite(pool).reshape(len(pool), -1).all(axis=1)
    if not finite.all():
        raise InvalidInput(
            f"pool file {path.name}: query {int(finite.argmin())} has a value that is missing, infinite or beyond "
            f"float32 ({int((~finite).sum())} of {len(pool)} have); allowed: finite numbers"
        )
    return pool


def check_pool(pool: Float32[ndarray, "queries ..."], study: DeployedStudy) -> None:
    """Raises InvalidInput unless this is the pool that the study's terms name."""
    terms = study.terms
    if pool.shape[1:] != terms.input_shape:
        raise InvalidInput(f"queries have the shape {pool.shape[1:]}; allowed: terms.input_shape, {terms.input_shape}")
    if len(pool) != terms.pool_size:
        raise InvalidInput(f"the pool has {len(pool)} queries; allowed: terms.pool_size, {terms.pool_size}")
    digest = pool_digest(pool)
    if digest != terms.pool_sha256:
        raise InvalidInput(
            f"the pool's hash is {digest}; allowed: terms.pool_sha256, {terms.pool_sha256}. If this is the pool that "
            "you mean, write its hash into the study (see study pool-digest) before anybody approves it"
        )


def write_pool(path: Path, pool: Float32[ndarray, "queries ..."]) -> None:
    """Keeps a pool as .npy. Raises StorageFailed."""
    buffer = io.BytesIO()
    np.save(buffer, pool, allow_pickle=False)
    write(path, buffer.getvalue())


def stored_pool(path: Path, study: DeployedStudy) -> Float32[ndarray, "queries ..."]:
    """A kept pool, checked, and mapped from disk. Raises DataUnavailable, DataCorrupt, InvalidInput as check_pool."""
    pool = read_array(path, mapped=True)
    check_pool(pool, study)
    return pool


def _read_arrays(path: Path) -> ndarray:
    """The array of an .npy file, or of an .npz file the one array, or the one that is called like a pool."""
    if path.suffix.lower() == ".npy":
        return read_array(path)
    names = array_names(path)
    name = names[0] if len(names) == 1 else next((key for key in _KEYS if key in names), None)
    if name is None:
        raise InvalidInput(f"{path.name} holds the arrays {names[:8]}; allowed: one, or one named 'pool'")
    return read_arrays(path, [name])[name]


def _read_csv(path: Path, features: Sequence[Feature]) -> ndarray:
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.reader(file, strict=True)
        header = next(rows, [])
        if not header:
            raise DataCorrupt(f"{path.name} has no header in its first row; allowed: a row of column names")
        if features:
            missing = [each.column for each in features if each.column not in header]
            if missing:
                raise InvalidInput(f"{path.name} has no column {missing[0]!r}; allowed: the columns of the study")
        parts = []
        for start, chunk in _chunks(rows):
            for at, row in enumerate(chunk):
                if len(row) != len(header):
                    where = f"{path.name}, row {start + at + 1}"
                    raise DataCorrupt(f"{where} has {len(row)} fields; allowed: the header's {len(header)}")
            columns = dict(zip(header, zip(*chunk, strict=True), strict=True))
            made = [encode_column(each, columns[each.column]) for each in features] or [
                np.array([_number(text) for text in column])[:, None] for column in columns.values()
            ]
            with np.errstate(over="ignore"):
                parts.append(np.concatenate(made, axis=1).astype(np.float32))
    return np.concatenate(parts) if parts else np.zeros((0, 0), dtype=np.float32)


def encode_column(feature: Feature, values: Sequence[str]) -> ndarray:
    """One column of a table as features, as terms.Feature says. A value that may not miss becomes NaN if it does."""
    if feature.kind == "categorical":
        texts = np.array([value.strip() for value in values], dtype=object)
        encoded = np.stack([texts == category for category in feature.categories], axis=1).astype(np.float64)
        missing = np.array([text in _MISSING for text in texts])
        unknown = (encoded.sum(axis=1) == 0) & ~(missing & feature.may_miss)
        if unknown.any():
            first = str(texts[int(unknown.argmax())])[:40]
            raise InvalidInput(f"column {feature.column!r} holds {first!r}; allowed: {', '.join(feature.categories)}")
        return encoded
    assert feature.centre is not None  # a numeric feature has both
    assert feature.scale is not None
    numbers = np.array([_number(value) for value in values])
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        scaled = ((np.log1p(numbers) if feature.log else numbers) - feature.centre) / feature.scale
    if not feature.may_miss:
        return scaled[:, None]
    absent = np.isnan(numbers)
    return np.stack([np.where(absent, 0.0, scaled), absent.astype(np.float64)], axis=1)


def _chunks(rows: Iterator[list[str]]) -> Iterator[tuple[int, list[list[str]]]]:
    start = 0
    while chunk := list(itertools.islice(rows, _CHUNK)):
        yield start, chunk
        start += len(chunk)


def _number(text: str) -> float:
    """NaN for what is missing; what is not a number is infinite, and refused with its row later."""
    text = text.strip()
    if text in _MISSING:
        return math.nan
    try:
        # float() would also take "1_000" and digits of other scripts.
        return float(text) if text.isascii() and "_" not in text else math.inf
    except ValueError:
        return math.inf
