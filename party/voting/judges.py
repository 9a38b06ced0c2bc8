"""What a hospital keeps for a second batch: its judges' records, or for a sum of residuals what all its records say.

It lies in the study's folder, bound to the votes that were counted beside it, so that both are of the same units.

The units of a hospital that judge are chosen when it approves, and kept with their records until they are asked, once.

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
from protocols.sums.contributions import Said, Sum
from protocols.sums.judging import judged
from protocols.sums.residuals import FirstScores, residual_sum
from runtime.distribution import lacking

_FILE_BYTES: Final = 2**34
# Standard deviations of how many records judge, by which a model is run more often than that in the mean.
_SPREAD: Final = 6.0
_OF_PAIR: Final = ("study", "pair")
_JUDGED: Final = ("labels", "units", "known_at", "digests")
_SAID: Final = ("said", "units", "known_at")


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
        whole = {name: getattr(self, name).astype("<i8") for name in _JUDGED}
        runs, inputs = np.array([self.runs], "<i8"), self.inputs.astype("<f4")
        return _later_bytes(study, pair, runs=runs, inputs=inputs, **whole)


@dataclass(frozen=True, eq=False)
class SaidAgain:
    """The records of one seat that vote. said: class and phi of each; units: the number of each one's unit; known_at:
    at how many hospitals that is known, 1 where nobody says; digests: none, as all units are asked."""

    said: Said = field(repr=False)
    units: Int64[ndarray, " records"] = field(repr=False)
    known_at: Int64[ndarray, " records"] = field(repr=False)
    digests: Int64[ndarray, " none"] = field(default_factory=lambda: np.zeros(0, np.int64), repr=False)

    def to_bytes(self, study: DeployedStudy, pair: bytes) -> bytes:
        """As it is kept. pair: names the votes that were counted with it."""
        return _later_bytes(study, pair, **{name: getattr(self, name).astype("<i8") for name in _SAID})


def _later_bytes(study: DeployedStudy, pair: bytes, **arrays: ndarray) -> bytes:
    """The file of what a seat's records are asked for later. pair: names the votes that were counted with it."""
    content = io.BytesIO()
    of = {"study": np.frombuffer(study.digest, np.uint8), "pair": np.frombuffer(pair, np.uint8)}
    np.savez(content, **of, **arrays)  # type: ignore[arg-type]  # the stub takes the names for allow_pickle
    return content.getvalue()


def judges_of(
    records: Records, study: DeployedStudy, units: Int64[ndarray, " records"], known: KnownUnits
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


class _Kept:
    """What one seat is asked for later, until it is asked. listed: the pair that the policy names, and whom; None where
    it names none."""

    def __init__(self, path: Path, *, study: DeployedStudy, seat: str, listed: tuple[bytes, frozenset[int]] | None):
        self._path, self._study, self._listed = path, study, listed
        self._weight_units = round(study.roster[study.seats[seat]].weight * study.units)

    def _approved(self) -> tuple[bytes, frozenset[int]]:
        if self._listed is None:
            raise Refused(Code.NO_RECORD_VOTES, "the policy lists nothing that may be asked later")
        return self._listed

    def _arrays(self, *names: str) -> dict[str, ndarray]:
        """What is kept under these names. Raises Refused("no_record_votes") where the policy lists nothing."""
        pair, _ = self._approved()
        arrays = read_arrays(self._path, [*_OF_PAIR, *names], most=_FILE_BYTES)
        if (arrays["study"].tobytes(), arrays["pair"].tobytes()) != (self._study.digest, pair):
            raise self._other()
        return arrays

    def _other(self) -> DataCorrupt:
        return DataCorrupt(f"{self._path} does not hold what was approved with this study's votes")


class KeptResiduals(_Kept):
    """What one seat's records say."""

    def answer(self, model: bytes) -> Sum:
        """The sum of residuals of these scores. Raises DataUnavailable, DataCorrupt for what is kept; InvalidInput,
        DataCorrupt for the scores; Refused("no_record_votes") where the policy lists nothing."""
        arrays, sums = self._arrays(*_SAID), unit_sums(self._study)
        first = FirstScores.from_bytes(model, rows=sums.queries, classes=self._study.classes)
        said, *others = (arrays[name] for name in _SAID)
        whole = {each.dtype.str for each in (said, *others)} == {"<i8"} and said.shape[1:] == (1 + sums.queries,)
        if not (whole and {each.shape for each in others} == {said.shape[:1]}):
            raise self._other()
        held = SaidAgain(*(each.astype(np.int64) for each in (said, *others)))
        return residual_sum(
            first,
            held.said,
            held.units,
            weight_units=self._weight_units,
            known_at=held.known_at if sums.declared else None,
        )


class KeptJudges(_Kept):
    """One seat's judges."""

    def answer(self, model: bytes) -> Int64[ndarray, "rows classes"]:
        """The sum of what they say of a model. Raises DataUnavailable, DataCorrupt for what is kept; InvalidInput,
        DataCorrupt for the model; Refused("no_record_votes") where the policy lists nobody."""
        held, sums = self._read(), unit_sums(self._study)
        scored = ScoredModel.from_bytes(model)
        terms = self._study.terms
        if scored.features is not None and scored.features.input_shape != terms.input_shape:
            raise InvalidInput(
                f"the model sees records of {scored.features.input_shape}; allowed: {terms.input_shape}, the study's"
            )
        known = np.isin(held.digests, np.array(sorted(self._approved()[1]), np.int64))
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
            weight_units=self._weight_units,
            signed=sums.signed,
            known_at=held.known_at if sums.declared else None,
            thresholds=scored.thresholds,
        )
        return found.reshape(sums.rows_again, self._study.classes)

    def _read(self) -> Judges:
        arrays = self._arrays("runs", "inputs", *_JUDGED)
        whole = [arrays[name] for name in _JUDGED]
        inputs, findings = arrays["inputs"], len(self._study.findings)
        kinds = {each.dtype.str for each in whole} == {"<i8"} and inputs.dtype.str == "<f4"
        told = (len(inputs), findings) if findings else inputs.shape[:1]
        shapes = whole[0].shape == told and {each.shape for each in whole[1:]} == {inputs.shape[:1]}
        if not (kinds and shapes and arrays["runs"].shape == (1,)):
            raise self._other()
        labels, units, known_at, digests = (each.astype(np.int64) for each in whole)
        return Judges(inputs, labels, units, known_at, digests, int(arrays["runs"][0]))
