"""The soft labels of a deployed study's pool: from the sums that it released, and made again by whoever verifies them.

Only what is public enters: sums, queries, pool, who voted, and the study's population, weights and level.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64
from numpy import ndarray

from coordinator.labelling.propagation import is_propagated, soft_labels_of
from coordinator.labelling.soft_labels import soft_labels
from protocols.release.sums import PoolLabels
from protocols.study.deployed import DeployedStudy
from protocols.study.query_map import QueryMap
from protocols.study.released_noise import noise_in
from protocols.study.study import Study
from protocols.study.votes import unit_sums


@dataclass(frozen=True)
class Turnout:
    """What to expect of the sums of the seats that voted.

    entry: what a record adds to a cell, in votes, at their mean weight; records: how many they have, if all seats have
    as many; records_spread: how far that may be off, as a standard deviation: those that did not vote may have had none
    or many; sigma: of the noise in a cell, in records.
    """

    entry: float
    records: float
    records_spread: float
    sigma: float

    def scaled(self, study: Study, cells: Int64[ndarray, "queries classes"]) -> Float64[ndarray, "queries classes"]:
        """Sums in lattice units as numbers of records."""
        return cells / study.units / self.entry


def turnout(study: Study, voted: Bool[ndarray, " seats"], *, votes: int, population: float | int) -> Turnout:
    """What to expect of the sums of these seats. votes: of a record; population: records of all seats together."""
    present = float(voted.mean())
    entry = float(study.weights[voted].mean() / np.sqrt(votes))
    return Turnout(
        entry=entry,
        records=max(1.0, population * present),
        records_spread=population * (1 - present),
        sigma=noise_in(study, voted=int(voted.sum())) / entry,
    )


def who_voted(study: Study, charged: Mapping[str, int]) -> Bool[ndarray, " seats"]:
    """The seats that were charged for the batch of record votes, in nano-units; all seats if none was."""
    paid = np.array([charged.get(seat, 0) > 0 for seat in study.seats])
    return paid if paid.any() else np.full(len(paid), True)


def labels_of_pool(
    study: DeployedStudy,
    cells: Int64[ndarray, "queries classes"],
    queries: QueryMap,
    pool: Float32[ndarray, "pool ..."],
    *,
    charged: Mapping[str, int],
) -> PoolLabels:
    """The soft labels of a pool. cells: the released sums, in lattice units; charged: what each seat settled for them.

    Raises InvalidInput as soft_labels_of.
    """
    of = _turnout(study, charged)
    made = soft_labels_of(
        queries,
        pool,
        of.scaled(study, cells),
        records=of.records,
        records_spread=of.records_spread,
        sigma=of.sigma,
    )
    return PoolLabels(queries.nearest_queries(pool), made.probabilities)


def labels_again(
    study: DeployedStudy,
    cells: Int64[ndarray, "queries classes"],
    queries: QueryMap,
    members: Int64[ndarray, "pool votes"],
    *,
    charged: Mapping[str, int],
) -> Float64[ndarray, "pool classes"] | None:
    """The probabilities from sums and memberships alone; None where the pool's own values count too (propagation)."""
    if is_propagated(queries, len(members)):
        return None
    of = _turnout(study, charged)
    return soft_labels(
        of.scaled(study, cells),
        members,
        records=of.records,
        records_spread=of.records_spread,
        sigma=of.sigma,
    ).probabilities


def _turnout(study: DeployedStudy, charged: Mapping[str, int]) -> Turnout:
    records = unit_sums(study)
    return turnout(study, who_voted(study, charged), votes=records.votes, population=records.population)
