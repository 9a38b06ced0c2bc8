"""A person's own CSV or Parquet table, read by its schema."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
from jaxtyping import Int64, Shaped
from numpy import ndarray

from protocols.array_files import FILE_BYTES
from protocols.errors import DataCorrupt
from protocols.reading import open_file
from simulations.datasets.columns import category_codes, encode
from simulations.datasets.dataset import Dataset
from simulations.datasets.own_pool import PARTS, Pool, as_dataset, cut_pool
from simulations.datasets.own_schema import Schema

_COLUMNS = 20_000
_HEADER_BYTES = 2**22


def load_table(path: Path, schema: Schema, *, seed: int, sizes: tuple[int | None, int | None, int | None]) -> Dataset:
    """The table's data set. Raises DataCorrupt naming file, column and row, InvalidInput on sizes."""
    table = _read(path)
    named = [
        schema.label,
        schema.site,
        schema.patient,
        schema.split,
        *(column.name for column in schema.columns),
    ]
    absent = [name for name in named if name is not None and name not in table.columns]
    if absent:
        raise DataCorrupt(f"{path} has no column {', '.join(absent)}; it has {', '.join(table.columns)}")
    if len(table) == 0:
        raise DataCorrupt(f"{path} has no rows; allowed: at least one each for the private, public and test part")
    pool = Pool(
        path=path,
        name=schema.name,
        kind="table",
        class_names=schema.classes,
        labels=_codes(path, table[schema.label], schema.classes),
        sites=None if schema.site is None else _names(path, table[schema.site]),
        patients=None if schema.patient is None else _names(path, table[schema.patient]),
        part=None if schema.split is None else _codes(path, table[schema.split], PARTS),
    )
    parts = cut_pool(pool, schema.shares, sizes, seed)
    try:
        inputs = encode(table, schema.columns, parts.public)
    except DataCorrupt as error:
        raise DataCorrupt(f"{path}: {error}") from error
    return as_dataset(pool, inputs, parts)


def _read(path: Path) -> pd.DataFrame:
    """All columns as texts; an empty field, a null and a floating-point NaN are missing."""
    try:
        if path.suffix.lower() == ".csv":
            with open_file(path, most=FILE_BYTES) as file:
                columns = file.readline(_HEADER_BYTES).count(b",") + 1
                if columns > _COLUMNS:
                    raise DataCorrupt(f"{path} has {columns} columns; allowed: at most {_COLUMNS}")
                file.seek(0)
                return pd.read_csv(file, dtype=str, keep_default_na=False, na_values=[""])
        with open_file(path, most=FILE_BYTES) as file:
            table = pyarrow.parquet.read_table(file)
        texts = {name: table.column(name).cast(pyarrow.string()) for name in table.column_names}
        frame = pd.DataFrame({name: column.to_pylist() for name, column in texts.items()}, dtype=str)
        for field in table.schema:
            if pyarrow.types.is_floating(field.type):
                frame[field.name] = frame[field.name].replace("nan", np.nan)
        return frame
    except (OSError, ValueError, pd.errors.ParserError, pyarrow.ArrowException) as error:
        raise DataCorrupt(f"{path} cannot be read: {error}; allowed: UTF-8 CSV with a header, or Parquet") from error


def _codes(path: Path, values: pd.Series[str], known: Sequence[str]) -> Int64[ndarray, " rows"]:
    codes = category_codes(values, known)
    if (codes < 0).any():
        row = int(np.argmax(codes < 0))
        found = "missing" if values.isna().iloc[row] else repr(values.iloc[row])
        raise DataCorrupt(
            f"{path}: column {values.name}, row {row} (counted from 0): {found}; allowed: {', '.join(known)}"
        )
    return codes


def _names(path: Path, values: pd.Series[str]) -> Shaped[ndarray, " rows"]:
    missing = values.isna().to_numpy()
    if missing.any():
        raise DataCorrupt(
            f"{path}: column {values.name}, row {int(np.argmax(missing))} (counted from 0): missing; allowed: a name"
        )
    return values.to_numpy(dtype=str)
