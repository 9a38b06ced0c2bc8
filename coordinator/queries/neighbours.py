"""The nearest neighbours of the records of a public pool: records that are close have the same label, mostly."""

from __future__ import annotations

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray

from protocols.errors import InvalidInput
from protocols.installing import install

# Of an edge between neighbours, at least: none is cut off.
_WEAKEST = 1e-6


def nearest(
    features: Float32[ndarray, "pool features"], neighbours: int
) -> tuple[Float64[ndarray, "pool neighbours"], Int64[ndarray, "pool neighbours"]]:
    """The distances and the places of each record's nearest others, the nearest first; all others of a smaller pool.

    Of at least 2 records. Raises InvalidInput without scikit-learn, and for records whose distance is no number.
    """
    try:
        from sklearn.neighbors import NearestNeighbors
    except ModuleNotFoundError as missing:
        raise InvalidInput(f"nearest neighbours need scikit-learn: {install('sklearn')}") from missing
    found = NearestNeighbors(n_neighbors=min(neighbours, len(features) - 1), n_jobs=1).fit(features)
    distances, places = found.kneighbors()
    if not np.isfinite(distances).all():
        raise InvalidInput(
            f"features span [{features.min():.3g}, {features.max():.3g}], too far apart for distances in float32; "
            "allowed: about 1e19 apart, such as standardised ones"
        )
    return distances.astype(np.float64), places


def reach_of_graph(distances: Float64[ndarray, "pool neighbours"]) -> Float64[ndarray, " pool"]:
    """The distance of each record's furthest neighbour, above 0."""
    # Of copies of one record no distance is above 0: then they are as close as can be.
    return np.asarray(np.maximum(distances[:, -1], np.finfo(np.float64).tiny ** 0.5))


def laplacian(features: Float32[ndarray, "pool features"], *, neighbours: int) -> scipy.sparse.csr_matrix:
    """I - D^-1/2 W D^-1/2 of the graph of nearest neighbours, with self-tuning weights (Zelnik-Manor & Perona 2004).

    Raises InvalidInput without scikit-learn.
    """
    rows = len(features)
    distances, places = nearest(features, neighbours)
    scales = reach_of_graph(distances)
    weights = np.maximum(np.exp(-(distances**2) / (scales[:, None] * scales[places])), _WEAKEST)
    graph = sparse(weights, places)
    graph = graph.maximum(graph.T)
    scale = scipy.sparse.diags(1 / np.sqrt(np.asarray(graph.sum(axis=1)).ravel()))
    return scipy.sparse.csr_matrix(scipy.sparse.identity(rows) - scale @ graph @ scale)


def solved(
    system: scipy.sparse.csr_matrix, wanted: Float64[ndarray, "pool classes"], *, precision: float, steps: int
) -> Float64[ndarray, "pool classes"]:
    """The solution for each class by conjugate gradients; one that is not quite there is a soft label all the same."""
    found = [scipy.sparse.linalg.cg(system, each, rtol=precision, maxiter=steps)[0] for each in wanted.T]
    return np.stack(found, axis=1)


def sparse(
    weights: Float64[ndarray, "pool neighbours"], places: Int64[ndarray, "pool neighbours"]
) -> scipy.sparse.csr_matrix:
    """A matrix [pool, pool] with each record's weights in its row."""
    rows, count = places.shape
    return scipy.sparse.csr_matrix((weights.ravel(), (np.repeat(np.arange(rows), count), places.ravel())), (rows, rows))
