"""The soft labels of a deployed study's pool: from the sums that it released, and made again by whoever verifies them.

Only what is public enters: sums, queries, pool, and the study's population, weights and level.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray

from coordinator.labelling.propagation import is_propagated, soft_labels_of
from coordinator.labelling.soft_labels import soft_labels
from protocols.release.sums import PoolLabels
from protocols.study.deployed import DeployedStudy
from protocols.study.queries_file import record_votes
from protocols.study.query_map import QueryMap
from protocols.study.released_noise import noise_in


def labels_of_pool(
    study: DeployedStudy,
    cells: Int64[ndarray, "queries classes"],
    queries: QueryMap,
    pool: Float32[ndarray, "pool ..."],
) -> PoolLabels:
    """The soft labels of a pool. cells: the released sums, in lattice units. Raises InvalidInput as soft_labels_of."""
    records, entry = record_votes(study), _entry(study)
    made = soft_labels_of(
        queries, pool, cells / study.units / entry, records=records.population, sigma=noise_in(study) / entry
    )
    return PoolLabels(queries.nearest_queries(pool), made.probabilities)


def labels_again(
    study: DeployedStudy,
    cells: Int64[ndarray, "queries classes"],
    queries: QueryMap,
    members: Int64[ndarray, "pool votes"],
) -> Float64[ndarray, "pool classes"] | None:
    """The probabilities from sums and memberships alone; None where the pool's own values count too (propagation)."""
    if is_propagated(queries, len(members)):
        return None
    entry = _entry(study)
    given = cells / study.units / entry
    return soft_labels(
        given, members, records=record_votes(study).population, sigma=noise_in(study) / entry
    ).probabilities


def _entry(study: DeployedStudy) -> float:
    """What a record adds to a cell, in votes, at the mean weight."""
    return float(study.weights.mean() / np.sqrt(record_votes(study).votes))
