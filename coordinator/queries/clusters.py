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
    try:
        from sklearn.cluster import MiniBatchKMeans
        from sklearn.exceptions import ConvergenceWarning
    except ModuleNotFoundError as missing:
        raise InvalidInput(f"queries of clusters need scikit-learn: {install('sklearn')}") from missing
    found = features(pool)
    different = len(np.unique(found, axis=0))
    if not 2 <= queries <= different:
        raise InvalidInput(
            f"{queries} queries are asked for; allowed: 2 to {different}, the pool's records with different features"
        )
    if partitions < 1:
        raise InvalidInput(f"partitions is {partitions}; allowed: at least 1")
    made = []
    for number in range(partitions):
        drawn = int(np.random.default_rng([seed, number, *b"clusters"]).integers(2**31))
        with warnings.catch_warnings():
            # Fewer clusters than asked for are no fault: the rest are the same query.
            warnings.simplefilter("ignore", ConvergenceWarning)
            fitted = MiniBatchKMeans(
                queries, batch_size=max(1024, 4 * queries), n_init=1, max_iter=_PASSES, random_state=drawn
            ).fit(found)
        made.append(
            Partition.of(fitted.cluster_centers_.astype(np.float32), columns=np.arange(features.width), nearest=nearest)
        )
    return QueryMap(features, tuple(made))
