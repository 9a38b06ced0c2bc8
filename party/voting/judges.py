"""The units of a hospital that judge: chosen when it approves, kept with their records until they are asked, once.

Who judges stands in policy.sqlite, as keyed digests, in the transaction that binds the votes that were counted beside
it; only they judge, whatever the hospital's data say later. What is kept of them are their records, so that the node's
service reads no data, and no record can be moved from one sum to the other. It is deleted once they have judged, or
with a withdrawal.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from jaxtyping import Bool, Float32, Int64
from numpy import ndarray

from party.budget.known_units import KnownUnits
from party.data.mapping import folded_number
from party.data.records import RecordLabels, Records
from protocols.array_files import read_arrays
from protocols.errors import DataCorrupt, InvalidInput, Refused
from protocols.features.scored_model import ScoredModel
from protocols.refusals.code import Code
from protocols.study.deployed import DeployedStudy
from protocols.study.votes import unit_sums
from protocols.sums.judging import judged
from runtime.distribution import lacking

_FILE_BYTES: Final = 2**34
# Standard deviations of how many records judge, by which a model is run more often than that in the mean.
_SPREAD: Final = 6.0
_NAMES: Final = ("study", "pair", "runs", "inputs", "labels", "units", "known_at", "digests")


@dataclass(frozen=True, eq=False)
class Judges:
    """The judges' records of one seat. units: the number of each one's unit; known_at: at how many hospitals that is
    known, 1 where nobody says; digests: keyed, of each one's unit; runs: how often a model is run at least, which does
    not depend on how many judge."""

    inputs: Float32[ndarray, "records ..."] = field(repr=False)
    labels: RecordLabels = field(repr=False)
    units: Int64[ndarray, " records"] = field(repr=False)
    known_at: Int64[ndarray, " records"] = field(repr=False)
    digests: Int64[ndarray, " records"] = field(repr=False)
    runs: int = field(repr=False)

    def to_bytes(self, study: DeployedStudy, pair: bytes) -> bytes:
        """As they are kept. pair: names the votes that were counted with them."""
        whole = {name: getattr(self, name).astype("<i8") for name in _NAMES[4:]}
        runs, inputs = np.array([self.runs], "<i8"), self.inputs.astype("<f4")
        return later_bytes(study, pair, runs=runs, inputs=inputs, **whole)


def later_bytes(study: DeployedStudy, pair: bytes, **arrays: ndarray) -> bytes:
    """The file of what a seat's records are asked for later. pair: names the votes that were counted with it."""
    content = io.BytesIO()
    of = {"study": np.frombuffer(study.digest, np.uint8), "pair": np.frombuffer(pair, np.uint8)}
    np.savez(content, **of, **arrays)  # type: ignore[arg-type]  # the stub takes the names for allow_pickle
    return content.getvalue()


def judges_of(
    records: Records,
    study: DeployedStudy,
    units: Int64[ndarray, " records"],
    known: KnownUnits,
) -> tuple[Bool[ndarray, " records"], Int64[ndarray, " records"]]:
    """Which records are of units that judge, and the keyed digest of each one's unit: by the key of the terms and the
    unit's id alone, its patient's name or else its place; where equal records are one, what the record holds, as where
    the first of them stands depends on others.

    Raises InvalidInput without onnxruntime, which runs the model.
    """
    evaluation = unit_sums(study).evaluation
    if evaluation is None:
        return np.zeros(len(units), dtype=bool), np.zeros(len(units), dtype=np.int64)
    try:
        import onnxruntime  # noqa: F401  # the node will need it
    except ModuleNotFoundError as missing:
        raise lacking(missing, "a study with judges", "onnx") from missing
    if study.unit == "patient" and records.patients is not None:
        digests = known.of_names(records.patients)
        # Folded, so that one patient who is written in two ways has one role.
        ids = [folded_number(name) for name in records.patients]
    else:
        ids = [str(place) for place in range(len(units))]
        if records.equal_are_one:
            held = zip(records.inputs, records.labels, strict=True)
            ids = [hashlib.sha256(row.tobytes() + b" " + label.tobytes()).hexdigest() for row, label in held]
        digests = known.of_names([f"record {place}" for place in ids])
    return evaluation.judges(ids), digests


def runs_for(units: Int64[ndarray, " records"], share: float) -> int:
    """How many records judge at most, but for 1 in 10^8: of units whose numbers these are, at this share."""
    sizes = np.unique(units, return_counts=True)[1].astype(np.float64)
    return int(np.ceil(share * sizes.sum() + _SPREAD * np.sqrt(share * (1 - share) * (sizes**2).sum())))


class KeptJudges:
    """One seat's judges, until they are asked. listed: whom the policy names, and the pair; None where it names
    none."""

    def __init__(self, path: Path, *, study: DeployedStudy, seat: str, listed: tuple[bytes, frozenset[int]] | None):
        self._path, self._study, self._seat, self._listed = path, study, seat, listed

    def answer(self, model: bytes) -> Int64[ndarray, "rows classes"]:
        """The sum of what they say of a model. Raises DataUnavailable, DataCorrupt for what is kept; InvalidInput,
        DataCorrupt for the model; Refused("no_record_votes") where the policy lists nobody."""
        if self._listed is None:
            raise Refused(Code.NO_RECORD_VOTES, "the policy lists no judges")
        (pair, listed), sums = self._listed, unit_sums(self._study)
        held = self._read(pair)
        scored = ScoredModel.from_bytes(model)
        terms = self._study.terms
        if scored.features is not None and scored.features.input_shape != terms.input_shape:
            raise InvalidInput(
                f"the model sees records of {scored.features.input_shape}; allowed: {terms.input_shape}, the study's"
            )
        known = np.isin(held.digests, np.array(sorted(listed), np.int64))
        labelled = self._study.labelled
        if len(scored.thresholds) != (wanted := len(labelled.names)):
            raise InvalidInput(f"the model has {len(scored.thresholds)} thresholds; allowed: {wanted}, one a finding")
        given = scored.probabilities(held.inputs, classes=labelled.said, runs=held.runs)
        given[~known] = np.nan
        assert sums.evaluation is not None  # judges are listed
        found = judged(
            sums.evaluation,
            given,
            held.labels,
            held.units,
            weight_units=round(self._study.roster[self._study.seats[self._seat]].weight * self._study.units),
            signed=sums.signed,
            known_at=held.known_at if sums.declared else None,
            thresholds=scored.thresholds,
        )
        return found.reshape(sums.rows_again, self._study.classes)

    def _read(self, pair: bytes) -> Judges:
        arrays = read_arrays(self._path, list(_NAMES), most=_FILE_BYTES)
        whole = [arrays[name] for name in _NAMES[4:]]
        inputs, findings = arrays["inputs"], len(self._study.findings)
        kinds = {each.dtype.str for each in whole} == {"<i8"} and inputs.dtype.str == "<f4"
        told = (len(inputs), findings) if findings else inputs.shape[:1]
        shapes = whole[0].shape == told and {each.shape for each in whole[1:]} == {inputs.shape[:1]}
        of_these = (arrays["study"].tobytes(), arrays["pair"].tobytes()) == (self._study.digest, pair)
        if not (of_these and kinds and shapes and arrays["runs"].shape == (1,)):
            raise DataCorrupt(f"{self._path} does not hold the judges that were approved with this study's votes")
        labels, units, known_at, digests = (each.astype(np.int64) for each in whole)
        return Judges(inputs, labels, units, known_at, digests, int(arrays["runs"][0]))
