"""Unlabelled records about which a hospital asks: read and encoded like its own labelled ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Float32
from numpy import ndarray

from party.data.npz import npz_inputs
from party.data.settings import DataSettings
from party.data.tables import table_inputs, wanted
from protocols.array_files import read_array
from protocols.errors import DataCorrupt, InvalidInput
from protocols.study.terms import Terms
from runtime.tables import read_csv


def read_queries(path: Path, data: DataSettings, terms: Terms) -> Float32[ndarray, "queries ..."]:
    """The records of a .csv file (by the study's features), or of a .npy or .npz file (`inputs`) of the study's shape.

    data: how this hospital's own tables are written. Raises InvalidInput, DataUnavailable, DataCorrupt.
    """
    settings = replace(data, path=path, patient="", group="")
    match path.suffix.lower():
        case ".csv":
            names = wanted(settings, terms, labelled=False)
            queries = table_inputs(read_csv(path, names, delimiter=settings.delimiter), settings, terms)
        case ".npz":
            queries = npz_inputs(settings)
        case ".npy":
            queries = _npy(settings)
        case kind:
            raise InvalidInput(f"{path.name} ends in {kind!r}; allowed: .csv, .npy, .npz")
    if queries.shape[1:] != terms.input_shape or not len(queries):
        raise DataCorrupt(f"{path}: queries {queries.shape}; allowed: one or more of shape {terms.input_shape}")
    bad = ~np.isfinite(queries).reshape(len(queries), -1).all(axis=1)
    if bad.any():
        raise DataCorrupt(f"{path}: row {int(bad.argmax()) + 1}: NaN or infinite features; allowed: finite numbers")
    return queries


def _npy(settings: DataSettings) -> Float32[ndarray, "queries ..."]:
    given = read_array(settings.path)
    if given.dtype.kind not in "fiub" or given.ndim < 2:
        raise DataCorrupt(f"{settings.path} does not hold rows of numbers; allowed: .npy of [queries, features, ...]")
    with np.errstate(over="ignore"):
        return given.astype(np.float32)
