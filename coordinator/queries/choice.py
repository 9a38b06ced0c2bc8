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
COLUMNS, BOTH = "columns", "columns+clusters"
# Of clusters beside columns: so many partitions at most. More thin out the votes, and hardly tell more apart.
_MOST_BESIDE = 12


@dataclass(frozen=True, kw_only=True)
class QueryChoice:
    """Which queries are made of a pool. None: the usual value.

    kind: "columns", the cells of a table's columns; "clusters:N", the centres of N clusters of the pool;
    "columns+clusters:N", both. bins: of a column of numbers, 2 below 2000 protected units and else 10. Of clusters
    alone: nearest, in how many of a partition a record votes (1); partitions (1; beside columns as many as these, at
    most 12); features, what clusters are made of (coordinator.queries.features; "auto"; beside columns none); seed, of
    clusters and projections (0).
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
    numbered = number.isascii() and number.isdecimal()
    if not (choice.kind == COLUMNS or (kind in ("clusters", BOTH) and numbered)):
        raise InvalidInput(
            f"record_queries is {choice.kind[:80]!r}; allowed: columns, clusters:N (N centres of the pool), "
            "columns+clusters:N"
        )
    if kind == "clusters":
        _check_idle(choice, ("bins",), of="columns")
        return _clusters(pool, columns, choice, int(number), partitions=1)
    _check_idle(choice, _OF_CLUSTERS if kind == COLUMNS else ("features",), of="clusters:N")
    if not columns:
        raise InvalidInput(f"record_queries is {kind!r}, and the pool's columns have no names; allowed: clusters:N")
    cells = column_queries(pool, columns, bins=usual_bins(population) if choice.bins is None else choice.bins)
    if kind == COLUMNS:
        return cells
    centres = _clusters(pool, columns, choice, int(number), partitions=min(len(cells.partitions), _MOST_BESIDE))
    return QueryMap(cells.features, cells.partitions + centres.partitions)


def _clusters(
    pool: Float32[ndarray, "pool ..."], columns: Sequence[Feature], choice: QueryChoice, number: int, *, partitions: int
) -> QueryMap:
    """Centres of clusters. partitions: the usual number of them."""
    seed = 0 if choice.seed is None else choice.seed
    return cluster_queries(
        pool,
        features_for(pool, "auto" if choice.features is None else choice.features, columns=columns, seed=seed),
        queries=number,
        nearest=1 if choice.nearest is None else choice.nearest,
        partitions=partitions if choice.partitions is None else choice.partitions,
        seed=seed,
    )


def _check_idle(choice: QueryChoice, names: Sequence[str], *, of: str) -> None:
    for name in names:
        value = getattr(choice, name)
        if value is not None:
            raise InvalidInput(f"{name} is {value!r}; allowed with record_queries {of} only: leave it out")
