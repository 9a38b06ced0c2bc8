"""A pool for a consortium that has none: rows drawn from the constants of the terms, and from nothing else.

Queries, and the inputs of a student, can then be made as from any public pool. What that costs in accuracy is in
docs/how-to/choose-features.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32, Float64
from numpy import ndarray

from protocols.errors import InvalidInput
from protocols.study.terms import Feature

# Of values that may be missing.
_MISSING = 0.1


def drawn_pool(columns: Sequence[Feature], *, records: int, seed: int) -> Float32[ndarray, "pool features"]:
    """Rows as the columns' features encode them, every column by itself: numbers normal around the terms' centre with
    their scale, every category as frequent as another, and a tenth missing where a value may be.

    Raises InvalidInput for fewer than 2 records, for a column of text, and without columns: images and arrays have no
    such constants.
    """
    if records < 2 or not columns:
        raise InvalidInput(
            f"a pool of {records} records is drawn from {len(columns)} columns; allowed: at least 2 and 1"
        )
    if any(each.kind == "text" for each in columns):
        raise InvalidInput("a pool is drawn for a column of text; allowed: a pool of public texts")
    rng = np.random.default_rng([seed, *b"pool"])
    return np.concatenate([_drawn(each, records, rng) for each in columns], axis=1).astype(np.float32)


def _drawn(column: Feature, records: int, rng: np.random.Generator) -> Float64[ndarray, "pool width"]:
    missing = (rng.random((records, 1)) < _MISSING) & column.may_miss
    if column.kind == "categorical":
        return np.where(missing, 0.0, np.eye(column.width)[rng.integers(0, column.width, records)])
    values = np.where(missing, 0.0, rng.standard_normal((records, 1)))
    return np.concatenate([values, missing], axis=1) if column.may_miss else values
