"""What judges find of a student: the second noisy sum of a study in which records vote, of the units that did not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any  # plain values for JSON

import numpy as np

from coordinator.students.findings import thresholds_of
from protocols.labelling.coordinator import Labelling
from protocols.study.findings import PRESENT
from protocols.study.released_noise import noise_in
from protocols.study.study import Study
from protocols.study.votes import unit_sums
from protocols.sums.judged import Judged, PoolBins, by_finding, summed_judgements
from protocols.sums.judging import apart, judged
from simulations.datasets.dataset import Dataset
from simulations.stages.record_cells import RecordCells
from simulations.stages.students import ReleasedStudent

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
