"""Queries: a hospital's own unlabelled records, and the study's public pool, with which a node compares each batch.

The study names the pool by its hash. With the file, a node refuses any query that differs from the pool's at its
position; without it, only shape and number can be checked.
"""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float32
from numpy import ndarray

from party.data import load_records, of_file
from party.data.files import npz_inputs
from party.data.records import DataSettings, RecordLabels, table_inputs, usable_inputs, wanted
from protocols.array_files import array_names, read_array
from protocols.errors import DataCorrupt, InvalidInput, Refused
from protocols.refusals.code import Code
from protocols.study.queries import QueryBatch, pool_digest
from protocols.study.terms import Terms
from runtime.files import write_atomically
from runtime.tables import read_pool_file


def read_queries(path: Path, data: DataSettings, terms: Terms) -> Float32[ndarray, "queries ..."]:
    """The records of a table (by the study's features), or of a .npy or .npz file (`inputs`) of the study's shape.

    data: how this hospital's own tables are written. Raises InvalidInput, DataUnavailable, DataCorrupt.
    """
    if path.suffix.lower() == ".npy":
        queries = _npy(path)
    elif path.suffix.lower() == ".npz":
        queries = npz_inputs(path)
    else:
        settings = of_file(data, path)
        names = wanted(settings, terms, labelled=False)
        queries = table_inputs(settings.source.columns(names, settings.mapping.form), settings, terms)
    if queries.shape[1:] != terms.input_shape or not len(queries):
        raise DataCorrupt(f"{path}: queries {queries.shape}; allowed: one or more of shape {terms.input_shape}")
    bad = ~np.isfinite(queries).reshape(len(queries), -1).all(axis=1)
    if bad.any():
        raise DataCorrupt(f"{path}: row {int(bad.argmax()) + 1}: NaN or infinite features; allowed: finite numbers")
    return queries


def in_any_range(data: DataSettings, terms: Terms) -> tuple[DataSettings, Terms]:
    """Settings and terms by which a number that the study refuses is read all the same, unless the mapping file says
    what happens to it: for predictions, which mark it."""
    free = {each.column for each in terms.features if each.kind == "numeric"} - data.mapping.unusable.keys()
    features = tuple(replace(each, least=None, most=None) if each.column in free else each for each in terms.features)
    mapping = replace(data.mapping, unusable={**data.mapping.unusable, **dict.fromkeys(free, "clip")})
    return replace(data, mapping=mapping), replace(terms, features=features)


def own_records(
    data: DataSettings, path: Path, terms: Terms
) -> tuple[Float32[ndarray, "records ..."], RecordLabels | None, Bool[ndarray, " records"]]:
    """Inputs, labels (None where there are none) and which records can be used, of a file of this hospital's.

    A table has labels if it has their columns; a folder of images always has, as its folders are classes. Raises as
    read_queries does.
    """
    if path.suffix.lower() in (".npy", ".npz"):
        inputs = read_queries(path, data, terms)
        named = path.suffix.lower() == ".npz" and "labels" in array_names(path)
        labels = load_records(of_file(data, path), terms).labels if named else None
        return inputs, labels, np.ones(len(inputs), bool)
    settings = of_file(data, path)
    form = settings.mapping.form
    if not settings.source.is_table or {*map(settings.mapping.own, terms.labels)} <= {*settings.source.header(form)}:
        records = load_records(settings, terms)
        return records.inputs, records.labels, records.usable
    columns = settings.source.columns(wanted(settings, terms, labelled=False), form)
    inputs, used = usable_inputs(columns, settings, terms)
    return inputs, None, used


def _npy(path: Path) -> Float32[ndarray, "queries ..."]:
    given = read_array(path)
    if given.dtype.kind not in "fiub" or given.ndim < 2:
        raise DataCorrupt(f"{path} does not hold rows of numbers; allowed: .npy of [queries, features, ...]")
    with np.errstate(over="ignore"):
        return given.astype(np.float32)


def read_pool_queries(path: Path, terms: Terms) -> Float32[ndarray, "queries ..."]:
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
    np.save(content, read_pool_queries(source, terms), allow_pickle=False)
    write_atomically(target, content.getvalue())


def check_batch(batch: QueryBatch, pool: Float32[ndarray, "queries ..."], *, rows: int = 1) -> None:
    """Raises Refused("other_pool") unless every query of a batch equals the pool's at its position. rows: that the
    study asks of each record of the pool."""
    at = batch.ids // rows
    if at.min() < 0 or at.max() >= len(pool) or not np.array_equal(batch.inputs, pool[at]):
        raise Refused(Code.OTHER_POOL, f"batch {batch.number} holds queries that are not in the study's pool")
