"""Neighbouring data for record votes: one unit's records are replaced so that its contribution moves furthest.

Nothing is further than sqrt(2) times the party's weight: a contribution has norm 1, and its neighbour shares no cell
with it. Each case gets there in another way: another label in the same queries, other queries, several nearest queries,
a patient with several records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from protocols.features.feature_map import FeatureMap
from protocols.study.query_map import Partition, QueryMap

CLASSES = 2
PARTIES = 3
# Where records may lie along a feature: each is nearest to the queries of its own side.
_LEFT, _RIGHT = -1.0, 1.0
_QUERIES = np.array([[-1.5], [-1.0], [1.0], [1.5]], dtype=np.float32)

# Features, labels and units of one party's records, as simulations.stages.record_votes takes them.
Holding = tuple[Float32[ndarray, "records features"], Int64[ndarray, " records"], Int64[ndarray, " records"]]


def _partition(feature: int, *, points: Float32[ndarray, "queries width"], nearest: int) -> Partition:
    return Partition.of(points, columns=np.array([feature]), nearest=nearest)


# Two partitions, in each of which a record votes once; and one, in which it votes in the nearest two of four.
PARTITIONS = QueryMap(FeatureMap((2,)), tuple(_partition(each, points=_QUERIES[1:3], nearest=1) for each in (0, 1)))
NEAREST = QueryMap(FeatureMap((2,)), (_partition(0, points=_QUERIES, nearest=2),))


@dataclass(frozen=True, eq=False)
class WorstCase:
    """One unit of the first party, before and after: places along both features and labels of its records."""

    name: str
    unit: str
    queries: QueryMap
    before: Sequence[tuple[float, float, int]]
    after: Sequence[tuple[float, float, int]]

    def holdings(self, *, moved: bool) -> list[Holding]:
        """Every party's records; only the first unit of the first party differs between the two sides."""
        own = _holding(self.after if moved else self.before, unit=0)
        others = [_holding(_BYSTANDER, unit=1), _holding(_BYSTANDER, unit=2)]
        party = tuple(np.concatenate(parts) for parts in zip(*others, strict=True))
        first = tuple(np.concatenate(parts) for parts in zip(own, *others, strict=True))
        return [first, *([party] * (PARTIES - 1))]  # type: ignore[list-item]  # three arrays each, as in a Holding


def worst_cases(unit: str) -> list[WorstCase]:
    """The cases for a protected unit, "record" or "patient". A patient may have one record, too."""
    record = [
        WorstCase("another label", unit, PARTITIONS, [(_LEFT, _LEFT, 0)], [(_LEFT, _LEFT, 1)]),
        WorstCase("other queries", unit, PARTITIONS, [(_LEFT, _LEFT, 0)], [(_RIGHT, _RIGHT, 0)]),
        WorstCase("other nearest queries", unit, NEAREST, [(_LEFT, _LEFT, 0)], [(_RIGHT, _LEFT, 0)]),
    ]
    if unit == "record":
        return record
    several = [(_LEFT, _LEFT, 0)] * 3 + [(_LEFT, _LEFT, 1), (_LEFT, _RIGHT, 0)]
    return [
        *record,
        WorstCase("a patient's five records", unit, NEAREST, several, [(_RIGHT, _LEFT, 1)] * 5),
        WorstCase("five records for one", unit, PARTITIONS, [(_LEFT, _LEFT, 1)], [(_RIGHT, _RIGHT, 0)] * 5),
    ]


_BYSTANDER = [(_LEFT, _RIGHT, 1)]


def _holding(records: Sequence[tuple[float, float, int]], *, unit: int) -> Holding:
    features = np.array([each[:2] for each in records], dtype=np.float32)
    labels = np.array([each[2] for each in records], dtype=np.int64)
    return features, labels, np.full(len(records), unit, dtype=np.int64)
