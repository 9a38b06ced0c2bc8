"""The pool of public queries: read from a table or an array, and checked against the terms. No pickle is read."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float32
from numpy import ndarray

from protocols.array_files import read_array
from protocols.errors import InvalidInput
from protocols.study.deployed import DeployedStudy
from protocols.study.queries import no_inputs, pool_digest
from protocols.study.terms import Feature
from runtime.files import write_atomically
from runtime.tables import read_pool_file


def read_pool(path: Path, *, features: Sequence[Feature] = ()) -> Float32[ndarray, "queries ..."]:
    """The queries in a file, as float32. features: how columns of a table are encoded; if empty, all are numbers.

    Raises DataUnavailable, DataCorrupt, and InvalidInput for an unknown kind of file or missing columns.
    """
    given = read_pool_file(path, features, mapped=False)
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
    """What is sent of a study's queries: its stored pool, or only their number. Raises as stored_pool."""
    return no_inputs(study.queries_to_ask) if study.sent_shape == (0,) else stored_pool(path, study)
