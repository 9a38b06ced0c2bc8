"""The study's pool of public queries, as the hospital received it: a node compares each batch with it.

The study names the pool by its hash. With the file, a node refuses any query that differs from the pool's at its
position; without it, only shape and number can be checked.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from jaxtyping import Float32
from numpy import ndarray

from protocols.errors import DataCorrupt, InvalidInput, Refused
from protocols.refusals.code import Code
from protocols.study.queries import QueryBatch, pool_digest
from protocols.study.terms import Terms
from runtime.files import write_atomically
from runtime.pool_files import read_pool_file


def read_pool(path: Path, terms: Terms) -> Float32[ndarray, "queries ..."]:
    """The queries in a file, as float32: a table (.csv, .jsonl, .parquet), encoded by the study's terms, or an array
    (.npy, .npz); of an .npy file memory-mapped if it is float32 already.

    Raises DataUnavailable, and InvalidInput unless the queries are the study's, or where an extra is missing.
    """
    try:
        pool = read_pool_file(path, terms.features, mapped=True)
    except DataCorrupt as error:
        raise InvalidInput(f"pool file {error}") from None
    if pool.dtype.kind not in "fiu":
        raise InvalidInput(f"pool file {path} does not hold numbers; allowed: the study's pool")
    if pool.dtype != np.dtype("<f4"):
        with np.errstate(over="ignore"):
            pool = pool.astype("<f4")
    wanted = (terms.pool_size, *terms.input_shape)
    if pool.shape != wanted or pool_digest(pool) != terms.pool_sha256:
        raise InvalidInput(
            f"pool file {path} (shape {pool.shape}) is not the study's pool; allowed: shape {wanted} with "
            f"SHA-256 {terms.pool_sha256}"
        )
    if not np.isfinite(pool).all():
        raise InvalidInput(f"pool file {path} holds NaN or infinite values; allowed: finite")
    return pool


def keep_pool(source: Path, target: Path, terms: Terms) -> None:
    """Copies the study's pool beside the study. Raises as read_pool does, and StorageFailed."""
    content = io.BytesIO()
    np.save(content, read_pool(source, terms), allow_pickle=False)
    write_atomically(target, content.getvalue())


def check_batch(batch: QueryBatch, pool: Float32[ndarray, "queries ..."]) -> None:
    """Raises Refused("other_pool") unless every query of a batch equals the pool's at its position."""
    if batch.ids.min() < 0 or batch.ids.max() >= len(pool) or not np.array_equal(batch.inputs, pool[batch.ids]):
        raise Refused(Code.OTHER_POOL, f"batch {batch.number} holds queries that are not in the study's pool")
