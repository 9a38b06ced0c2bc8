"""Record votes: the study live between Party objects and a Coordinator, its replay by seed, the labels of the pool."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from coordinator.labelling.soft_labels import SoftLabels, labels_of_sums, turnout, who_voted
from party.party import Voter
from protocols.errors import InvalidInput
from protocols.labelling.coordinator import Labelling
from protocols.study.study import Study
from protocols.study.votes import unit_sums
from protocols.sums.blocks import Blocks
from protocols.sums.contributions import said
from simulations.setup.levels import batch_noise
from simulations.stages.label import SeedResult, live_labelling
from simulations.stages.record_cells import Contribution, RecordCells
from simulations.stages.replay import dropout_presence, replay
from simulations.stages.stored_votes import RecordSums


def contributions(
    study: Study,
    queries: Blocks,
    holdings: Sequence[tuple[Float32[ndarray, "records features"], Int64[ndarray, " records"], ndarray | None]],
) -> list[Contribution]:
    """Each party's sum in lattice units. holdings: features, labels and the unit (patient) of each party's records.

    Raises InvalidInput for another map than the study's, and as contribution_sum does.
    """
    spoken = tuple(said(queries, features, labels, classes=study.classes) for features, labels, _ in holdings)
    units = tuple(
        None if study.unit == "record" else patients if study.unit == "patient" else np.zeros(len(labels), np.int64)
        for _, labels, patients in holdings
    )
    places = tuple(np.arange(len(labels)) for _, labels, _ in holdings)
    return RecordCells(study.labelled, 0, queries, spoken, units, places).sums(study)


def live_record_votes(study: Study, sums: Sequence[Contribution], *, seed: int, dropout: float = 0.0) -> Labelling:
    """Asks every party once. The labels are of queries; `cells` are the noisy sums that were released."""

    def voter(position: int) -> Voter:
        return lambda batch: sums[position]

    return live_labelling(study, voter, queries=unit_sums(study).queries, seed=seed, dropout=dropout)


def label_record_seed(
    study: Study,
    stored: RecordCells,
    *,
    pool: Float32[ndarray, "pool features"],
    seed: int,
    dropout: float,
    truth: Int64[ndarray, "pool *findings"] | None,
) -> SeedResult:
    """Replays the study with the noise (and drop-outs) of one seed, and labels the pool."""
    presence = dropout_presence(len(study.roster), rate=dropout, seed=seed) if dropout else None
    sums = RecordSums(study.classes, stored.sums(study))
    result = replay(study, sums, noise=batch_noise(study, seed=seed), presence=presence)
    if result.labelling.cells is None:
        return SeedResult(seed, result.labelling, result.spent_after, None)
    soft = soft_pool_labels(study, result.labelling, stored.map, pool, records=unit_sums(study).population)
    accuracy = None if truth is None else soft.accuracy(truth)
    return SeedResult(seed, result.labelling, result.spent_after, accuracy, soft)


def soft_pool_labels(
    study: Study, labelling: Labelling, queries: Blocks, pool: Float32[ndarray, "pool features"], *, records: int
) -> SoftLabels:
    """Soft labels of a pool from what a study released. Raises InvalidInput where it released nothing."""
    if labelling.cells is None:
        raise InvalidInput(f"the study released no sums ({labelling.stop.reason}); allowed: one that did")
    voted = who_voted(study, dict(zip(study.seats, labelling.spent.tolist(), strict=True)))
    return labels_of_sums(study, turnout(study, voted, population=records), labelling.cells, queries, pool)
