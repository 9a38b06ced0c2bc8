"""Which public queries are made of a pool: those of a simulation and of a study between organisations alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float32
from numpy import ndarray

from coordinator.queries.clusters import cluster_queries
from coordinator.queries.features import features_for
from protocols.errors import InvalidInput
from protocols.study.column_queries import column_queries, usual_bins
from protocols.study.query_map import QueryMap
from protocols.study.terms import Feature

_OF_CLUSTERS = ("nearest", "partitions", "features", "seed")


@dataclass(frozen=True, kw_only=True)
class QueryChoice:
    """Which queries are made of a pool. None: the usual value.

    kind: "columns", the cells of a table's columns, or "clusters:N", the centres of N clusters of the pool. bins: of a
    column of numbers, 2 below 2000 protected units and else 10. Of clusters alone: nearest, in how many of a partition
    a record votes (1); partitions (1); features, what clusters are made of (coordinator.queries.features; "auto");
    seed, of clusters and projections (0).
    """

    kind: str = "columns"
    bins: int | None = None
    nearest: int | None = None
    partitions: int | None = None
    features: str | None = None
    seed: int | None = None


def make_queries(
    pool: Float32[ndarray, "pool ..."], columns: Sequence[Feature], choice: QueryChoice, *, population: int
) -> QueryMap:
    """The queries of this choice, from the pool and what is public about its columns.

    columns: of the pool's features, none if they are not known; population: the number of protected units. Raises
    InvalidInput for another kind, for what has no effect with it, and for queries that cannot be made of this pool.
    """
    kind, _, number = choice.kind.partition(":")
    if kind == "columns" and not number:
        _check_idle(choice, _OF_CLUSTERS, of="clusters:N")
        if not columns:
            raise InvalidInput("record_queries is 'columns', and the pool's columns have no names; allowed: clusters:N")
        return column_queries(pool, columns, bins=usual_bins(population) if choice.bins is None else choice.bins)
    if kind != "clusters" or not (number.isascii() and number.isdecimal()):
        raise InvalidInput(
            f"record_queries is {choice.kind[:80]!r}; allowed: columns, clusters:N (N centres of the pool)"
        )
    _check_idle(choice, ("bins",), of="columns")
    seed = 0 if choice.seed is None else choice.seed
    return cluster_queries(
        pool,
        features_for(pool, "auto" if choice.features is None else choice.features, columns=columns, seed=seed),
        queries=int(number),
        nearest=1 if choice.nearest is None else choice.nearest,
        partitions=1 if choice.partitions is None else choice.partitions,
        seed=seed,
    )


def _check_idle(choice: QueryChoice, names: Sequence[str], *, of: str) -> None:
    for name in names:
        value = getattr(choice, name)
        if value is not None:
            raise InvalidInput(f"{name} is {value!r}; allowed with record_queries {of} only: leave it out")
