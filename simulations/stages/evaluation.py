"""What judges find of a student: the second noisy sum of a study in which records vote, of the units that did not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any  # plain values for JSON

import numpy as np

from protocols.labelling.coordinator import Labelling
from protocols.study.released_noise import noise_in
from protocols.study.study import Study
from protocols.study.votes import unit_sums
from protocols.sums.judged import Judged, PoolBins, summed_judgements
from protocols.sums.judging import judged
from simulations.datasets.dataset import Dataset
from simulations.stages.record_cells import RecordCells
from simulations.stages.students import ReleasedStudent

# So that its noise is not that of another stage of the same seed.
_STREAM = 0x1D6E


@dataclass(frozen=True, eq=False)
class JudgedStudent:
    """What judges said of all parties together, and of each by itself where votes are clear; else of none."""

    total: Judged
    parties: dict[str, Judged]

    def summary(self) -> dict[str, Any]:
        """For summary.json: everything of all together; of a party, where it has enough judges, its accuracy."""
        told = [[name, *each.accuracy.plain] for name, each in self.parties.items() if each.says_something()]
        return {**self.total.figures(), "parties": told}


def evaluate_student(
    study: Study, stored: RecordCells, data: Dataset, student: ReleasedStudent, labelling: Labelling, *, seed: int
) -> JudgedStudent:
    """Scores the judges of the seats that voted, and adds noise: where votes are clear to each seat's sum."""
    sums, terms = unit_sums(study), unit_sums(study).evaluation
    assert terms is not None  # the caller asked
    pool = PoolBins.of(terms, student.probabilities(data.public_inputs).astype(np.float64))
    # Scored together: a stored answer is kept for each set of inputs.
    known = student.probabilities(data.private_inputs).astype(np.float64)
    shape, of_seats = (terms.rows, study.classes), []
    for seat, judges, records, units in zip(
        study.roster, stored.judges(study), stored.records, stored.units, strict=True
    ):
        of_seats.append(
            judged(
                terms,
                known[records[judges]],
                data.private_labels[records[judges]],
                None if units is None else units[judges],
                weight_units=round(seat.weight * study.units),
                signed=sums.signed,
            )
        )
    rng = np.random.default_rng([seed, _STREAM])
    voted = np.flatnonzero(labelling.spent > 0)
    heaviest = float(study.weights[voted].max())

    def told(exact: np.ndarray, noise: float) -> Judged:
        noisy = exact / study.units + rng.normal(0.0, noise, size=shape)
        return Judged.of(terms, noisy, noise=noise, signed=sums.signed, heaviest=heaviest, pool=pool)

    if study.confidentiality.conceals_votes:
        total = np.sum([of_seats[at] for at in voted], axis=0)
        return JudgedStudent(told(total, noise_in(study, voted=len(voted))), {})
    parties = {study.roster[at].party: told(of_seats[at], study.mechanism.label_sigma) for at in voted.tolist()}
    return JudgedStudent(summed_judgements(list(parties.values())), parties)
