"""Whether a column says the label by itself, as one does that was written down after the label was known."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import numpy as np
from jaxtyping import Int64, Shaped
from numpy import ndarray

from protocols.study.features import read_numbers

# Of the records that the most frequent class gets wrong, the column may get wrong so many.
_LEFT: Final = 0.02
# Numbers are looked at in so many ranges, of at least so many records each.
_RANGES, _IN_RANGE = 32, 20


def tells_label(values: Sequence[str], labels: Sequence[str], *, numeric: bool, missing: Collection[str]) -> bool:
    """Whether the most frequent label of each value (numbers: of each of up to 32 ranges) is nearly always right.

    Right, that is, for at least 98 % of the records that the most frequent label of all gets wrong. Records without a
    label do not count; a missing value is a value.
    """
    labelled = [place for place, label in enumerate(labels) if label.strip() not in missing]
    names = np.array([labels[place].strip() for place in labelled])
    texts = [values[place].strip() for place in labelled]
    if len(names) < 2 * _IN_RANGE:
        return False
    cells = np.unique(texts, return_inverse=True)[1]
    if numeric:
        cells = _ranges(np.nan_to_num(read_numbers(texts), nan=np.inf))
    classes, label = np.unique(names, return_inverse=True)
    counts = np.bincount(cells * len(classes) + label, minlength=(cells.max() + 1) * len(classes))
    wrong = len(names) - counts.reshape(-1, len(classes)).max(axis=1).sum()
    guessed = len(names) - np.bincount(label).max()
    return bool(guessed and wrong <= _LEFT * guessed)


def _ranges(numbers: Shaped[ndarray, " records"]) -> Int64[ndarray, " records"]:
    count = min(_RANGES, len(numbers) // _IN_RANGE)
    inner = np.sort(numbers)[np.arange(1, count) * len(numbers) // count]
    return np.searchsorted(np.unique(inner), numbers, side="right")
