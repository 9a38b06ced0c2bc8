"""Questions that are the pool records nearest to the centres of clusters of the pool, largest clusters first."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from coordinator.queries.clusters import clusters
from protocols.errors import InvalidInput


def centres_first(
    features: Float32[ndarray, "pool features"], *, number: int | None, seed: int
) -> Int64[ndarray, " pool"]:
    """Every position of the pool once: of each cluster the record nearest to its centre, then the others, shuffled.

    number: of clusters, at least 2 and at most the pool's different records. Raises InvalidInput, also without
    scikit-learn.
    """
    if number is None:
        raise InvalidInput("questions is 'centres'; allowed: centres:N")
    centres = clusters(features, number, drawn=int(np.random.default_rng([seed, *b"centres"]).integers(2**31)))
    distances = (centres**2).sum(axis=1) - 2 * features @ centres.T + (features**2).sum(axis=1, keepdims=True)
    sizes = np.bincount(distances.argmin(axis=1), minlength=len(centres))
    nearest = distances.argmin(axis=0)[np.argsort(-sizes, kind="stable")]
    first = nearest[np.sort(np.unique(nearest, return_index=True)[1])]
    others = np.setdiff1d(np.arange(len(features)), first)
    return np.concatenate([first, np.random.default_rng([seed, *b"others"]).permutation(others)])
