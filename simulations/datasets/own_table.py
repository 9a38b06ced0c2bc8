"""The user's own table, read by its schema and by the same code as on a hospital's node."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from jaxtyping import Float64, Shaped
from numpy import ndarray

from party.data import source_kind
from party.data.mapping import Form
from party.data.number_texts import plain_number
from party.data.source import Source
from protocols.errors import DataCorrupt
from protocols.study.features import check_rows, class_ids, read_numbers, record_names
from simulations.datasets.columns import Standardised, encode, features_of
from simulations.datasets.dataset import Dataset
from simulations.datasets.own_pool import PARTS, Pool, as_dataset, cut_pool
from simulations.datasets.own_schema import Schema

_LOADERS = {".parquet": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl"}


def read_table(path: Path, names: Sequence[str] | None, form: Form) -> Mapping[str, Sequence[str]]:
    """The named columns of a table, or all, as strings. Raises DataUnavailable, DataCorrupt."""
    return source_of(path).columns(names, form)


def source_of(path: Path) -> Source:
    """The file as a hospital's node would read it."""
    kind: Callable[[Path], Source] = source_kind(_LOADERS.get(path.suffix.lower(), "csv"))
    return kind(path)


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

    Rows without a label are left out where the schema says so. Raises DataCorrupt naming file, column and row,
    InvalidInput on sizes.
    """
    given = [schema.label, schema.site, schema.patient, schema.split, *(each.column for each in schema.columns)]
    asked = [*given, *(column for column in groups if column not in ("class", "site")), time]
    names = list(dict.fromkeys(name for name in asked if name is not None))
    missing = frozenset({"", *schema.form.missing})
    try:
        table = {**read_table(path, names, schema.form)}
    except DataCorrupt as error:
        if schema.form != Form():
            raise
        raise DataCorrupt(f"{error}. `conclave-simulate schema {path}` says how it seems to be written") from error
    numeric = [each.column for each in schema.columns if isinstance(each, Standardised) or each.kind == "numeric"]
    for name in numeric:
        table[name] = plain_numbers(table[name], schema.form, missing)
    kept = np.ones(len(table[schema.label]), bool)
    if schema.only_labelled:
        absent = missing - {*schema.classes}
        kept = np.array([label.strip() not in absent for label in table[schema.label]], bool)
    if not kept.any():
        what = "no row with a label" if len(kept) else "no rows"
        raise DataCorrupt(f"{path} has {what}; allowed: at least one each for the private, public and test part")
    rows = np.flatnonzero(kept)

    def codes(column: str, known: tuple[str, ...]) -> Shaped[ndarray, " rows"]:
        numbers = {name: number for number, name in enumerate(known)}
        values = table[column]
        if column == schema.label:
            values = [value if fits else known[0] for value, fits in zip(values, kept, strict=True)]
        return class_ids(values, numbers, missing=missing, where=f"{path}: column {column!r}")[rows]

    def texts(column: str) -> Shaped[ndarray, " rows"]:
        return np.array(record_names(table[column], missing=missing, where=f"{path}: column {column!r}"))[rows]

    pool = Pool(
        path=path,
        name=schema.name,
        kind="table",
        class_names=schema.classes,
        labels=codes(schema.label, schema.classes),
        sites=None if schema.site is None else texts(schema.site),
        patients=None if schema.patient is None else texts(schema.patient),
        part=None if schema.split is None else codes(schema.split, PARTS),
        names={column: _named(table[column], missing)[rows] for column in groups if column in table},
        times=None if time is None else _times(table[time], missing, where=f"{path}: column {time!r}")[rows],
    )
    parts = cut_pool(pool, schema.shares, sizes, seed)
    columns = features_of(table, schema.columns, rows[parts.public], missing=missing)
    inputs = encode(table, columns, missing=missing, where=str(path))[rows]
    return as_dataset(pool, inputs, parts, columns)


def plain_numbers(values: Sequence[str], form: Form, missing: Collection[str]) -> list[str]:
    """The texts of a column of numbers with a decimal point and no thousands signs; others as they are."""
    known = {text: text if text.strip() in missing else plain_number(text, form) for text in dict.fromkeys(values)}
    return [known[text] for text in values]


def _named(values: Sequence[str], missing: Collection[str]) -> Shaped[ndarray, " rows"]:
    """What each record belongs to; a missing value is a name of its own."""
    plain = [value.strip() for value in values]
    # As objects: of a fixed width, one long text would make all of them long.
    return np.array(["missing" if value in missing else value for value in plain], dtype=object)


def _times(values: Sequence[str], missing: Collection[str], *, where: str) -> Float64[ndarray, " rows"]:
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
    check_rows(values, ~np.isfinite(seconds), allowed, missing=missing, where=where)
    return seconds
