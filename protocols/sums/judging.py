"""Judges: units that are kept from voting, and then say how the study's model does on them, in a second noisy sum.

A hash of the terms' key and of a unit's id alone, each unit by itself, decides whether it votes or judges. So no unit
does both, and both sums together are one charge (docs/explanation/mathematics.md, section 2.5).

What a judge says has one row for each *decision* (class that the model names), and `bins` rows for each class that is
scored: of two classes the second, of more each. A record fills the cell of the decision and its label, with half of the
squared norm, and in the rows of each scored class the cell of the bin of its probability: column 1 if it is of that
class, else 0; of two classes these are the labels themselves. A unit says the mean over its records, so that each
counts the same. No entry is below 0.

Of several findings each is judged as a label of two classes, with its part of the squared norm and the model's own
threshold; of one that is not known a record says nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt, sqrt

import numpy as np
from jaxtyping import Bool, Float64, Int64
from numpy import ndarray

from protocols.errors import InvalidInput
from protocols.ranges import check
from protocols.sums.contributions import most_hospitals

# The logit of the outermost edges of an endless number of bins: probabilities of rare classes are told apart, too.
_REACH = 4.5
_KEY_BYTES = 32
_OF_TWO = 2
LEAST_SHARE, MOST_SHARE = 0.05, 0.5


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What the terms fix about judges.

    share: of the units that judge, in expectation, 0.05 to 0.5; key: 64 hexadecimal digits, public, drawn before
    anybody looks at data, the same for the whole study; bins: of a probability; rows: of what a judge says, see
    `rows_of`; threshold: from which probability of the second of two classes on it is the model's decision; of more
    classes the likeliest is, and the threshold 0.5, as of several findings. Raises InvalidInput, with the value and the
    allowed range.
    """

    share: float
    key: str
    bins: int
    rows: int
    threshold: float

    def __post_init__(self) -> None:
        check("study", "evaluation.bins", self.bins)
        check("study", "evaluation.rows", self.rows)
        if not LEAST_SHARE <= self.share <= MOST_SHARE:
            raise InvalidInput(f"evaluation: share is {self.share}; allowed: {LEAST_SHARE} to {MOST_SHARE}")
        if not 0 < self.threshold < 1:
            raise InvalidInput(f"evaluation: threshold is {self.threshold}; allowed: in (0, 1)")
        if len(self.key) != 2 * _KEY_BYTES or set(self.key) - set("0123456789abcdef"):
            raise InvalidInput(f"evaluation: key is {self.key[:80]!r}; allowed: 64 hexadecimal digits")

    @staticmethod
    def of(*, share: float, key: bytes, bins: int, classes: int, threshold: float, findings: int = 0) -> Evaluation:
        """The terms for so many classes; or columns of a sum of so many findings."""
        rows = _rows_of(bins=bins, classes=classes, findings=findings)
        return Evaluation(share=share, key=key.hex(), bins=bins, rows=rows, threshold=threshold)

    @property
    def drafted(self) -> bool:
        """Whether it is what an operator writes before `study queries` draws a key."""
        return set(self.key) == {"0"}

    def check(self, classes: int, findings: int = 0) -> None:
        """Raises InvalidInput unless it is for so many classes, or findings; a draft's rows are not known yet."""
        rows = _rows_of(bins=self.bins, classes=classes, findings=findings)
        if not self.drafted and self.rows != rows:
            raise InvalidInput(f"evaluation: rows is {self.rows}; allowed for {classes} classes: {rows}")
        if (classes > 2 or findings) and self.threshold != 0.5:
            what = f"{findings} findings, as the model has its own" if findings else f"{classes} classes"
            raise InvalidInput(f"evaluation: threshold is {self.threshold}; allowed for {what}: 0.5")

    def judges(self, ids: Sequence[str]) -> Bool[ndarray, " units"]:
        """Which units judge: each by the key and its own id alone, whoever else there is."""
        key, below = bytes.fromhex(self.key), int(self.share * 2.0**64)
        hashes = (hashlib.sha256(b"conclave judge 1\n" + key + each.encode()).digest()[:8] for each in ids)
        return np.array([int.from_bytes(each, "big") < below for each in hashes], dtype=bool)

    @property
    def edges(self) -> Float64[ndarray, " edges"]:
        """Where one bin of probabilities ends and the next begins: evenly spaced logits, as rounded here."""
        logits = _REACH * (2.0 * np.arange(1, self.bins) / self.bins - 1.0)
        return np.round(1.0 / (1.0 + np.exp(-logits)), 6)

    def decisions(self, probabilities: Float64[ndarray, "records classes"]) -> Int64[ndarray, " records"]:
        """The class that the model names for each record."""
        return decisions(probabilities, self.threshold)


def decisions(probabilities: Float64[ndarray, "records classes"], threshold: float) -> Int64[ndarray, " records"]:
    """The class that is named: of two the second from the threshold on, of more the likeliest."""
    if probabilities.shape[1] == _OF_TWO:
        return (probabilities[:, 1] >= threshold).astype(np.int64)
    return probabilities.argmax(axis=1).astype(np.int64)


