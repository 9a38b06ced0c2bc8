"""A hospital's tables: which columns a study needs, under this hospital's names, and how they are encoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jaxtyping import Float32, Int64
from numpy import ndarray

from party.data.records import Records
from party.data.settings import DataSettings
from protocols.errors import DataCorrupt
from protocols.study import features
from protocols.study.terms import Terms
from runtime.tables import VALUES, read_csv

Columns = Mapping[str, Sequence[str]]


def load_csv(settings: DataSettings, terms: Terms) -> Records:
    """The records of a CSV file. Raises DataUnavailable, DataCorrupt."""
    names = wanted(settings, terms, labelled=True)
    return table_records(read_csv(settings.path, names, delimiter=settings.delimiter), settings, terms)


def wanted(settings: DataSettings, terms: Terms, *, labelled: bool) -> list[str]:
    """The file's columns that a study needs; labelled: including the label. Raises DataCorrupt if the study names
    none.
    """
    if not terms.features:
        raise DataCorrupt(f"{settings.path}: the study's terms name no columns; allowed: loader npz or images")
    names = [_own(settings, feature.column) for feature in terms.features]
    names += [_own(settings, terms.label)] if labelled else []
    return names + [name for name in (settings.patient, settings.group) if name]


def table_records(columns: Columns, settings: DataSettings, terms: Terms) -> Records:
    """The records of a table of strings. Raises DataCorrupt naming file, column, row, value and allowed values."""
    label = _own(settings, terms.label)
    return Records(
        table_inputs(columns, settings, terms),
        class_ids(columns[label], settings, terms),
        *(_names(columns, name, settings) for name in (settings.patient, settings.group)),
    )


def table_inputs(columns: Columns, settings: DataSettings, terms: Terms) -> Float32[ndarray, "rows features"]:
    """The encoded features without labels. Raises as table_records does."""
    rows = len(next(iter(columns.values()), ()))
    if rows == 0:
        raise DataCorrupt(f"{settings.path} has no rows; allowed: at least one")
    width = sum(feature.width for feature in terms.features)
    if rows * width > VALUES:
        raise DataCorrupt(f"{settings.path}: {rows} rows of {width} features; allowed: at most {VALUES} values")
    return features.encode_table(
        {feature.column: columns[_own(settings, feature.column)] for feature in terms.features},
        terms.features,
        missing=settings.missing,
        where=lambda column: _where(settings, _own(settings, column)),
    )


def class_ids(values: Sequence[str], settings: DataSettings, terms: Terms) -> Int64[ndarray, " rows"]:
    """The class ids of strings, translated by the settings' data.classes. Raises DataCorrupt."""
    known = {name: number for number, name in enumerate(terms.class_names)}
    unknown = [name for name in settings.classes.values() if name not in known]
    if unknown:
        raise DataCorrupt(f"data.classes names the class {unknown[0]!r}; allowed: {', '.join(terms.class_names)}")
    codes = known | {own: known[name] for own, name in settings.classes.items()}
    return features.class_ids(
        values, codes, missing=settings.missing, where=_where(settings, _own(settings, terms.label))
    )


def _names(columns: Columns, column: str, settings: DataSettings) -> list[str] | None:
    if not column:
        return None
    return features.record_names(columns[column], missing=settings.missing, where=_where(settings, column))


def _own(settings: DataSettings, column: str) -> str:
    return settings.columns.get(column, column)


def _where(settings: DataSettings, column: str) -> str:
    return f"{settings.path}: column {column!r}"
