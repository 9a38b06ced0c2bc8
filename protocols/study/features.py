"""A table's strings as numbers, by a study's terms: the same encoding for hospitals, pools and simulations.

Nothing is computed from the rows themselves. Rows are counted from 1, without the header.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64
from numpy import ndarray

from protocols.errors import DataCorrupt
from protocols.study.terms import Feature

# Bounds features, so that a typing error neither outweighs a table nor leaves the fixed-point range of hidden queries.
BOUND: Final = 10.0
MISSING: Final = ("", "NA", "NaN", "nan", "?")


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
    encoded = [encode(each, columns[each.column], missing=missing, where=where(each.column)) for each in features]
    return np.concatenate(encoded, axis=1)


def encode(
    feature: Feature, values: Sequence[str], *, missing: Collection[str], where: str
) -> Float32[ndarray, "rows width"]:
    """A column as features, see Feature; numbers are clipped to +-BOUND. Blanks around a string do not matter.

    A category with the name of a missing value counts as a category. Raises DataCorrupt naming the first row with a
    value that is not allowed: no category, no finite number, or missing where none may be.
    """
    # A column repeats few strings: each is parsed once.
    places = {text: place for place, text in enumerate(dict.fromkeys(values))}
    texts = [text.strip() for text in places]
    absent = np.array([text in missing for text in texts], bool)
    if feature.centre is None or feature.scale is None:  # categorical: Feature
        numbers = {category.strip(): number for number, category in enumerate(feature.categories)}
        found = np.array([numbers.get(text, -1) for text in texts], np.int64)
        read = (found[:, None] == np.arange(len(numbers))).astype(np.float32)
        good, allowed = found >= 0, ", ".join(feature.categories)
        wrong = ~good & ~(absent & feature.may_miss)
    else:
        read, good = _scaled(read_numbers(texts), centre=feature.centre, scale=feature.scale, log=feature.log)
        allowed = f"a finite number{' above -1' if feature.log else ''}"
        read[absent] = 0.0
        if feature.may_miss:
            read = np.concatenate([read, absent[:, None]], axis=1, dtype=np.float32)
        wrong = np.where(absent, not feature.may_miss, ~good)
    rows = np.fromiter(map(places.__getitem__, values), np.intp, len(values))
    _check(values, wrong[rows], allowed + " or missing" * feature.may_miss, missing=missing, where=where)
    return read[rows]


def class_ids(
    values: Sequence[str], codes: Mapping[str, int], *, missing: Collection[str], where: str
) -> Int64[ndarray, " rows"]:
    """The class id of each string. Raises DataCorrupt naming the first row with a string that has none."""
    plain = {name.strip(): code for name, code in codes.items()}
    ids = np.array([plain.get(value.strip(), -1) for value in values], np.int64)
    _check(values, ids < 0, ", ".join(codes), missing=missing, where=where)
    return ids


def record_names(values: Sequence[str], *, missing: Collection[str], where: str) -> list[str]:
    """The names of patients, sites or groups. Raises DataCorrupt naming the first row without one."""
    names = [value.strip() for value in values]
    _check(values, np.array([name in missing for name in names], bool), "a name", missing=missing, where=where)
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


def _scaled(
    numbers: Float64[ndarray, " rows"], *, centre: float, scale: float, log: bool
) -> tuple[Float32[ndarray, "rows 1"], Bool[ndarray, " rows"]]:
    """The scaled numbers, and which of them are allowed."""
    good = np.isfinite(numbers) & (numbers > (-1.0 if log else -np.inf))
    allowed = np.where(good, numbers, 0.0)
    with np.errstate(over="ignore"):
        scaled = ((np.log1p(allowed) if log else allowed) - centre) / scale
    return np.clip(scaled, -BOUND, BOUND).astype(np.float32)[:, None], good


def _check(
    values: Sequence[str], wrong: Bool[ndarray, " rows"], allowed: str, *, missing: Collection[str], where: str
) -> None:
    if wrong.any():
        row = int(wrong.argmax())
        value = values[row].strip()
        found = "missing" if value in missing else repr(value[:60])
        raise DataCorrupt(f"{where}, row {row + 1}: {found}; allowed: {allowed[:500]} ({int(wrong.sum())} such rows)")
