"""The pool of public queries: read from npy, npz or csv, and checked against the study's terms. No pickle is read."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float32
from numpy import ndarray

from protocols.array_files import FILE_BYTES, array_names, read_array, read_arrays
from protocols.errors import DataUnavailable, InvalidInput
from protocols.reading import open_file
from protocols.study.deployed import DeployedStudy
from protocols.study.queries import no_inputs, pool_digest
from protocols.study.terms import Feature
from runtime.files import write_atomically
from runtime.pool_tables import csv_queries

KINDS = (".npy", ".npz", ".csv")
_KEYS = ("pool", "inputs", "x")


def read_pool(path: Path, *, features: Sequence[Feature] = ()) -> Float32[ndarray, "queries ..."]:
    """The queries in a file, as float32. features: how columns of a csv are encoded; if empty, all are numbers.

    Raises DataUnavailable, DataCorrupt, and InvalidInput for an unknown kind of file or missing columns.
    """
    try:
        open_file(path, most=FILE_BYTES).close()
    except DataUnavailable:
        raise DataUnavailable(f"pool file {path} does not exist") from None
    kind = path.suffix.lower()
    if kind not in KINDS:
        raise InvalidInput(f"pool file {path.name} ends in {kind!r}; allowed: {', '.join(KINDS)}")
    given = csv_queries(path, features) if kind == ".csv" else _read_arrays(path)
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
            f"the pool's hash is {digest}; allowed: terms.pool_sha256, {terms.pool_sha256}. If this is the "
            "intended pool, leave pool_size and pool_sha256 out of the study file, and they are filled in"
        )


def write_pool(path: Path, pool: Float32[ndarray, "queries ..."]) -> None:
    """Stores a pool as .npy. Raises StorageFailed."""
    buffer = io.BytesIO()
    np.save(buffer, pool, allow_pickle=False)
    write_atomically(path, buffer.getvalue())


def stored_pool(path: Path, study: DeployedStudy) -> Float32[ndarray, "queries ..."]:
    """A stored pool, checked and memory-mapped. Raises DataUnavailable, DataCorrupt, InvalidInput as check_pool."""
    pool = read_array(path, mapped=True)
    check_pool(pool, study)
    return pool


def stored_inputs(path: Path, study: DeployedStudy) -> Float32[ndarray, "queries ..."]:
    """What a study asks: its stored pool; where records vote, queries that every party has. Raises as stored_pool."""
    return stored_pool(path, study) if study.records is None else no_inputs(study.records.queries)


def _read_arrays(path: Path) -> ndarray:
    """The array of an .npy file, or of an .npz file its only array, or the one named 'pool'."""
    if path.suffix.lower() == ".npy":
        return read_array(path)
    names = array_names(path)
    name = names[0] if len(names) == 1 else next((key for key in _KEYS if key in names), None)
    if name is None:
        raise InvalidInput(f"{path.name} holds the arrays {names[:8]}; allowed: one, or one named 'pool'")
    return read_arrays(path, [name])[name]
