"""Soft labels of a pool from noisy cells and the pool's own shape: records that are close have the same label.

Post-processing of what was released: it costs nothing. Label spreading (Zhou et al. 2004), with the cells in the place
of single labels: the labels F of the pool minimise

    sum_q | cell_q / total_q - mean of F over the pool records of q |^2 / variance_q  +  SMOOTHNESS * tr(F' L F)

where L is the normalised Laplacian of the graph of nearest neighbours (their Eq. 4). A cell holds its records' labels
together only as fast as it stands above its noise; the graph says which of them are whose.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray

from coordinator.labelling.soft_labels import SoftLabels, centred, check_cells, indicator, soft_labels
from coordinator.queries.neighbours import laplacian
from protocols.study.query_map import QueryMap

# Chosen on training images of MNIST and Fashion-MNIST, for 200 to 1,600 queries at epsilon 0.5 and 1: within 0.4 points
# of the best of 1 to 100 and of 5 to 20 neighbours for each (docs/how-to/choose-features.md).
_SMOOTHNESS = 10.0
_NEIGHBOURS = 10
# Of a cell's mean label, for what the pool's records in it differ from the private ones'.
_SPREAD_IN_QUERY = 0.05
# A multinomial share's variance, p (1 - p), about.
_SHARE_VARIANCE = 0.1
# Of the pool's mean label around how often each class occurs, before anything is seen.
_PRIOR_VARIANCE = 0.25
# Of each class in a soft label, times how often it occurs: none is impossible.
_LEAST = 1e-4
_TOLERANCE, _MOST_STEPS = 1e-4, 500


def soft_labels_of(
    queries: QueryMap,
    pool: Float32[ndarray, "pool ..."],
    cells: Float64[ndarray, "queries classes"],
    *,
    records: float | int,
    sigma: float | int,
    records_spread: float = 0.0,
) -> SoftLabels:
    """Soft labels of a pool: propagated where every partition looks at all features, and so says which records are
    close; else soft_labels. Arguments, and what is raised, as there; InvalidInput also without scikit-learn.
    """
    features = queries.features(pool)
    members = queries.nearest_to(features)
    if is_propagated(queries, len(pool)):
        return propagated_labels(cells, members, features, records=records, sigma=sigma, records_spread=records_spread)
    return soft_labels(cells, members, records=records, sigma=sigma, records_spread=records_spread)


def is_propagated(queries: QueryMap, pool: int) -> bool:
    """Whether soft labels of a pool of so many records are propagated, and so follow from the pool's values too."""
    return pool > 1 and all(len(each.columns) == queries.features.width for each in queries.partitions)


def propagated_labels(
    cells: Float64[ndarray, "queries classes"],
    members: Int64[ndarray, "pool votes"],
    features: Float32[ndarray, "pool features"],
    *,
    records: float | int,
    sigma: float | int,
    records_spread: float = 0.0,
) -> SoftLabels:
    """Soft labels of a pool of at least 2 records. features: what neighbours are found by; the rest as in soft_labels.

    Raises InvalidInput where a value is out of range, and without scikit-learn.
    """
    check_cells(cells, members, records=records, sigma=sigma)
    queries, classes = cells.shape
    inside = indicator(members, queries)
    held = np.asarray(inside.sum(axis=0)).ravel()
    used = np.flatnonzero(held)
    expected = records * held[used] / len(members)
    sums, totals = centred(cells[used], expected, sigma=sigma, unknown=records_spread / records)
    totals = np.maximum(totals, 1.0)
    variance = (sigma**2 + totals * _SHARE_VARIANCE + 1) / totals**2 + _SPREAD_IN_QUERY / held[used]
    mean = scipy.sparse.diags(1 / held[used]) @ inside[:, used].T
    weighed = mean.T @ scipy.sparse.diags(1 / variance)
    # Noise of their sums counts as much as records that say nothing.
    overall = np.maximum(cells.sum(axis=0), 0.0) + sigma * queries**0.5 + 1
    frequencies, prior = overall / overall.sum(), 1 / (_PRIOR_VARIANCE * len(members))
    smooth = _SMOOTHNESS * laplacian(features, neighbours=_NEIGHBOURS) + prior * scipy.sparse.identity(len(members))
    system = (weighed @ mean + smooth).tocsr()
    wanted = weighed @ (sums / totals[:, None]) + prior * frequencies
    found = np.stack([_solved(system, wanted[:, each]) for each in range(classes)], axis=1)
    shares = np.maximum(found, 0.0) + _LEAST * frequencies
    reliability = np.zeros(queries)
    reliability[used] = totals**2 / (totals**2 + 4 * (sigma**2 + totals / 4 + 1))
    return SoftLabels(shares / shares.sum(axis=1, keepdims=True), reliability)


def _solved(system: scipy.sparse.csr_matrix, wanted: Float64[ndarray, " pool"]) -> Float64[ndarray, " pool"]:
    """By conjugate gradients; a solution that is not quite there is a soft label all the same."""
    found: Float64[ndarray, " pool"] = scipy.sparse.linalg.cg(system, wanted, rtol=_TOLERANCE, maxiter=_MOST_STEPS)[0]
    return found
