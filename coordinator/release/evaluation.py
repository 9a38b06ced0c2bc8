"""What judges say of a student: the model that they are asked about, and what a release says of their answer.

The answer is a noisy sum, so everything made of it is free. A release has it in evaluation.json, with the figures that
follow; `verify` makes these again, and that the judges of this request judged this very student.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final  # Any: parsed JSON, checked below

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from coordinator.release.evidence import ReleaseEvidence
from coordinator.students.student import ONNX_FILE
from protocols.errors import DataCorrupt, InvalidInput, Refused
from protocols.features.feature_map import FeatureMap, read_features
from protocols.features.scored_model import ScoredModel
from protocols.labelling.coordinator import AGAIN, SecondSum
from protocols.plural import counted
from protocols.reading import read_bytes, read_json
from protocols.refusals.code import Code
from protocols.release.manifest import STUDENT_FEATURES_FILE
from protocols.release.sums import EVALUATION_FILE, read_again
from protocols.study.deployed import DeployedStudy
from protocols.study.queries import QueryBatch, no_inputs
from protocols.study.released_noise import noise_in
from protocols.study.votes import unit_sums
from protocols.sums.judged import Judged, PoolBins, by_finding, judged_rows, summed_judgements
from protocols.sums.judging import apart
from protocols.wire.messages import VoteRequest
from runtime.board import Accuracy
from runtime.files import write_atomically

_ONNX_BYTES: Final = 2**31
# Probabilities of another machine may differ a little.
_SAME_CHANCE: Final = 1e-3
_REQUIRED: Final = re.compile(r"\s*([a-z_]+)(?: of (.+?))?\s*(>=|<=)\s*([0-9.]+)\s*")
_WHOLE: Final = ("accuracy", "brier", "calibration_error")
_OF_CLASS: Final = ("sensitivity", "specificity", "auroc")


def keep_model(path: Path, made: bytes, pool: Float32[ndarray, "queries ..."], *, classes: int) -> None:
    """Keeps the one model of a study that judges are asked about, or the one that is kept already, if it is the same:
    an exporter may name things otherwise each time. Raises Refused for another one."""
    if not path.exists():
        return write_atomically(path, made)
    kept = ScoredModel.from_bytes(read_bytes(path, most=2 * _ONNX_BYTES))
    known = kept.probabilities(np.asarray(pool), classes=classes)
    if not np.allclose(known, ScoredModel.from_bytes(made).probabilities(np.asarray(pool), classes=classes), atol=1e-6):
        raise Refused(
            Code.BATCH_REUSED,
            "judges are asked about another student already; allowed: that one alone, as they answer once",
        )


@dataclass(frozen=True, eq=False)
class ReleasedEvaluation:
    """What is released of judges. run: of the coordinator's ledger, which the request names; counted: the seats whose
    sum is in it; sums: as SecondSum.cells; pool: what the model gives on the pool, of each finding or the one label."""

    run: bytes
    counted: tuple[str, ...]
    sums: Int64[ndarray, "rows classes"] = field(repr=False)
    pool: tuple[PoolBins, ...] = field(repr=False)

    @staticmethod
    def of(
        study: DeployedStudy, judgement: SecondSum, model: bytes, pool: Float32[ndarray, "queries ..."], *, run: bytes
    ) -> ReleasedEvaluation:
        """Of a model that was judged, which gives its probabilities for the pool once more. Raises as it does."""
        assert judgement.cells is not None  # it was released
        counted = [seat.party for seat, of in zip(study.roster, judgement.counted.tolist(), strict=True) if of]
        return ReleasedEvaluation(run, tuple(counted), judgement.cells, bins_of(study, model, pool))

    def hospitals(self, study: DeployedStudy) -> dict[str, list[Judged]]:
        """What each counted seat's judges said of each finding, or the one label, where votes are clear; else
        nothing."""
        rows_of_seat = unit_sums(study).rows_again
        if len(self.sums) == rows_of_seat:
            return {}
        parts = dict(zip(study.seats, np.split(self.sums, len(study.roster)), strict=True))
        return {seat: self._judged(study, parts[seat], unit_sums(study).sigma) for seat in self.counted}

    def total(self, study: DeployedStudy) -> list[Judged]:
        """What all of them said of each finding, or the one label."""
        seats = self.hospitals(study)
        if seats:
            return [summed_judgements(list(of_seats)) for of_seats in zip(*seats.values(), strict=True)]
        return self._judged(study, self.sums, noise_in(study, voted=len(self.counted)))

    def _judged(self, study: DeployedStudy, sums: Int64[ndarray, "rows classes"], noise: float) -> list[Judged]:
        votes, heaviest = unit_sums(study), max(float(study.weights[study.seats[seat]]) for seat in self.counted)
        assert votes.evaluation is not None  # judges were asked
        told = len(self.pool)
        tables = apart(sums / study.units, told) if study.findings else [sums / study.units]
        return [
            Judged.of(
                votes.evaluation, table, noise=noise, signed=votes.signed, heaviest=heaviest, pool=pool, told=told
            )
            for table, pool in zip(tables, self.pool, strict=True)
        ]  # fmt: skip

    def to_json(self, study: DeployedStudy) -> dict[str, Any]:
        """As evaluation.json has it."""
        total, seats, names = self.total(study), self.hospitals(study), study.findings
        heard = {seat: [each for each in of if each.says_something()] for seat, of in seats.items()}
        return {
            "run": self.run.hex(),
            "counted": list(self.counted),
            "figures": by_finding(names, [each.figures() for each in total]),
            "hospitals": {
                seat: by_finding(names, [each.accuracy.plain for each in of])
                for seat, of in seats.items()
                if len(heard[seat]) == len(of)
            },
            "calibrated": by_finding(names, [each.calibrated().tolist() for each in total]),
            "pool": by_finding(
                names, [{"means": each.means.tolist(), "ahead": each.ahead.tolist()} for each in self.pool]
            ),
            "sums": self.sums.tolist(),
        }

    def accuracy(self, study: DeployedStudy) -> list[Accuracy]:
        """The share of units that the model is right for, with the ends of its 95 % interval; of each finding."""
        names = [f"it is right about {name}" for name in study.findings] or ["the model is right"]
        found = (each.figures()["accuracy"] for each in self.total(study))
        return [Accuracy(name, "together", *each) for name, each in zip(names, found, strict=True)]

    def rows(self, study: DeployedStudy) -> list[tuple[str, str]]:
        """The figures for a person."""
        figures = by_finding(study.findings, [each.figures() for each in self.total(study)])
        return judged_rows(figures, study.terms.class_names, study.findings)


def read_evaluation(folder: Path, study: DeployedStudy) -> ReleasedEvaluation | None:
    """What evaluation.json holds, without the figures, which follow from it; None where there is none. Raises
    DataCorrupt."""
    sums = None if study.votes.residuals else read_again(folder, study)
    if sums is None:
        return None
    terms = unit_sums(study).evaluation
    try:
        values = read_json(folder / EVALUATION_FILE)
        if terms is None:
            raise ValueError("the study has no judges")
        run, counted_seats = bytes.fromhex(values["run"]), tuple(map(str, values["counted"]))
        said = [values["pool"][name] for name in study.findings] if study.findings else [values["pool"]]
        pool = tuple(_pool_bins(each, terms.bins) for each in said)
        ordered = tuple(seat for seat in study.seats if seat in counted_seats)
        if counted_seats != ordered or len(ordered) < study.quorum or len(run) > 64:
            raise ValueError(f"{len(counted_seats)} seats are counted, in a run of {len(run)} bytes")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataCorrupt(f"{EVALUATION_FILE} cannot be read: {error!r:.200}") from None
    return ReleasedEvaluation(run, counted_seats, sums, pool)


def _pool_bins(said: Mapping[str, Any], bins: int) -> PoolBins:
    """Raises KeyError, TypeError, ValueError."""
    means, ahead = (np.array([float(x) for x in said[name]]) for name in ("means", "ahead"))
    within = ((means >= 0) & (means <= 1) & (ahead >= 0) & (ahead <= 1)).all()
    if not (means.shape == ahead.shape == (bins,) and within):
        raise ValueError("the bins of the pool are not those of the study")
    return PoolBins(means, ahead)


def bins_of(study: DeployedStudy, model: bytes, pool: Float32[ndarray, "queries ..."]) -> tuple[PoolBins, ...]:
    """What a model gives on the pool, bin by bin, of each finding or the one label."""
    evaluation = unit_sums(study).evaluation
    assert evaluation is not None  # judges were asked
    given = ScoredModel.from_bytes(model).probabilities(np.asarray(pool), classes=study.labelled.said)
    known = given[np.isfinite(given).all(axis=1)]
    each = [np.stack([1.0 - chance, chance], axis=1) for chance in known.T] if study.findings else [known]
    return tuple(PoolBins.of(evaluation, chances) for chances in each)


def model_in(folder: Path, student: Mapping[str, Any]) -> bytes:
    """The student of a release as judges score it. student: its figures."""
    features: FeatureMap | None = None
    if (folder / STUDENT_FEATURES_FILE).exists():
        features = read_features(folder / STUDENT_FEATURES_FILE, None)
    content, classes = read_bytes(folder / ONNX_FILE, most=_ONNX_BYTES), tuple(student["classes"])
    return ScoredModel(content, classes, features, tuple(student["thresholds"])).to_bytes()


def request_about(study: DeployedStudy, model: bytes, *, run: bytes) -> str:
    """The digest of the request in which judges are asked about a model, in hexadecimal digits."""
    votes = unit_sums(study)
    ids = np.arange(votes.queries, study.query_limit)
    batch = QueryBatch(AGAIN, ids, no_inputs(len(ids)), model)
    return VoteRequest(study.digest, run, batch).digest.hex()


def check_judges(
    folder: Path,
    study: DeployedStudy,
    found: ReleasedEvaluation | None,
    evidence: ReleaseEvidence,
    told: Mapping[str, bool | None],
    student: Mapping[str, Any],
    pool: Float32[ndarray, "queries ..."] | None,
) -> tuple[str, bool]:
    """Raises DataCorrupt unless the judges of this request judged this student, and what they said is released; returns
    what was found, and whether all was checked. told: of the seats that signed what they were told about it, whether a
    guardian says that their judges were counted, None without one; student: its figures, none without one; pool: None
    where not at hand."""
    asked = evidence.charges[AGAIN] if len(evidence.charges) > AGAIN else None
    said = asked is not None and asked.settled is not None
    if found is None:
        if said and student:
            raise DataCorrupt(f"judges were asked about a student, and the release has no {EVALUATION_FILE}")
        return "nobody judged", True
    if not student or asked is None or not said:
        raise DataCorrupt(f"{EVALUATION_FILE} is released, but no judges answered about a student")
    model = model_in(folder, student)
    if asked.request != request_about(study, model, run=found.run):
        raise DataCorrupt(f"judges were asked about another model than {ONNX_FILE}, or in another study")
    counted_by = {seat for seat, of in told.items() if of is not False}
    if not counted_by <= set(found.counted) or {seat for seat, of in told.items() if of is False} & set(found.counted):
        raise DataCorrupt(f"{EVALUATION_FILE} counts judges of {list(found.counted)}; receipts say otherwise")
    said_of = f"judges of {counted(len(found.counted), 'seat')} judged this very student, once"
    if pool is None or find_spec("onnxruntime") is None:
        return f"{said_of}; its probabilities on the pool were not made again", False
    again = bins_of(study, model, pool)
    pairs = [pair for new, old in zip(again, found.pool, strict=True)
             for pair in ((new.means, old.means), (new.ahead, old.ahead))]  # fmt: skip
    worst = max(np.abs(new - old).max() for new, old in pairs)
    if worst > _SAME_CHANCE:
        raise DataCorrupt(f"{EVALUATION_FILE} has other probabilities of the pool than {ONNX_FILE}, by {worst:.3g}")
    return said_of, True


def check_required(
    required: Sequence[str], figures: Mapping[str, Any] | None, class_names: Sequence[str], findings: Sequence[str] = ()
) -> None:
    """Raises Refused("not_good_enough") unless each requirement holds with its whole interval, InvalidInput for one
    that cannot be read: FIGURE>=NUMBER or FIGURE<=NUMBER; the figures of a class are FIGURE of CLASS, and all those of
    a finding FIGURE of FINDING.
    """
    named = findings or class_names
    for text in required:
        found = _REQUIRED.fullmatch(text)
        name, of, sign, bound = found.groups() if found else ("", None, "", "")
        if not found or name not in (*_WHOLE, *_OF_CLASS) or not _is_told(name, of, named, of_findings=bool(findings)):
            each = ("", "finding", f"auroc of {named[0]}") if findings else (", or", "class", "accuracy")
            raise InvalidInput(
                f"--require is {text!r}; allowed: {', '.join(_WHOLE)}{each[0] or ','} {', '.join(_OF_CLASS)} of a "
                f"{each[1]} ({', '.join(named)[:300]}), then >= or <=, and a number, as '{each[2]}>=0.75'"
            )
        if figures is None:
            raise Refused(Code.NOT_GOOD_ENOUGH, f"{text}: nobody judged the student; run evaluate first")
        told = figures[str(of)] if findings else figures
        at = class_names.index(of) if of is not None and not findings else 1
        shown = told[name] if name in _WHOLE else told["by_class"][at].get(name)
        if shown is None:
            raise InvalidInput(f"--require is {text!r}; allowed: a class that is scored, such as {class_names[1]}")
        value, low, high = shown
        if not (low >= float(bound) if sign == ">=" else high <= float(bound)):
            raise Refused(
                Code.NOT_GOOD_ENOUGH,
                f"{text.strip()}: judges say {value:.3f}, and with 95 % {low:.3f} to {high:.3f}, not all of which is "
                f"{sign} {float(bound):g}; nothing was released",
            )


def _is_told(name: str, of: str | None, named: Sequence[str], *, of_findings: bool) -> bool:
    if of_findings:
        return of in named
    return of is None or (name in _OF_CLASS and of in named)
