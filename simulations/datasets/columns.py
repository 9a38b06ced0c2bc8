"""Turning the columns of a table into features: numbers centred and scaled, categories one-hot.

Centres and scales are constants, or statistics of the public rows; private rows never shape a feature.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pandas as pd
from jaxtyping import Float32, Int64
from numpy import ndarray

from protocols.errors import DataCorrupt

_BOUND = 10.0  # scaled values are clipped to +- this, so that one typing error does not outweigh a table


class Column(Protocol):
    """One column of a table and the features that it becomes."""

    @property
    def name(self) -> str:
        """The column's header."""
        ...

    def features(self, values: pd.Series[str], public: Int64[ndarray, " public"]) -> Float32[ndarray, "rows features"]:
        """The features of every row; `values` are texts, missing ones NaN."""
        ...


@dataclass(frozen=True)
class Numeric:
    """(value - centre) / scale, clipped to +-10; of log(1 + value) when `log`.

    Without a centre and a scale, the mean and the standard deviation of the public rows. When values
    `may_miss`, a missing one becomes the centre (0) and a second feature says so (1 missing, 0 there).
    """

    name: str
    centre: float | None = None
    scale: float | None = None
    log: bool = False
    may_miss: bool = False

    def features(self, values: pd.Series[str], public: Int64[ndarray, " public"]) -> Float32[ndarray, "rows features"]:
        """One feature, or two. Raises DataCorrupt naming the first row that is no finite number, or
        missing."""
        numbers = pd.to_numeric(values, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
        missing = values.isna().to_numpy()
        wrong = ~np.isfinite(numbers) & ~(missing & self.may_miss)
        if wrong.any():
            row = int(np.argmax(wrong))
            found = "missing" if missing[row] else repr(values.iloc[row])
            raise DataCorrupt(
                f"column {self.name}, row {row} (counted from 0): {found}; allowed: a finite number"
                f"{' or nothing' if self.may_miss else ''} ({int(wrong.sum())} such rows)"
            )
        if self.log:
            numbers = np.log1p(numbers)
        present = numbers[public][~missing[public]]
        centre = self.centre if self.centre is not None else float(present.mean()) if len(present) else 0.0
        scale = self.scale if self.scale is not None else float(present.std()) if len(present) else 1.0
        scaled = np.clip((numbers - centre) / (scale if scale > 0 else 1.0), -_BOUND, _BOUND)
        scaled[missing] = 0.0
        shown = [scaled, missing] if self.may_miss else [scaled]
        return np.stack(shown, axis=1).astype(np.float32)


@dataclass(frozen=True)
class Categorical:
    """One feature a category (1 or 0); when values `may_miss`, a missing one is 0 in all of them."""

    name: str
    categories: tuple[str, ...]
    may_miss: bool = False

    def features(self, values: pd.Series[str], public: Int64[ndarray, " public"]) -> Float32[ndarray, "rows features"]:
        """One feature a category. Raises DataCorrupt naming the first row of an unknown or missing
        category."""
        codes = category_codes(values, self.categories)
        missing = values.isna().to_numpy()
        wrong = (codes < 0) & ~(missing & self.may_miss)
        if wrong.any():
            row = int(np.argmax(wrong))
            found = "missing" if missing[row] else f"the category {values.iloc[row]!r}"
            raise DataCorrupt(
                f"column {self.name}, row {row} (counted from 0): {found}; allowed: "
                f"{', '.join(self.categories)}{' or nothing' if self.may_miss else ''} ({int(wrong.sum())} "
                f"such rows)"
            )
        return (codes[:, None] == np.arange(len(self.categories))).astype(np.float32)


def encode(
    table: pd.DataFrame, columns: Sequence[Column], public: Int64[ndarray, " public"]
) -> Float32[ndarray, "rows features"]:
    """All features of all rows, column after column. Raises DataCorrupt on a column that is absent or
    wrong."""
    absent = [column.name for column in columns if column.name not in table.columns]
    if absent:
        raise DataCorrupt(f"the table has no column {', '.join(absent)}; it has {', '.join(map(str, table.columns))}")
    return np.concatenate([column.features(table[column.name], public) for column in columns], axis=1)


def category_codes(values: pd.Series[str], categories: Sequence[str]) -> Int64[ndarray, " rows"]:
    """Each value's place in the categories, -1 where it is missing or none of them."""
    return pd.Index(list(categories)).get_indexer(pd.Index(values)).astype(np.int64)
