"""A table's strings as numbers, by a study's terms: the same encoding for hospitals, pools and simulations.

Nothing is computed from the rows themselves. Rows are counted from 1, without the header.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64
from numpy import ndarray

from protocols.errors import DataCorrupt
from protocols.features.texts import ALLOWED, is_text, text_vectors, words
from protocols.study.terms import Feature

# Bounds features, so that a typing error neither outweighs a table nor leaves the fixed-point range of hidden queries.
BOUND: Final = 10.0
MISSING: Final = ("", "NA", "NaN", "nan", "?")
# Rows that a message names.
_NAMED: Final = 5


def encode_table(
    columns: Mapping[str, Sequence[str]],
    features: Sequence[Feature],
    *,
    missing: Collection[str],
    where: Callable[[str], str],
) -> Float32[ndarray, "rows features"]:
    """The features of a table's rows, column after column. columns: by the names that the features have.

    missing: the strings that mean no value; where: how a message names a column. Raises DataCorrupt as encode does.
    """
    encoded = [_encode(each, columns[each.column], missing=missing, where=where(each.column)) for each in features]
    return np.concatenate(encoded, axis=1)


@dataclass(frozen=True, eq=False)
class ReadColumn:
    """A column as features. wrong: rows whose value is not allowed; absent: rows without a value; beyond: rows whose
    number was clipped, as it is further than BOUND scales from the centre; allowed: what is, in words."""

    inputs: Float32[ndarray, "rows width"] = field(repr=False)
    wrong: Bool[ndarray, " rows"] = field(repr=False)
    absent: Bool[ndarray, " rows"] = field(repr=False)
    beyond: Bool[ndarray, " rows"] = field(repr=False)
    allowed: str


def _encode(
    feature: Feature, values: Sequence[str], *, missing: Collection[str], where: str
) -> Float32[ndarray, "rows width"]:
    """A column as features, see Feature; numbers are clipped to +-BOUND. Blanks around a string do not matter.

    A category with the name of a missing value counts as a category. Raises DataCorrupt naming the first rows with a
    value that is not allowed: no category, no finite number, out of the study's range, no text, or missing where none
    may be; InvalidInput for vectors of text that are not installed.
    """
    read = read_column(feature, values, missing=missing)
    check_rows(shown(feature, values, missing=missing), read.wrong, read.allowed, missing=missing, where=where)
    return read.inputs


def read_column(feature: Feature, values: Sequence[str], *, missing: Collection[str]) -> ReadColumn:
    """A column as features, as encode, with what is wrong in it."""
    # A column repeats few strings: each is parsed once.
    places = {text: place for place, text in enumerate(dict.fromkeys(values))}
    texts = [text.strip() for text in places]
    absent = np.array([text in missing for text in texts], bool)
    beyond = np.zeros(len(texts), bool)
    if feature.vectors is not None:
        readable = np.array([is_text(text) for text in texts], bool)
        absent |= np.array([fits and not words(text) for text, fits in zip(texts, readable, strict=True)], bool)
        good = readable & ~absent
        read = np.zeros((len(texts), feature.width), np.float32)
        read[good] = text_vectors([text for text, fits in zip(texts, good, strict=True) if fits], feature.vectors)
        wrong, allowed = ~good & ~(absent & feature.may_miss), ALLOWED
    elif feature.centre is None or feature.scale is None:  # categorical: Feature
        numbers = {category.strip(): number for number, category in enumerate(feature.categories)}
        found = np.array([numbers.get(text, -1) for text in texts], np.int64)
        read = (found[:, None] == np.arange(len(numbers))).astype(np.float32)
        good, allowed = found >= 0, ", ".join(feature.categories)
        wrong, absent = ~good & ~(absent & feature.may_miss), absent & ~good
    else:
        scaled, good = _scaled(read_numbers(texts), feature)
        read, beyond = np.clip(scaled, -BOUND, BOUND).astype(np.float32)[:, None], good & (np.abs(scaled) > BOUND)
        allowed = _range(feature)
        read[absent] = 0.0
        if feature.may_miss:
            read = np.concatenate([read, absent[:, None]], axis=1, dtype=np.float32)
        wrong = np.where(absent, not feature.may_miss, ~good)
    rows = np.fromiter(map(places.__getitem__, values), np.intp, len(values))
    allowed += " or missing" * feature.may_miss
    return ReadColumn(read[rows], wrong[rows], absent[rows], beyond[rows], allowed)


def shown(feature: Feature, values: Sequence[str], *, missing: Collection[str]) -> Sequence[str]:
    """The values as messages may show them: of a text only how long it is, as it may name somebody."""
    if feature.kind != "text":
        return values
    return [value if value.strip() in missing else f"a text of {len(value)} characters" for value in values]


def numbers_in(
    features: Sequence[Feature], inputs: Float32[ndarray, "rows features"]
) -> dict[str, Float64[ndarray, " rows"]]:
    """The numbers of each numeric column, from its features, to six digits; NaN where they are missing."""
    found, at = {}, 0
    for feature in features:
        if feature.centre is not None and feature.scale is not None:
            scaled = inputs[:, at].astype(np.float64) * feature.scale + feature.centre
            numbers = np.expm1(scaled) if feature.log else scaled
            missing = inputs[:, at + 1] > 0.5 if feature.may_miss else np.zeros(len(inputs), bool)
            found[feature.column] = np.array([float(f"{each:.6g}") for each in np.where(missing, np.nan, numbers)])
        at += feature.width
    return found


def number_ranges(features: Sequence[Feature], inputs: Float32[ndarray, "rows features"]) -> dict[str, list[float]]:
    """The least and the largest number of each numeric column that has one."""
    known = {column: each[np.isfinite(each)] for column, each in numbers_in(features, inputs).items()}
    return {column: [float(each.min()), float(each.max())] for column, each in known.items() if len(each)}


def class_ids(
    values: Sequence[str], codes: Mapping[str, int], *, missing: Collection[str], where: str
) -> Int64[ndarray, " rows"]:
    """The class id of each string. Raises DataCorrupt naming the first row with a string that has none."""
    plain = {name.strip(): code for name, code in codes.items()}
    ids = np.array([plain.get(value.strip(), -1) for value in values], np.int64)
    check_rows(values, ids < 0, ", ".join(codes), missing=missing, where=where)
    return ids


def record_names(values: Sequence[str], *, missing: Collection[str], where: str) -> list[str]:
    """The names of patients, sites or groups. Raises DataCorrupt naming the first row without one."""
    names = [value.strip() for value in values]
    check_rows(values, np.array([name in missing for name in names], bool), "a name", missing=missing, where=where)
    return names


def read_numbers(values: Sequence[str]) -> Float64[ndarray, " rows"]:
    """Each string as a number, NaN if it is not one."""
    numbers = np.full(len(values), np.nan)
    for row, value in enumerate(values):
        # float() would also accept "1_000" and digits of other scripts, which other readers treat differently.
        if value.isascii() and "_" not in value:
            try:
                numbers[row] = float(value)
            except ValueError:
                continue
    return numbers


def check_rows(
    values: Sequence[str], wrong: Bool[ndarray, " rows"], allowed: str, *, missing: Collection[str], where: str
) -> None:
    """Raises DataCorrupt where a row is wrong, naming the first with its value, and the numbers of up to _NAMED."""
    if wrong.any():
        rows = np.flatnonzero(wrong)
        value = values[int(rows[0])].strip()
        found = "missing" if value in missing else repr(value[:60])
        named = ", ".join(str(row + 1) for row in rows[:_NAMED]) + ", ..." * (len(rows) > _NAMED)
        more = f" ({len(rows)} such rows: {named})" if len(rows) > 1 else ""
        raise DataCorrupt(f"{where}, row {rows[0] + 1}: {found}; allowed: {allowed[:500]}{more}")


def _range(feature: Feature) -> str:
    """The numbers that a feature allows, in words."""
    words = f"a finite number{' above -1' if feature.log else ''}"
    words += f" from {feature.least:g}" if feature.least is not None else ""
    return words + (f" up to {feature.most:g}" if feature.most is not None else "")


def _scaled(
    numbers: Float64[ndarray, " rows"], feature: Feature
) -> tuple[Float64[ndarray, " rows"], Bool[ndarray, " rows"]]:
    """The scaled numbers, not clipped, and which of them are allowed; the others are 0."""
    assert feature.centre is not None
    assert feature.scale is not None
    good = np.isfinite(numbers) & (numbers > (-1.0 if feature.log else -np.inf))
    good &= ~(numbers < (-np.inf if feature.least is None else feature.least))
    good &= ~(numbers > (np.inf if feature.most is None else feature.most))
    allowed = np.where(good, numbers, 0.0)
    with np.errstate(over="ignore"):
        scaled = ((np.log1p(allowed) if feature.log else allowed) - feature.centre) / feature.scale
    return np.where(good, scaled, 0.0), good
