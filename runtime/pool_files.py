"""A study's public queries as files: tables that people can read, encoded by the study's terms, and arrays. Operator
and hospitals read them alike. No pickle is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from jaxtyping import Float32
from numpy import ndarray

from protocols.array_files import FILE_BYTES, array_names, read_array, read_arrays
from protocols.errors import DataUnavailable, InvalidInput
from protocols.reading import open_file
from protocols.study.features import MISSING, encode_table, read_numbers
from protocols.study.terms import Feature
from runtime.distribution import lacking
from runtime.jsonl_tables import read_jsonl
from runtime.tables import read_csv

KINDS: Final = (".csv", ".jsonl", ".parquet", ".npy", ".npz")
_KEYS: Final = ("pool", "inputs", "x")


def read_pool_file(path: Path, features: Sequence[Feature], *, mapped: bool) -> ndarray:
    """The queries in a file, which may hold anything yet. features: how the columns of a table are encoded; if empty,
    all are numbers. mapped: whether an .npy file is memory-mapped.

    Raises DataUnavailable, DataCorrupt, and InvalidInput for an unknown kind of file or where an extra is missing.
    """
    try:
        open_file(path, most=FILE_BYTES).close()
    except DataUnavailable:
        raise DataUnavailable(f"pool file {path} does not exist") from None
    names = [each.column for each in features] or None
    match path.suffix.lower():
        case ".csv":
            return _encoded(read_csv(path, names), features, name=path.name)
        case ".jsonl":
            return _encoded(read_jsonl(path, names, missing=MISSING[0]), features, name=path.name)
        case ".parquet":
            try:
                from runtime.parquet_tables import read_parquet
            except ModuleNotFoundError as missing:
                raise lacking(missing, f"pool file {path.name}") from missing
            return _encoded(read_parquet(path, names, missing=MISSING[0]), features, name=path.name)
        case ".npy":
            return read_array(path, mapped=mapped)
        case ".npz":
            known = array_names(path)
            name = known[0] if len(known) == 1 else next((key for key in _KEYS if key in known), None)
            if name is None:
                raise InvalidInput(
                    f"pool file {path.name} holds the arrays {known[:8]}; allowed: one, or one named pool"
                )
            return read_arrays(path, [name])[name]
        case kind:
            raise InvalidInput(f"pool file {path.name} ends in {kind!r}; allowed: {', '.join(KINDS)}")


def _encoded(
    columns: Mapping[str, Sequence[str]], features: Sequence[Feature], *, name: str
) -> Float32[ndarray, "queries features"] | ndarray:
    """The queries in columns of texts. name: of the file, for messages. Raises DataCorrupt."""
    if not features:
        return np.stack([read_numbers(texts) for texts in columns.values()], axis=1)
    return encode_table(columns, features, missing=MISSING, where=lambda column: f"{name}: column {column!r}")
