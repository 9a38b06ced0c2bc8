"""A study's public queries as a table that people can read, encoded alike by the operator and by every hospital."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float32
from numpy import ndarray

from protocols.study.features import MISSING, encode_table, read_numbers
from protocols.study.terms import Feature
from runtime.tables import read_csv


def csv_queries(path: Path, features: Sequence[Feature]) -> Float32[ndarray, "queries features"] | ndarray:
    """The queries in a CSV file. features: of the study, one per column; if empty, every column holds numbers.

    Raises DataUnavailable, and DataCorrupt for a table that lacks a column or has a value that does not fit.
    """
    return encoded_queries(read_csv(path, [each.column for each in features] or None), features, name=path.name)


def encoded_queries(
    columns: Mapping[str, Sequence[str]], features: Sequence[Feature], *, name: str
) -> Float32[ndarray, "queries features"] | ndarray:
    """The queries in columns of texts. name: of the file, for messages. Raises DataCorrupt."""
    if not features:
        return np.stack([read_numbers(texts) for texts in columns.values()], axis=1)
    return encode_table(columns, features, missing=MISSING, where=lambda column: f"{name}: column {column!r}")
