"""The public queries of record votes on a table: the cells of its columns, from the public pool and constants alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float32
from numpy import ndarray

from protocols.errors import InvalidInput
from protocols.features.feature_map import FeatureMap
from protocols.study.terms import Feature
from protocols.sums.blocks import Blocks, Nearest

# A missing number is 0 with a flag beside it; the flag counts so much that no number is nearer to the missing one.
_MISSING_SCALE = 64.0
# Below so many protected units a model must be simple.
FEW_UNITS = 2000
# A column's numbers are cut into so many cells: few where there are few units, as each must stand above the noise.
_FEW_BINS, _BINS = 2, 10


def usual_bins(population: int) -> int:
    """Into how many cells a column's numbers are cut; population: the public number of protected units."""
    return _FEW_BINS if population < FEW_UNITS else _BINS


def bare_columns(width: int) -> tuple[Feature, ...]:
    """One numeric column for each feature of a table that names none."""
    return tuple(Feature(column=f"feature {at}", kind="numeric", centre=0.0, scale=1.0) for at in range(width))


def column_queries(pool: Float32[ndarray, "pool features"], columns: Sequence[Feature], *, bins: int) -> Blocks:
    """A block of cells per column of a table: its categories, or `bins` quantiles of the pool's numbers, and "missing".

    columns: as they were encoded, in order; bins >= 2. A column in which the pool has one value alone is left out.
    Raises InvalidInput for a column of text, and where no column is left.
    """
    if any(each.kind == "text" for each in columns):
        raise InvalidInput("record_queries is 'columns', and a column is text, which has no cells; allowed: clusters:N")
    if bins < 2:
        raise InvalidInput(f"bins is {bins}; allowed: from 2")
    return Blocks(FeatureMap(pool.shape[1:]), tuple(_cells(pool, columns, bins)))


def _cells(pool: Float32[ndarray, "pool features"], columns: Sequence[Feature], bins: int) -> Iterator[Nearest]:
    before = 0
    for column in columns:
        width = column.width
        places = np.arange(before, before + width)
        before += width
        scales = np.ones(width)
        if column.kind == "categorical":
            points = np.eye(width)
            if column.may_miss:
                points = np.concatenate([points, np.zeros((1, width))])
        else:
            values = pool[:, places[0]] if width == 1 else pool[pool[:, places[1]] == 0, places[0]]
            levels = np.quantile(values, (np.arange(bins) + 0.5) / bins) if len(values) else np.zeros(1)
            points = levels[:, None]
            if width > 1:
                scales[1] = _MISSING_SCALE
                points = np.concatenate([np.pad(points, ((0, 0), (0, 1))), [[0.0, 1.0]]])
        if len(np.unique(points, axis=0)) > 1:
            yield Nearest.of(points.astype(np.float32), columns=places, scales=scales)
