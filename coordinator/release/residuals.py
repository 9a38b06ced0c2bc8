"""What a release says of a second sum of residuals: the scores that hospitals were asked about, and the noisy sum.

The scores follow from the first sum and the pool, but for the last digits of another machine's arithmetic, so the file
has those that were sent; `verify` holds the request to them, and with the pool them to the first sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final  # Any: parsed JSON, checked below

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from coordinator.labelling.soft_labels import AskedAgain, soft_labels_of_study
from coordinator.release.evaluation import request_about
from coordinator.release.evidence import ReleaseEvidence
from protocols.errors import DataCorrupt, InvalidInput
from protocols.labelling.coordinator import AGAIN
from protocols.plural import counted
from protocols.reading import read_json
from protocols.release.sums import RESIDUALS_FILE, read_again, whole_rows
from protocols.study.deployed import DeployedStudy
from protocols.sums.blocks import Blocks
from protocols.sums.residuals import FirstScores

# Of another machine's scores, of any record: phi is no longer than 1.
_SAME_SCORE: Final = 1e-3


@dataclass(frozen=True, eq=False)
class ReleasedResiduals:
    """run: of the coordinator's ledger, which the request names; again: the scores, who is counted, and the sum."""

    run: bytes
    again: AskedAgain

    def to_json(self, study: DeployedStudy) -> dict[str, Any]:
        """As residuals.json has it."""
        counted_seats = zip(study.seats, self.again.counted.tolist(), strict=True)
        return {
            "run": self.run.hex(),
            "counted": [seat for seat, of in counted_seats if of],
            "scores": self.again.first.weights.tolist(),
            "sums": self.again.cells.tolist(),
        }


def read_residuals(folder: Path, study: DeployedStudy) -> ReleasedResiduals | None:
    """What residuals.json holds; None where there is none. Raises DataCorrupt."""
    sums = read_again(folder, study) if study.votes.residuals else None
    if sums is None:
        return None
    try:
        values = read_json(folder / RESIDUALS_FILE)
        run, seats = bytes.fromhex(values["run"]), [str(each) for each in values["counted"]]
        weights = whole_rows(RESIDUALS_FILE, "scores", values["scores"])
        if weights.shape != (study.votes.rows_again, study.classes):
            raise ValueError(f"scores of shape {weights.shape}")
        if seats != [seat for seat in study.seats if seat in seats] or len(seats) < study.quorum or len(run) > 64:
            raise ValueError(f"{len(seats)} seats are counted, in a run of {len(run)} bytes")
        first = FirstScores(weights)
    except (KeyError, TypeError, ValueError, AttributeError, InvalidInput) as error:
        raise DataCorrupt(f"{RESIDUALS_FILE} cannot be read: {error!r:.200}") from None
    return ReleasedResiduals(run, AskedAgain(first, np.isin(list(study.seats), seats), sums))


def check_residuals(
    study: DeployedStudy,
    found: ReleasedResiduals | None,
    evidence: ReleaseEvidence,
    told: Mapping[str, bool | None],
    cells: Int64[ndarray, "rows classes"] | None,
    queries: Blocks | None,
    pool: Float32[ndarray, "queries ..."] | None,
) -> tuple[str, bool]:
    """Raises DataCorrupt unless hospitals were asked about these scores, which the first sum gives, and what they said
    is released; returns what was found, and whether all was checked. told, pool: as in check_judges; cells: the first
    sum."""
    asked = evidence.charges[AGAIN] if len(evidence.charges) > AGAIN else None
    said = asked is not None and asked.settled is not None
    if found is None or asked is None or not said:
        if said or found is not None:
            raise DataCorrupt(f"{RESIDUALS_FILE} is released without a second sum, or one without the other")
        return "no second sum was released", True
    if asked.request != request_about(study, found.again.first.to_bytes(), run=found.run):
        raise DataCorrupt(f"hospitals were asked about other scores than {RESIDUALS_FILE} has, or in another study")
    seats = {seat for seat, of in zip(study.seats, found.again.counted.tolist(), strict=True) if of}
    if any((seat in seats) != (of is not False) for seat, of in told.items()):
        raise DataCorrupt(f"{RESIDUALS_FILE} counts {sorted(seats)}; receipts say otherwise")
    said_of = f"{counted(len(seats), 'seat')} said how far the first sum's scores are from their labels, once"
    if cells is None or queries is None or pool is None:
        return f"{said_of}; the scores were not made again", False
    soft = soft_labels_of_study(study, cells, queries, pool, charged=evidence.charges[0].settled or {})
    assert soft.scores is not None  # features are graded
    apart = np.abs(FirstScores.of(soft.scores.coefficients).of_one - found.again.first.of_one)
    if np.sqrt((apart**2).sum(axis=0)).max() > _SAME_SCORE:
        raise DataCorrupt(f"the scores of {RESIDUALS_FILE} are not those of the first sum")
    return said_of, True
