"""Record votes live, between Party objects and a Coordinator, each with a ledger of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from coordinator.labelling.soft_labels import SoftLabels, soft_labels
from party.party import Voter
from protocols.contributions import contribution_sum
from protocols.errors import InvalidInput
from protocols.labelling.coordinator import Labelling
from protocols.study.query_map import QueryMap
from protocols.study.study import Study
from simulations.stages.label import live_labelling

Contribution = Int64[ndarray, "queries classes"]


def contributions(
    study: Study,
    queries: QueryMap,
    holdings: Sequence[tuple[Float32[ndarray, "records features"], Int64[ndarray, " records"], ndarray | None]],
) -> list[Contribution]:
    """Each party's sum in lattice units. holdings: features, labels and the unit (patient) of each party's records.

    Raises InvalidInput for another map than the study's, and as contribution_sum does.
    """
    records = study.records
    if records is None or records.queries_sha256 != queries.digest:
        raise InvalidInput("the queries are not those of the study; allowed: the map whose digest it names")
    sums = []
    for seat, (features, labels, patients) in zip(study.roster, holdings, strict=True):
        total = contribution_sum(
            queries.cells(features, labels, classes=study.classes),
            patients if study.unit == "patient" else None,
            weight_units=round(seat.weight * study.units),
            cell_count=records.queries * study.classes,
        )
        sums.append(total.reshape(records.queries, study.classes))
    return sums


def live_record_votes(study: Study, sums: Sequence[Contribution], *, seed: int) -> Labelling:
    """Asks every party once. The labels are of queries; `cells` are the noisy sums that were released."""

    def voter(position: int) -> Voter:
        return lambda batch: sums[position]

    return live_labelling(study, voter, queries=study.query_limit, seed=seed)


def soft_pool_labels(
    study: Study, labelling: Labelling, queries: QueryMap, pool: Float32[ndarray, "pool features"], *, records: int
) -> SoftLabels:
    """Soft labels of a pool from what a study released. Raises InvalidInput where it released nothing."""
    if labelling.cells is None:
        raise InvalidInput(f"the study released no sums ({labelling.stop.reason}); allowed: one that did")
    entry = study.weights.mean() / np.sqrt(queries.votes)
    return soft_labels(
        labelling.cells / study.units / entry,
        queries.nearest_queries(pool),
        records=records,
        sigma=study.mechanism.label_sigma / entry,
    )