def usual_score_bins(judges: float) -> int:
    """The bins for so many judges, nominally: 6 to 20, an even number, so that one half is an edge."""
    return min(max(2 * round(judges**0.5 / 4), 6), 20)


def scored(classes: int) -> list[int]:
    """The classes whose probabilities are told: the second of two, all of more."""
    return [1] if classes == 2 else list(range(classes))


def _rows_of(*, bins: int, classes: int, findings: int = 0) -> int:
    """How many rows a judge's matrix has; it has a column for each class, or one or two for each finding."""
    if findings:
        return findings * _OF_TWO * (_OF_TWO + bins) // classes
    return classes + len(scored(classes)) * bins


def cells_of(classes: int, findings: int = 0) -> int:
    """How many cells a record fills."""
    return findings * (1 + len(scored(_OF_TWO))) if findings else 1 + len(scored(classes))


def apart(sums: Float64[ndarray, "rows classes"], findings: int) -> Float64[ndarray, "findings told 2"]:
    """What judges say of each finding, as of a label of two classes, of the matrix of all."""
    return sums.reshape(findings, -1, _OF_TWO)


def judge_weight(weight_units: int, *, signed: bool) -> int:
    """The norm of what a judge says in whole units: of the weight; sqrt 2 times where votes have signs, as replacing a
    voter then moves the sum by 2, and a judge, who has none, by sqrt 2."""
    return isqrt(2 * weight_units**2) if signed else weight_units


def _sizes_of(weight: int, classes: int, told: int) -> tuple[int, int]:
    """The entries of a record in the cell of its decision and in those of its probabilities: squares up to weight^2
    over the number of labels that are told."""
    return isqrt(weight**2 // (2 * told)), isqrt(weight**2 // (2 * len(scored(classes)) * told))


def scales_of(*, signed: bool, classes: int, told: int = 1) -> tuple[float, float]:
    """The same of one vote, not rounded."""
    norm = sqrt(2.0 / told) if signed else sqrt(1.0 / told)
    return norm * sqrt(0.5), norm * sqrt(0.5 / len(scored(classes)))


def judged(
    evaluation: Evaluation,
    probabilities: Float64[ndarray, "records classes"],
    labels: Int64[ndarray, "records *findings"],
    units: Int64[ndarray, " records"] | None,
    *,
    weight_units: int,
    signed: bool,
    known_at: Int64[ndarray, " records"] | None = None,
    thresholds: Sequence[float] = (),
) -> Int64[ndarray, "rows columns"]:
    """The sum of what a party's judges say, in lattice units; of several findings what they say of one below that of
    another, which `apart` takes apart again, as the study's rows and columns are only another shape of it.

    probabilities: of the model, for the judges' records; a record with one that is not finite, or of no class, says
    nothing. units: the number of each record's unit; None: each is one of its own. weight_units: of the party's votes,
    of whose units no judge weighs more than `judge_weight`: a unit says floor(count size / records) in each cell, so
    its norm is at most the largest of its records' norms. known_at: as in contribution_sum, a part of that. thresholds:
    of the model, for several findings, of which probabilities and labels have a column each.
    """
    weight, told = judge_weight(weight_units, signed=signed), len(thresholds)
    if not told:
        return _judged(evaluation, probabilities, labels, units, evaluation.threshold, weight=weight, known_at=known_at)
    found = [
        _judged(
            evaluation, np.stack([1.0 - chance, chance], axis=1), of, units, threshold, weight=weight,
            known_at=known_at, told=told,
        )
        for chance, of, threshold in zip(probabilities.T, labels.T, thresholds, strict=True)
    ]  # fmt: skip
    return np.concatenate(found)


def _judged(
    evaluation: Evaluation, probabilities: Float64[ndarray, "records classes"], labels: Int64[ndarray, " records"],
    units: Int64[ndarray, " records"] | None, threshold: float, *, weight: int,
    known_at: Int64[ndarray, " records"] | None, told: int = 1,
) -> Int64[ndarray, "rows classes"]:  # fmt: skip
    """What judges say of one label, or one finding of as many as are told."""
    classes = probabilities.shape[1]
    sizes = _sizes_of(weight, classes, told)
    member = np.arange(len(labels)) if units is None else np.unique(units, return_inverse=True)[1]
    held = np.bincount(member, minlength=1)
    if known_at is not None:
        held = held[: member.max(initial=-1) + 1] * most_hospitals(known_at, member)
    known = np.isfinite(probabilities).all(axis=1) & (labels >= 0) & (labels < classes)
    shown, of, member = probabilities[known], labels[known], member[known]
    cells = [decisions(shown, threshold) * classes + of]
    bins = np.searchsorted(evaluation.edges, shown, side="right")
    for block, which in enumerate(scored(classes)):
        cells.append((classes + block * evaluation.bins + bins[:, which]) * classes + (of == which))
    rows = _rows_of(bins=evaluation.bins, classes=classes)
    count = rows * classes
    total = np.zeros(count, dtype=np.int64)
    for position, cell in enumerate(cells):
        touched, often = np.unique(member * count + cell, return_counts=True)
        unit, at = np.divmod(touched, count)
        np.add.at(total, at, often * sizes[min(position, 1)] // held[unit])
    return total.reshape(rows, classes)
