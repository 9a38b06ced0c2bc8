"""Which public queries are made of a pool: those of a simulation and of a study between organisations alike.

A consortium without a pool draws one from the constants of the terms; what that costs in accuracy is in
docs/how-to/choose-features.md.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64
from numpy import ndarray

from coordinator.queries.features import features_for
from protocols.errors import InvalidInput
from protocols.features.feature_map import FeatureMap
from protocols.installing import install
from protocols.study.column_queries import column_queries, usual_bins
from protocols.study.terms import Feature
from protocols.sums.blocks import Blocks, Nearest
from protocols.sums.choice import choose, how_many_cells

# Over the pool; centres hardly move after these.
_PASSES = 30


def cluster_queries(
    pool: Float32[ndarray, "pool ..."],
    features: FeatureMap,
    *,
    queries: int,
    nearest: int = 1,
    partitions: int = 1,
    seed: int,
) -> Blocks:
    """In each partition the centres of `queries` clusters of the pool's features (MiniBatchKMeans, Sculley 2010), each
    partition from a seed of its own; a record votes in the `nearest` of each.

    Centres that are the same after rounding are one query. Raises InvalidInput for fewer than 2 queries or more than
    the pool has different records, for partitions below 1, and without scikit-learn.
    """
    found = features(pool)
    if partitions < 1:
        raise InvalidInput(f"partitions is {partitions}; allowed: at least 1")
    made = []
    for number in range(partitions):
        drawn = int(np.random.default_rng([seed, number, *b"clusters"]).integers(2**31))
        centres = clusters(found, queries, drawn=drawn)
        made.append(Nearest.of(centres, columns=np.arange(features.width), nearest=nearest))
    return Blocks(features, tuple(made))


def clusters(
    features: Float32[ndarray, "pool features"], number: int, *, drawn: int
) -> Float32[ndarray, "clusters features"]:
    """The centres of `number` clusters (MiniBatchKMeans, Sculley 2010). drawn: a seed in [0, 2^31).

    Raises InvalidInput for fewer than 2, or more than the pool has different records, and without scikit-learn.
    """
    try:
        from sklearn.cluster import MiniBatchKMeans
        from sklearn.exceptions import ConvergenceWarning
    except ModuleNotFoundError as missing:
        raise InvalidInput(f"queries of clusters need scikit-learn: {install('sklearn')}") from missing
    different = len(np.unique(features, axis=0))
    if not 2 <= number <= different:
        raise InvalidInput(
            f"{number} queries are asked for; allowed: 2 to {different}, the pool's records with different features"
        )
    with warnings.catch_warnings():
        # Fewer clusters than asked for are no fault: the rest are the same query.
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = MiniBatchKMeans(
            number, batch_size=max(1024, 4 * number), n_init=1, max_iter=_PASSES, random_state=drawn
        ).fit(features)
    centres: Float32[ndarray, "clusters features"] = fitted.cluster_centers_.astype(np.float32)
    return centres


_OF_CLUSTERS = ("nearest", "partitions", "features", "seed")
GRADED, COLUMNS, BOTH = "graded", "columns", "columns+clusters"
# Of clusters beside columns: so many partitions at most. More thin out the votes, and hardly tell more apart.
_MOST_BESIDE = 12


@dataclass(frozen=True, kw_only=True)
class QueryChoice:
    """Which queries are made of a pool. None: the usual value.

    kind: "graded", features with signs, chosen by public figures (protocols/sums/choice.py); "columns", the cells of a
    table's columns; "clusters:N", the centres of N clusters of the pool; "columns+clusters:N", both. bins: of a column
    of numbers, 2 below 2000 protected units and else 10. Of clusters alone: nearest, in how many of a partition a
    record votes (1); partitions (1; beside columns as many as these, at most 12). features: what clusters or graded
    features are made of (coordinator.queries.features; "auto"; beside columns none); seed, of clusters and projections
    (0).
    """

    kind: str = "columns"
    bins: int | None = None
    nearest: int | None = None
    partitions: int | None = None
    features: str | None = None
    seed: int | None = None


def make_queries(
    pool: Float32[ndarray, "pool ..."],
    columns: Sequence[Feature],
    choice: QueryChoice,
    *,
    population: int,
    classes: int,
    noise: float | None,
) -> Blocks:
    """The queries of this choice, from the pool and what is public about its columns.

    columns: of the pool's features, none if they are not known; population: the number of protected units; classes,
    noise: which graded features follow from, see protocols/sums/choice.py; None: not known. Raises InvalidInput for
    another kind, for what has no effect with it, and for queries that cannot be made of this pool.
    """
    if choice.kind == GRADED:
        _check_idle(choice, ("bins", "nearest", "partitions"), of="columns or clusters:N")
        if noise is None:
            raise InvalidInput("record_queries is 'graded', and the noise is not known; allowed: where budgets are")
        return _graded(pool, columns, choice, population=population, classes=classes, noise=noise)
    kind, _, number = choice.kind.partition(":")
    numbered = number.isascii() and number.isdecimal()
    if not (choice.kind == COLUMNS or (kind in ("clusters", BOTH) and numbered)):
        raise InvalidInput(
            f"record_queries is {choice.kind[:80]!r}; allowed: graded, columns, clusters:N (N centres of the pool), "
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
    centres = _clusters(pool, columns, choice, int(number), partitions=min(len(cells.blocks), _MOST_BESIDE))
    return Blocks(cells.features, cells.blocks + centres.blocks)


def _graded(
    pool: Float32[ndarray, "pool ..."],
    columns: Sequence[Feature],
    choice: QueryChoice,
    *,
    population: int,
    classes: int,
    noise: float,
) -> Blocks:
    """Graded features, and cells of clusters beside them where they are expected to explain more."""
    seed = 0 if choice.seed is None else choice.seed
    features = features_for(pool, "auto" if choice.features is None else choice.features, columns=columns, seed=seed)
    seen, cells = features(pool), how_many_cells(len(pool))
    drawn = int(np.random.default_rng([seed, *b"cells"]).integers(2**31))
    return choose(
        seen,
        features,
        units=population,
        noise=noise,
        classes=classes,
        table=any(each.kind != "text" for each in columns) and seen.shape[1:] == pool.shape[1:],
        centres=clusters(seen, cells, drawn=drawn) if cells else None,
    )


def _clusters(
    pool: Float32[ndarray, "pool ..."], columns: Sequence[Feature], choice: QueryChoice, number: int, *, partitions: int
) -> Blocks:
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
