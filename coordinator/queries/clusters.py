"""Queries that are centres of clusters of the public pool."""

from __future__ import annotations

import warnings

import numpy as np
from jaxtyping import Float32
from numpy import ndarray

from protocols.errors import InvalidInput
from protocols.features.feature_map import FeatureMap
from protocols.installing import install
from protocols.study.query_map import Partition, QueryMap

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
) -> QueryMap:
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
        made.append(Partition.of(centres, columns=np.arange(features.width), nearest=nearest))
    return QueryMap(features, tuple(made))


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
