"""How the columns of a table become features: as in a study's terms (protocols.study.features), or by public rows.

Centres and scales are constants, or statistics of the public rows; private rows never influence an encoding.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from protocols.errors import DataCorrupt
from protocols.study.features import MISSING, encode_table, read_numbers
from protocols.study.terms import Feature

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Standardised:
    """A numeric feature whose centre and scale are the mean and the standard deviation of the public rows."""

    column: str
    log: bool = False
    may_miss: bool = False

    def feature(self, values: Sequence[str], public: Int64[ndarray, " public"], *, missing: Collection[str]) -> Feature:
        """The feature; values: of all rows; missing: the texts that mean no value. Raises DataCorrupt if the public
        ones are too large for their statistics.
        """
        texts = [values[row].strip() for row in public]
        numbers = read_numbers([text for text in texts if text not in missing])
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            present = np.log1p(numbers) if self.log else numbers
            present = present[np.isfinite(present)]  # encode refuses the others
            centre, scale = (float(present.mean()), float(present.std())) if len(present) else (0.0, 1.0)
        if not (np.isfinite(centre) and np.isfinite(scale)):
            raise DataCorrupt(
                f"column {self.column!r} has public values up to {np.abs(present).max():g}: their mean and deviation "
                "are beyond 64 bits; allowed: smaller values, or a centre and a scale in the schema"
            )
        return numeric(self.column, centre=centre, scale=scale or 1.0, log=self.log, may_miss=self.may_miss)


Column = Feature | Standardised


def numeric(column: str, *, centre: float, scale: float, log: bool = False, may_miss: bool = False) -> Feature:
    """A numeric feature with a constant centre and scale."""
    return Feature(column=column, kind="numeric", centre=float(centre), scale=float(scale), log=log, may_miss=may_miss)


def categorical(column: str, categories: tuple[str, ...], *, may_miss: bool = False) -> Feature:
    """A categorical column: one feature per category."""
    return Feature(column=column, kind="categorical", categories=categories, may_miss=may_miss)


def text_column(column: str, vectors: str, *, may_miss: bool = False) -> Feature:
    """A column of texts. Raises InvalidInput for vectors that there are not."""
    return Feature(column=column, kind="text", vectors=vectors, may_miss=may_miss)


def features_in(
    table: Mapping[str, Sequence[str]],
    columns: Sequence[Column],
    public: Int64[ndarray, " public"],
    *,
    missing: Collection[str],
) -> tuple[Feature, ...]:
    """The columns with their constants; public: the rows whose statistics may be used; missing: the texts that mean no
    value. Raises DataCorrupt."""
    return tuple(
        each if isinstance(each, Feature) else each.feature(table[each.column], public, missing=missing)
        for each in columns
    )


def coded(
    table: Mapping[str, Sequence[str]], columns: Sequence[Feature], *, missing: Collection[str], where: str
) -> Float32[ndarray, "rows features"]:
    """All features of all rows, column after column; missing: the texts that mean no value; where: the file, for
    messages. Raises DataCorrupt."""
    return encode_table(table, columns, missing=missing, where=lambda column: f"{where}: column {column!r}")


def encode_published(
    table: pd.DataFrame, columns: Sequence[Feature], *, where: str
) -> Float32[ndarray, "rows features"]:
    """The features of a published table of strings, NaN where missing; encoded with constants only."""
    texts = {each.column: table[each.column].fillna("").tolist() for each in columns}
    return coded(texts, columns, missing=MISSING, where=where)
