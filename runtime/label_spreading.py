"""Label spreading on a graph of nearest neighbours (Zhou et al. 2004, "Learning with Local and Global Consistency")."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from jaxtyping import Float64
from numpy import ndarray
from scipy.sparse import csr_array, diags_array

NEIGHBOURS: Final = 7
_SPREAD: Final = 0.9  # the part of a row that comes from its neighbours; alpha in the paper


def adjacency(nearest: Any, *, records: int) -> csr_array:  # Any: scikit-learn has no types
    """D^-1/2 W D^-1/2 of the graph in which either of two records is among the other's nearest; S in the paper.

    nearest: the index of so many records' neighbours, at least 2.
    """
    edges = csr_array(nearest.kneighbors_graph(n_neighbors=min(NEIGHBOURS, records - 1)))
    either = edges.maximum(edges.T)
    root = diags_array(1 / np.sqrt(either.sum(axis=1)))
    return csr_array(root @ either @ root)


def spread(
    smooth: csr_array, given: Float64[ndarray, "records classes"], *, rounds: int, precision: float = 0.0
) -> Float64[ndarray, "records classes"]:
    """F = alpha S F + (1 - alpha) Y, Y the given labels, after so many rounds, or once a round moves nothing by more
    than the precision."""
    found = given
    for _ in range(rounds):
        before, found = found, _SPREAD * (smooth @ found) + (1 - _SPREAD) * given
        if precision and np.abs(found - before).max() < precision:
            break
    return np.asarray(found)
