"""The cells of a count: for each column of a study's terms its categories, or ranges of its numbers, and "missing".

They follow from the terms alone, so no file is handed round: a node makes them again, and the study names their digest.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from protocols.errors import InvalidInput
from protocols.features.feature_map import FeatureMap
from protocols.features.stage import whole_steps
from protocols.study.features import read_column
from protocols.study.terms import Feature, Terms
from protocols.sums.blocks import Blocks, Cells, Nearest, Ranges

NO_LABEL = "missing"
# Finer steps of numbers than of features: of ten scales, the most that a number is from its centre.
_FINE = 8.0


@dataclass(frozen=True, eq=False)
class CountCells:
    """blocks: one for each column; rows: the column and the value of each cell, in the order of the sum's rows."""

    blocks: Blocks = field(repr=False)
    rows: tuple[tuple[str, str], ...]


def count_cells(terms: Terms) -> CountCells:
    """The cells of these terms. Raises InvalidInput for no column, one of text, or one of numbers without edges."""
    if not terms.features:
        raise InvalidInput("the terms name no columns; allowed: a count of the columns of a table")
    blocks, rows, first = [], [], 0
    for feature in terms.features:
        block, values = _cells(feature, first)
        blocks.append(block)
        rows += [(feature.column, value) for value in values]
        first += feature.width
    return CountCells(Blocks(FeatureMap(terms.input_shape), tuple(blocks)), tuple(rows))


def counted_feature(feature: Feature, *, may_miss: bool = True) -> Feature:
    """A column as a count reads it: a value may be missing; numbers have edges, a scale around the centre if none."""
    edges = feature.edges
    if feature.kind == "numeric" and not edges:
        assert feature.centre is not None
        assert feature.scale is not None
        ends = [feature.centre + step * feature.scale for step in (-1, 0, 1)]
        low = -np.inf if feature.least is None else feature.least
        high = np.inf if feature.most is None else feature.most
        kept = np.expm1(ends) if feature.log else np.array(ends)
        edges = tuple(float(f"{each:.4g}") for each in kept if low < each < high)
    return replace(feature, may_miss=may_miss, edges=edges)


def _cells(feature: Feature, first: int) -> tuple[Cells, list[str]]:
    """A column's block, whose first feature this is, and the value that each of its cells stands for."""
    missing, where = [NO_LABEL] * feature.may_miss, f"column {feature.column!r}"
    columns = np.arange(first, first + feature.width)
    if feature.kind == "text":
        raise InvalidInput(f"{where} is of text; allowed: categories and numbers")
    if feature.kind == "categorical":
        points = np.eye(feature.width)
        if missing:
            points = np.concatenate([points, np.zeros((1, feature.width))])
        centres = whole_steps(points).astype(np.int64)
        return Nearest(share=1, columns=columns, scales=np.ones(feature.width), centres=centres), [
            *feature.categories,
            *missing,
        ]
    if not feature.edges:
        raise InvalidInput(f"{where} has no edges; allowed: the numbers at which its ranges begin")
    read = read_column(replace(feature, least=None, most=None), [repr(each) for each in feature.edges], missing=())
    if read.wrong.any() or read.beyond.any():
        raise InvalidInput(f"{where}: edges are {list(feature.edges)}; allowed: numbers within 10 scales of the centre")
    steps = whole_steps(read.inputs[:, 0], scale=_FINE).astype(np.int64)
    names = [f"{each:g}" for each in feature.edges]
    between = [f"{low} to below {high}" for low, high in pairwise(names)]
    block = Ranges(share=1, columns=columns, scales=np.full(feature.width, _FINE), edges=steps)
    return block, [f"below {names[0]}", *between, f"{names[-1]} and above", *missing]
