"""The user's own CSV or Parquet table, read by its schema and by the same rules as on a hospital's node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from jaxtyping import Float64, Shaped
from numpy import ndarray

from protocols.errors import DataCorrupt
from protocols.study.features import MISSING, check_rows, class_ids, read_numbers, record_names
from runtime.jsonl_tables import read_jsonl
from runtime.parquet_tables import read_parquet
from runtime.tables import read_csv
from simulations.datasets.columns import encode, features_of
from simulations.datasets.dataset import Dataset
from simulations.datasets.own_pool import PARTS, Pool, as_dataset, cut_pool
from simulations.datasets.own_schema import Schema


def read_table(path: Path, names: Sequence[str] | None) -> Mapping[str, list[str]]:
    """The named columns of a table, or all, as strings. Raises DataUnavailable, DataCorrupt."""
    match path.suffix.lower():
        case ".parquet":
            return read_parquet(path, names, missing=MISSING[0])
        case ".jsonl":
            return read_jsonl(path, names, missing=MISSING[0])
    return read_csv(path, names)


def load_table(
    path: Path,
    schema: Schema,
    *,
    seed: int,
    sizes: tuple[int | None, int | None, int | None],
    groups: Sequence[str] = (),
    time: str | None = None,
) -> Dataset:
    """The table's data set. groups: columns that name what records belong to; time: the column that orders them.

    Raises DataCorrupt naming file, column and row, InvalidInput on sizes.
    """
    given = [schema.label, schema.site, schema.patient, schema.split, *(each.column for each in schema.columns)]
    asked = [*given, *(column for column in groups if column not in ("class", "site")), time]
    names = list(dict.fromkeys(name for name in asked if name is not None))
    table = read_table(path, names)
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
        names={column: _named(table[column]) for column in groups if column in table},
        times=None if time is None else _times(table[time], where=f"{path}: column {time!r}"),
    )
    parts = cut_pool(pool, schema.shares, sizes, seed)
    columns = features_of(table, schema.columns, parts.public)
    return as_dataset(pool, encode(table, columns, where=str(path)), parts, columns)


def _named(values: Sequence[str]) -> Shaped[ndarray, " rows"]:
    """What each record belongs to; a missing value is a name of its own."""
    plain = [value.strip() for value in values]
    # As objects: of a fixed width, one long text would make all of them long.
    return np.array(["missing" if value in MISSING else value for value in plain], dtype=object)


def _times(values: Sequence[str], *, where: str) -> Float64[ndarray, " rows"]:
    """Numbers that order records in time: the column's own, or seconds since 1970 of its dates or times (ISO 8601;
    UTC where a time names no zone). Raises DataCorrupt for the first row that is neither, or missing.
    """
    numbers = read_numbers([value.strip() for value in values])
    if np.isfinite(numbers).all():
        return numbers
    seconds = np.full(len(values), np.nan)
    for row, value in enumerate(values):
        try:
            read = datetime.fromisoformat(value.strip())
        except ValueError:
            continue
        seconds[row] = (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
    allowed = "numbers, or dates and times as 2024-05-31 or 2024-05-31T14:05"
    check_rows(values, ~np.isfinite(seconds), allowed, missing=MISSING, where=where)
    return seconds
