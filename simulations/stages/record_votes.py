"""Record votes: the study live between Party objects and a Coordinator, its replay by seed, the labels of the pool.

And what judges find of a student: the second noisy sum, of the units that did not vote.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any  # plain values for JSON

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from coordinator.labelling.soft_labels import SoftLabels, asked_again, labels_of_sums, turnout, who_voted
from coordinator.students.findings import thresholds_of
from party.party import Voter
from protocols.errors import InvalidInput
from protocols.labelling.coordinator import AGAIN, Labelling, SecondSum
from protocols.labelling.replay import dropout_presence, replay
from protocols.labelling.stored_votes import RecordSums
from protocols.levels.simulated import drawn_noise
from protocols.study.findings import PRESENT
from protocols.study.released_noise import noise_in
from protocols.study.study import Study
from protocols.study.votes import unit_sums
from protocols.sums.blocks import Blocks
from protocols.sums.contributions import said
from protocols.sums.judged import Judged, PoolBins, by_finding, summed_judgements
from protocols.sums.judging import apart, judged
from protocols.sums.residuals import FirstScores
from simulations.datasets.dataset import Dataset
from simulations.stages.label import SeedResult, live_labelling
from simulations.stages.record_cells import Contribution, RecordCells
from simulations.stages.students import ReleasedStudent


def contributions(
    study: Study,
    queries: Blocks,
    holdings: Sequence[tuple[Float32[ndarray, "records features"], Int64[ndarray, " records"], ndarray | None]],
) -> list[Contribution]:
    """Each party's sum in lattice units. Raises InvalidInput for another map than the study's, and as contribution_sum
    does. holdings: as in cells_of_holdings."""
    return cells_of_holdings(study, queries, holdings).sums(study)


def cells_of_holdings(
    study: Study,
    queries: Blocks,
    holdings: Sequence[tuple[Float32[ndarray, "records features"], Int64[ndarray, " records"], ndarray | None]],
) -> RecordCells:
    """What every record says. holdings: features, labels and the unit (patient) of each party's records."""
    spoken = tuple(said(queries, features, labels, classes=study.classes) for features, labels, _ in holdings)
    units = tuple(
        None if study.unit == "record" else patients if study.unit == "patient" else np.zeros(len(labels), np.int64)
        for _, labels, patients in holdings
    )
    places = tuple(np.arange(len(labels)) for _, labels, _ in holdings)
    return RecordCells(study.labelled, 0, queries, spoken, units, places)


def live_record_votes(
    study: Study,
    sums: Sequence[Contribution],
    *,
    seed: int,
    dropout: float = 0.0,
    again: tuple[FirstScores, Sequence[Contribution]] | None = None,
) -> Labelling:
    """Asks every party once. The labels are of queries; `cells` are the noisy sums that were released. again: the
    scores of a second batch, and each party's residuals."""
    first, residuals = (None, sums) if again is None else again

    def voter(position: int) -> Voter:
        return lambda batch: (residuals if batch.model else sums)[position]

    model = b"" if first is None else first.to_bytes()
    return live_labelling(study, voter, queries=unit_sums(study).queries, seed=seed, dropout=dropout, again=model)


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
    sums, noise = RecordSums(study.classes, stored.sums(study)), drawn_noise(study, seed=seed)
    result, again = replay(study, sums, noise=noise, presence=presence), None
    labelling, records = result.labelling, unit_sums(study).population
    if labelling.cells is None:
        return SeedResult(seed, labelling, result.spent_after, None)
    soft = soft_pool_labels(study, labelling, stored.map, pool, records=records)
    counted = (labelling.spent > 0) & (True if presence is None else presence(AGAIN))
    if unit_sums(study).residuals and counted.sum() >= study.quorum:
        assert soft.scores is not None  # features are graded
        again = FirstScores.of(soft.scores.coefficients)
        total = sum(each for each, of in zip(stored.residuals(study, again), counted.tolist(), strict=True) if of)
        _, cells = study.released(np.asarray(total) / study.units, noise(counted), predictions=None)
        labelling = replace(labelling, again=SecondSum(cells, counted))
        soft = soft_pool_labels(study, labelling, stored.map, pool, records=records, first=again)
    accuracy = None if truth is None else soft.accuracy(truth)
    return SeedResult(seed, labelling, result.spent_after, accuracy, soft, first=again)


