"""A hospital's tables: which columns a study needs, under this hospital's names, and how they are encoded."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from jaxtyping import Bool, Float32, Int64
from numpy import ndarray

from party.data.number_texts import plain_number
from party.data.records import Records
from party.data.settings import DataSettings
from party.data.source import Columns
from protocols.errors import DataCorrupt, InvalidInput
from protocols.study import features
from protocols.study.terms import Feature, Terms
from runtime.tables import VALUES


def wanted(settings: DataSettings, terms: Terms, *, labelled: bool) -> list[str]:
    """This hospital's columns that a study needs; labelled: including label, patient and group.

    Raises DataCorrupt if the study names none.
    """
    if not terms.features:
        raise DataCorrupt(f"{settings.shown}: the study's terms name no columns; allowed: loader npz, images or dicom")
    own = settings.mapping.own
    names = [own(feature.column) for feature in terms.features]
    return names + ([own(terms.label), *filter(None, (settings.patient, settings.group))] if labelled else [])


def table_records(columns: Columns, settings: DataSettings, terms: Terms) -> Records:
    """The records of a table of texts. Raises DataCorrupt naming file, column, row, value and allowed values."""
    inputs, used = usable_inputs(columns, settings, terms)
    labels = study_texts(terms.label, columns, settings)
    known = np.array([label.strip() in terms.class_names for label in labels], bool)
    if settings.mapping.unusable.get(terms.label) == "leave out":
        used &= known
        labels = [label if fits else terms.class_names[0] for label, fits in zip(labels, known, strict=True)]
    return Records(
        inputs,
        class_ids(labels, settings, terms),
        _names(columns, settings.patient, settings),
        _names(columns, settings.group, settings),
        used,
    )


def table_inputs(columns: Columns, settings: DataSettings, terms: Terms) -> Float32[ndarray, "rows features"]:
    """The encoded features of records of which none may be left out, without labels. Raises as table_records does."""
    inputs, used = usable_inputs(columns, settings, terms)
    if not used.all():
        raise DataCorrupt(
            f"{settings.shown}, row {int((~used).argmax()) + 1}: a value that the mapping file leaves out; allowed: "
            f"a value in every column ({int((~used).sum())} such rows)"
        )
    return inputs


def usable_inputs(
    columns: Columns, settings: DataSettings, terms: Terms
) -> tuple[Float32[ndarray, "rows features"], Bool[ndarray, " rows"]]:
    """The encoded features, and which rows can be used: those that the mapping leaves out are all 0.

    Raises DataCorrupt for the first value that cannot be used where the mapping does not say what happens to it.
    """
    rows = len(next(iter(columns.values()), ()))
    if rows == 0:
        raise DataCorrupt(f"{settings.shown} has no rows; allowed: at least one")
    width = sum(feature.width for feature in terms.features)
    if rows * width > VALUES:
        raise DataCorrupt(f"{settings.shown}: {rows} rows of {width} features; allowed: at most {VALUES} values")
    encoded, used = [], np.ones(rows, bool)
    for feature in terms.features:
        inputs, fits = _usable(feature, study_texts(feature.column, columns, settings, feature), settings)
        encoded.append(inputs)
        used &= fits
    inputs = np.concatenate(encoded, axis=1)
    inputs[~used] = 0
    return inputs, used


def study_texts(column: str, columns: Columns, settings: DataSettings, feature: Feature | None = None) -> list[str]:
    """A column in the study's words: by the mapping's values; numbers, if it is numeric, with a decimal point."""
    mapping = settings.mapping
    words, texts = mapping.values.get(column, {}), columns[mapping.own(column)]
    numeric, absent = feature is not None and feature.kind == "numeric", missing_texts(settings)
    found: dict[str, str] = {}
    for text in dict.fromkeys(texts):
        word = words.get(text.strip(), text)
        found[text] = plain_number(word, mapping.form) if numeric and word.strip() not in absent else word
    return [found[text] for text in texts]


def missing_texts(settings: DataSettings) -> frozenset[str]:
    """The texts that mean no value: those of the mapping, and an empty one, to which it may map others."""
    return frozenset({"", *settings.mapping.form.missing})


def near(feature: Feature) -> str:
    """The numbers that are not clipped, in words."""
    assert feature.centre is not None
    assert feature.scale is not None
    ends = [feature.centre + sign * features.BOUND * feature.scale for sign in (-1, 1)]
    low, high = np.expm1(ends) if feature.log else ends
    return f"{low:.6g} to {high:.6g}, as others are too far from the study's centre to be right"


def class_ids(values: Sequence[str], settings: DataSettings, terms: Terms) -> Int64[ndarray, " rows"]:
    """The class ids of strings, translated by the mapping's values of the label. Raises DataCorrupt."""
    known = {name: number for number, name in enumerate(terms.class_names)}
    words = {own: name for own, name in settings.mapping.values.get(terms.label, {}).items() if name}
    unknown = [name for name in words.values() if name not in known]
    if unknown:
        raise DataCorrupt(
            f"values.{terms.label} names the class {unknown[0]!r}; allowed: {', '.join(terms.class_names)}"
        )
    codes = known | {own: known[name] for own, name in words.items()}
    where = _where(settings, settings.mapping.own(terms.label))
    missing, plain = missing_texts(settings), {name.strip() for name in codes}
    unknown_rows = np.array([value.strip() not in plain for value in values], bool)
    features.check_rows(_hidden(values, missing), unknown_rows, ", ".join(codes), missing=missing, where=where)
    return features.class_ids(values, codes, missing=missing, where=where)


def _hidden(values: Sequence[str], missing: Collection[str]) -> list[str]:
    """What messages may say of a patient's values, which end up in logs; `data check` shows them at a terminal."""
    return [value if value.strip() in missing else f"a text of {len(value)} characters" for value in values]


def _usable(
    feature: Feature, texts: list[str], settings: DataSettings
) -> tuple[Float32[ndarray, "rows width"], Bool[ndarray, " rows"]]:
    """A column as features, and which rows of it can be used."""
    missing, remedy = missing_texts(settings), settings.mapping.unusable.get(feature.column)
    read = features.read_column(feature, texts, missing=missing)
    unusable = read.wrong | read.beyond
    if remedy == "missing":
        if not feature.may_miss:
            raise InvalidInput(
                f"unusable.{feature.column} is 'missing'; allowed: 'leave out', as no value may be missing in the study"
            )
        texts = ["" if bad else text for text, bad in zip(texts, unusable, strict=True)]
        read = features.read_column(feature, texts, missing=missing)
    elif remedy == "leave out":
        return read.inputs, ~unusable
    where = _where(settings, settings.mapping.own(feature.column))
    features.check_rows(_hidden(texts, missing), read.wrong, read.allowed, missing=missing, where=where)
    if remedy != "clip" and read.beyond.any():
        features.check_rows(_hidden(texts, missing), read.beyond, near(feature), missing=missing, where=where)
    return read.inputs, np.ones(len(texts), bool)


def _names(columns: Columns, column: str, settings: DataSettings) -> list[str] | None:
    if not column:
        return None
    return features.record_names(columns[column], missing=missing_texts(settings), where=_where(settings, column))


def _where(settings: DataSettings, column: str) -> str:
    return f"{settings.shown}: column {column!r}"
