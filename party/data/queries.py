"""Unlabelled records about which a hospital asks: read and encoded like its own labelled ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float32, Int64
from numpy import ndarray

from party.data import load_records, of_file
from party.data.npz import npz_inputs
from party.data.settings import DataSettings
from party.data.tables import table_inputs, usable_inputs, wanted
from protocols.array_files import array_names, read_array
from protocols.errors import DataCorrupt
from protocols.study.terms import Terms


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


def own_records(
    data: DataSettings, path: Path, terms: Terms
) -> tuple[Float32[ndarray, "records ..."], Int64[ndarray, " records"] | None, Bool[ndarray, " records"]]:
    """Inputs, labels (None where there are none) and which records can be used, of a file of this hospital's.

    A table has labels if it has the label's column; a folder of images always has, as its folders are classes. Raises
    as read_queries does.
    """
    if path.suffix.lower() in (".npy", ".npz"):
        inputs = read_queries(path, data, terms)
        named = path.suffix.lower() == ".npz" and "labels" in array_names(path)
        labels = load_records(of_file(data, path), terms).labels if named else None
        return inputs, labels, np.ones(len(inputs), bool)
    settings = of_file(data, path)
    form = settings.mapping.form
    if not settings.source.is_table or settings.mapping.own(terms.label) in settings.source.header(form):
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