def soft_pool_labels(
    study: Study,
    labelling: Labelling,
    queries: Blocks,
    pool: Float32[ndarray, "pool features"],
    *,
    records: int,
    first: FirstScores | None = None,
) -> SoftLabels:
    """Soft labels of a pool from what a study released; first: the scores of its second batch, if that counts. Raises
    InvalidInput where it released nothing."""
    if labelling.cells is None:
        raise InvalidInput(f"the study released no sums ({labelling.stop.reason}); allowed: one that did")
    voted = who_voted(study, dict(zip(study.seats, labelling.spent.tolist(), strict=True)))
    of = turnout(study, voted, population=records)
    return labels_of_sums(study, of, labelling.cells, queries, pool, asked_again(first, labelling.again))


# So that its noise is not that of another stage of the same seed.
_STREAM = 0x1D6E


@dataclass(frozen=True, eq=False)
class JudgedStudent:
    """What judges said of all parties together, and of each by itself where votes are clear, else of none: of each of
    the findings, or of the one label."""

    findings: tuple[str, ...]
    total: tuple[Judged, ...]
    parties: dict[str, tuple[Judged, ...]]

    def summary(self) -> dict[str, Any]:
        """For summary.json: everything of all together; of a party, where it has enough judges, its accuracy. A
        finding's are under its name."""
        found = []
        for at, judged_in_all in enumerate(self.total):
            of = [(name, each[at]) for name, each in self.parties.items()]
            told = [[name, *each.accuracy.plain] for name, each in of if each.says_something()]
            found.append({**judged_in_all.figures(), "parties": told})
        return by_finding(self.findings, found)


def evaluate_student(
    study: Study,
    stored: RecordCells,
    data: Dataset,
    students: Sequence[ReleasedStudent],
    labelling: Labelling,
    *,
    seed: int,
) -> JudgedStudent:
    """Scores the judges of the seats that voted, and adds noise: where votes are clear to each seat's sum. students: of
    each finding, or the one label."""
    sums, terms = unit_sums(study), unit_sums(study).evaluation
    assert terms is not None  # the caller asked
    several = len(data.findings)
    on_pool, known = (
        [each.probabilities(inputs).astype(np.float64) for each in students]
        # Records are scored together: a stored answer is kept for each set of inputs.
        for inputs in (data.public_inputs, data.private_inputs)
    )
    shown = np.stack([each[:, PRESENT] for each in known], axis=1) if several else known[0]
    limits = thresholds_of(np.stack([each[:, PRESENT] for each in on_pool], axis=1)) if several else ()
    pools = [PoolBins.of(terms, each) for each in on_pool]
    shape, of_seats = (terms.rows, study.classes), []
    for seat, judges, records, units in zip(
        study.roster, stored.judges(study), stored.records, stored.units, strict=True
    ):
        told = judged(
            terms,
            shown[records[judges]],
            data.private_labels[records[judges]],
            None if units is None else units[judges],
            weight_units=round(seat.weight * study.units),
            signed=sums.signed,
            thresholds=limits,
        )
        of_seats.append(told.reshape(shape))
    rng = np.random.default_rng([seed, _STREAM])
    voted = np.flatnonzero(labelling.spent > 0)
    heaviest = float(study.weights[voted].max())

    def heard(exact: np.ndarray, noise: float) -> tuple[Judged, ...]:
        noisy = exact / study.units + rng.normal(0.0, noise, size=shape)
        return tuple(
            Judged.of(
                terms, table, noise=noise, signed=sums.signed, heaviest=heaviest, pool=pool, told=len(pools)
            )
            for table, pool in zip(apart(noisy, several) if several else [noisy], pools, strict=True)
        )  # fmt: skip

    if study.confidentiality.conceals_votes:
        summed = np.sum([of_seats[at] for at in voted], axis=0)
        return JudgedStudent(data.findings, heard(summed, noise_in(study, voted=len(voted))), {})
    parties = {study.roster[at].party: heard(of_seats[at], study.mechanism.label_sigma) for at in voted.tolist()}
    total = tuple(summed_judgements(list(of_parties)) for of_parties in zip(*parties.values(), strict=True))
    return JudgedStudent(data.findings, total, parties)
