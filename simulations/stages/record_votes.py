"""Record votes live, between Party objects and a Coordinator, each with a ledger of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from coordinator.in_process import InProcessTransport
from coordinator.labelling.soft_labels import SoftLabels, soft_labels
from party.party import Party
from protocols.contributions import contribution_sum
from protocols.crypto.randomness import simulation_rng
from protocols.errors import InvalidInput
from protocols.labelling.coordinator import Coordinator, Labelling
from protocols.ledger.ledger import Ledger
from protocols.study.queries import QueryBatch
from protocols.study.query_map import QueryMap
from protocols.study.study import Study
from simulations.setup.levels import simulated_aggregation, simulated_ballot

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

    def voter(position: int) -> Callable[[QueryBatch], Contribution]:
        return lambda batch: sums[position]

    ledgers = [Ledger(":memory:") for _ in study.roster]
    with Ledger(":memory:") as ledger, Ledger(":memory:") as guardians:
        parties = {
            seat.party: Party(
                seat.party,
                study=study,
                ledger=ledgers[i],
                voter=voter(i),
                coins_from=None,
                ballot=simulated_ballot(study, i, ledger=ledgers[i], seed=seed),
            )
            for i, seat in enumerate(study.roster)
        }
        coordinator = Coordinator(
            study,
            ledger=ledger,
            aggregation=simulated_aggregation(study, guardians=guardians, seed=seed),
            exchange=InProcessTransport({name: party.handle for name, party in parties.items()}),
            run=simulation_rng(seed, "run").bytes(16),
        )
        labelling = coordinator.label(np.zeros((study.query_limit, 1), dtype=np.float32))
    for each in ledgers:
        each.close()
    return labelling


def soft_pool_labels(
    study: Study, labelling: Labelling, queries: QueryMap, pool: Float32[ndarray, "pool features"], *, records: int
) -> SoftLabels:
    """Soft labels of a pool from what a study released. Raises InvalidInput where it released nothing."""
    if labelling.cells is None:
        raise InvalidInput(f"the study released no sums ({labelling.stop.reason}); allowed: one that did")
    entry = float(np.mean([seat.weight for seat in study.roster])) / np.sqrt(queries.votes)
    return soft_labels(
        labelling.cells / study.units / entry,
        queries.nearest_queries(pool),
        records=records,
        sigma=study.mechanism.label_sigma / entry,
    )
