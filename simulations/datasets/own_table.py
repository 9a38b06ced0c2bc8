"""The user's own CSV or Parquet table, read by its schema and by the same rules as on a hospital's node."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from jaxtyping import Shaped
from numpy import ndarray

from protocols.errors import DataCorrupt
from protocols.study.features import MISSING, class_ids, record_names
from runtime.parquet_tables import read_parquet
from runtime.tables import read_csv
from simulations.datasets.columns import encode, features_of
from simulations.datasets.dataset import Dataset
from simulations.datasets.own_pool import PARTS, Pool, as_dataset, cut_pool
from simulations.datasets.own_schema import Schema


def load_table(path: Path, schema: Schema, *, seed: int, sizes: tuple[int | None, int | None, int | None]) -> Dataset:
    """The table's data set. Raises DataCorrupt naming file, column and row, InvalidInput on sizes."""
    asked = [schema.label, schema.site, schema.patient, schema.split, *(each.column for each in schema.columns)]
    names = [name for name in asked if name is not None]
    in_parquet = path.suffix.lower() == ".parquet"
    table = read_parquet(path, names, missing=MISSING[0]) if in_parquet else read_csv(path, names)
    if not table[schema.label]:
        raise DataCorrupt(f"{path} has no rows; allowed: at least one each for the private, public and test part")

    def codes(column: str, known: tuple[str, ...]) -> Shaped[ndarray, " rows"]:
        numbers = {name: number for number, name in enumerate(known)}
        return class_ids(table[column], numbers, missing=MISSING, where=f"{path}: column {column!r}")

    def texts(column: str) -> Shaped[ndarray, " rows"]:
        return np.array(record_names(table[column], missing=MISSING, where=f"{path}: column {column!r}"))

    pool = Pool(
        path=path,
        name=schema.name,
        kind="table",
        class_names=schema.classes,
        labels=codes(schema.label, schema.classes),
        sites=None if schema.site is None else texts(schema.site),
        patients=None if schema.patient is None else texts(schema.patient),
        part=None if schema.split is None else codes(schema.split, PARTS),
    )
    parts = cut_pool(pool, schema.shares, sizes, seed)
    columns = features_of(table, schema.columns, parts.public)
    return as_dataset(pool, encode(table, columns, where=str(path)), parts, columns)
