"""The labels of an archive of arrays: classes are the different values, whatever these are."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64, Shaped
from numpy import ndarray

from protocols.errors import DataCorrupt

# With more different values, or with fewer records of each in the mean, y is a quantity rather than a class.
_MOST_CLASSES, _FEWEST_RECORDS = 200, 2
# Whole numbers below are exact as floats.
_EXACT = 2.0**53


def class_labels(
    y: Shaped[ndarray, "*shape"], classes: Shaped[ndarray, "*shape"] | None, *, where: str
) -> tuple[Int64[ndarray, " records"], tuple[str, ...]]:
    """The class of each record, from 0, and the names of the classes.

    y: texts, truth values or whole numbers [N] or [N, 1], or rows of a single one [N, classes]. classes: all names, to
    which numbers point from 0 and which texts must be among; without it the classes are the different values of y, in
    the order of numbers or of text. Raises DataCorrupt naming the array and the first row that is wrong.
    """
    values = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    names = None if classes is None else [str(name) for name in classes.reshape(-1)]
    if values.ndim == 2 and np.issubdtype(values.dtype, np.number) and _one_each(values):
        names = names or [str(place) for place in range(values.shape[1])]
        values = values.argmax(axis=1)
    whole = values.dtype.kind in "iuf" and bool((np.abs(values) < _EXACT).all() and (values == np.rint(values)).all())
    texts = values.dtype.kind == "U"
    if values.ndim != 1 or values.size == 0 or not (whole or texts or values.dtype == bool):
        raise DataCorrupt(
            f"{where}: y is {y.dtype}{list(y.shape)}; allowed: whole numbers or names of classes, one per row"
        )
    if texts:
        values = np.char.strip(values)
    elif whole:
        values = values.astype(np.int64)
    if names is None:
        return _distinct(values, where=where)
    known = {name.strip(): place for place, name in enumerate(names)}
    places = np.array([known.get(text, -1) for text in values.tolist()]) if texts else values.astype(np.int64)
    wrong = (places < 0) | (places >= len(names))
    if wrong.any():
        row = int(np.argmax(wrong))
        allowed = ", ".join(known)[:200] if texts else f"0 to {len(names) - 1}"
        raise DataCorrupt(f"{where}: y, row {row + 1}: {values[row]}; allowed: {allowed}")
    return places.astype(np.int64), tuple(names)


def _distinct(values: Shaped[ndarray, " records"], *, where: str) -> tuple[Int64[ndarray, " records"], tuple[str, ...]]:
    found, places = np.unique(values, return_inverse=True)
    if not 2 <= len(found) <= min(_MOST_CLASSES, len(values) // _FEWEST_RECORDS):
        raise DataCorrupt(
            f"{where}: y has {len(found)} different values in {len(values)} rows; allowed: 2 to {_MOST_CLASSES} "
            f"classes, of {_FEWEST_RECORDS} records each in the mean, or an array `classes` of all their names"
        )
    if values.dtype.kind == "i" and found[0] == -1 and found[1] == 0:
        row = int(np.argmax(values == -1))
        raise DataCorrupt(f"{where}: y, row {row + 1}: -1, beside 0; allowed: rows with a label, and no mark of none")
    return places.astype(np.int64), tuple(str(value) for value in found.tolist())


def _one_each(rows: Shaped[ndarray, "records classes"]) -> bool:
    return bool(rows.shape[1] > 1 and ((rows == 0) | (rows == 1)).all() and (rows.sum(axis=1) == 1).all())
