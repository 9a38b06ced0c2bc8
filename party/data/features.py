"""A table of texts, encoded as a study's terms say; no statistic is computed from private rows.

Rows are counted from 1, without the header, as in a spreadsheet that hides it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64
from numpy import ndarray

from party.data.records import VALUES, Records
from party.data.settings import DataSettings
from protocols.errors import DataCorrupt
from protocols.study.terms import Feature, Terms

Columns = Mapping[str, Sequence[str]]


def wanted_columns(settings: DataSettings, terms: Terms, present: Sequence[str], *, labelled: bool = True) -> list[str]:
    """The needed columns of the file, each once. Raises DataCorrupt for one that is absent or ambiguous.

    labelled: whether the column of labels is one of them.
    """
    names = [_own(settings, feature.column) for feature in terms.features]
    names += [_own(settings, terms.label)] if labelled else []
    names += [name for name in (settings.patient, settings.group) if name]
    if not terms.features:
        raise DataCorrupt(f"{settings.path}: the study's terms name no columns; allowed: loader npz or images")
    for name in dict.fromkeys(names):
        count = list(present).count(name)
        if count != 1:
            raise DataCorrupt(
                f"{settings.path}: column {name!r} is there {count} times; allowed: once; the columns are "
                f"{', '.join(present)[:500]}"
            )
    return list(dict.fromkeys(names))


def table_records(columns: Columns, settings: DataSettings, terms: Terms) -> Records:
    """The records of a table whose columns hold texts. Raises DataCorrupt naming file, column, row, value, allowed."""
    return Records(
        table_inputs(columns, settings, terms),
        class_ids(columns[_own(settings, terms.label)], settings, terms),
        _names(columns, settings.patient, settings),
        _names(columns, settings.group, settings),
    )


def table_inputs(columns: Columns, settings: DataSettings, terms: Terms) -> Float32[ndarray, "rows features"]:
    """The features alone. Raises as table_records does."""
    rows = len(next(iter(columns.values()), ()))
    if rows == 0:
        raise DataCorrupt(f"{settings.path} has no rows; allowed: at least one")
    width = sum(feature.width for feature in terms.features)
    if rows * width > VALUES:
        raise DataCorrupt(f"{settings.path}: {rows} rows of {width} features; allowed: at most {VALUES} values")
    inputs = np.zeros((rows, width), np.float32)
    start = 0
    for feature in terms.features:
        inputs[:, start : start + feature.width] = _encode(columns, feature, settings)
        start += feature.width
    return inputs


def class_ids(values: Sequence[str], settings: DataSettings, terms: Terms) -> Int64[ndarray, " rows"]:
    """Class ids of texts, after data.classes of the settings. Raises DataCorrupt."""
    known = {name: number for number, name in enumerate(terms.class_names)}
    codes = {own: known[name] for own, name in settings.classes.items() if name in known}
    unknown = [name for name in settings.classes.values() if name not in known]
    if unknown:
        raise DataCorrupt(f"data.classes names the class {unknown[0]!r}; allowed: {', '.join(terms.class_names)}")
    codes = known | codes
    ids = np.array([codes.get(value.strip(), -1) for value in values], np.int64)
    if (ids < 0).any():
        row = int((ids < 0).argmax())
        raise _wrong(settings, _own(settings, terms.label), row, values[row], ", ".join(codes), int((ids < 0).sum()))
    return ids


def _encode(columns: Columns, feature: Feature, settings: DataSettings) -> Float32[ndarray, "rows features"]:
    name = _own(settings, feature.column)
    values = [value.strip() for value in columns[name]]
    missing = np.array([value in settings.missing for value in values])
    optional = " or missing" if feature.may_miss else ""
    if feature.kind == "categorical":
        codes = {category: number for number, category in enumerate(feature.categories)}
        # A category with the name of a missing value is a category.
        ids = np.array([codes.get(value, -1) for value in values])
        wrong = (ids < 0) & ~(missing & feature.may_miss)
        if wrong.any():
            row = int(wrong.argmax())
            allowed = f"{', '.join(feature.categories)}{optional}"
            raise _wrong(settings, name, row, values[row], allowed, int(wrong.sum()))
        return (ids[:, None] == np.arange(len(codes))).astype(np.float32)
    numbers = _numbers(values)
    assert feature.centre is not None  # terms checked it
    assert feature.scale is not None
    low = -1.0 if feature.log else -np.inf
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        read = np.log1p(numbers) if feature.log else numbers
        scaled = ((read - feature.centre) / feature.scale).astype(np.float32)
    wrong = ~(np.isfinite(scaled) & (numbers > low)) & ~(missing & feature.may_miss)
    if wrong.any():
        row = int(wrong.argmax())
        allowed = f"a finite number{' above -1' if feature.log else ''}{optional}"
        raise _wrong(settings, name, row, values[row], allowed, int(wrong.sum()))
    scaled[missing] = 0.0
    return _with_missing(scaled, missing) if feature.may_miss else scaled[:, None]


def _with_missing(scaled: Float32[ndarray, " rows"], missing: Bool[ndarray, " rows"]) -> Float32[ndarray, "rows 2"]:
    return np.stack([scaled, missing.astype(np.float32)], axis=1)


def _numbers(values: Sequence[str]) -> Float64[ndarray, " rows"]:
    """Each text as a number, NaN where it is none."""
    numbers = np.full(len(values), np.nan)
    for row, value in enumerate(values):
        # float() would also accept "1_000" and digits of other scripts, which other readers treat differently.
        if value.isascii() and "_" not in value:
            try:
                numbers[row] = float(value)
            except ValueError:
                continue
    return numbers


def _names(columns: Columns, column: str, settings: DataSettings) -> list[str] | None:
    if not column:
        return None
    values = [value.strip() for value in columns[column]]
    for row, value in enumerate(values):
        if value in settings.missing:
            raise _wrong(settings, column, row, value, "a name", 1)
    return values


def _own(settings: DataSettings, column: str) -> str:
    return settings.columns.get(column, column)


def _wrong(settings: DataSettings, column: str, row: int, value: str, allowed: str, count: int) -> DataCorrupt:
    found = "missing" if value in settings.missing else repr(value[:60])
    return DataCorrupt(
        f"{settings.path}: column {column!r}, row {row + 1}: {found}; allowed: {allowed[:500]} ({count} such rows)"
    )
