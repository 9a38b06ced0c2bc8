"""How well several findings are told of records that know them: each by itself, and all together (macro and micro)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final  # the values of a JSON object

import numpy as np
import scipy
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.errors import InvalidInput
from protocols.study.findings import NOT_KNOWN, PRESENT

_BINS: Final = 10

_Chances = Float64[ndarray, "records findings"]
Truth = Int64[ndarray, "records findings"]


@dataclass(frozen=True)
class FindingScore:
    """One finding on the records that know it. present: of them, how many have it; auroc: None where all are alike;
    sensitivity, specificity: of what is named, None where no record is of that kind; brier, calibration_error: of the
    probabilities, the latter the mean of |said - seen| over ten bins."""

    name: str
    known: int
    present: int
    auroc: float | None
    sensitivity: float | None
    specificity: float | None
    brier: float
    calibration_error: float


@dataclass(frozen=True)
class FindingsScore:
    """macro: the mean AUROC of the findings that have one; micro: that of all findings of all records together."""

    each: tuple[FindingScore, ...]
    macro: float | None
    micro: float | None

    def lines(self) -> list[str]:
        """The figures for people."""
        rows = [
            f"{each.name}: AUROC {_said(each.auroc)}, finds {_said(each.sensitivity)} of {each.present} with it, "
            f"clears {_said(each.specificity)} of {each.known - each.present} without, calibration error "
            f"{each.calibration_error:.3f}"
            for each in self.each
        ]
        return [f"AUROC macro {_said(self.macro)}, micro {_said(self.micro)}", *rows]

    def words(self) -> str:
        """The same, a line each."""
        return "\n  ".join(self.lines())

    def figures(self) -> dict[str, Any]:
        """For JSON."""
        return {"macro_auroc": self.macro, "micro_auroc": self.micro, "findings": [asdict(each) for each in self.each]}


def findings_score(names: Sequence[str], named: Truth, chances: _Chances, truth: Truth) -> FindingsScore:
    """named: 1 where a finding is said to be there; chances: the probability of each; truth: NOT_KNOWN, 0 or 1. Raises
    InvalidInput where no record knows a finding."""
    known = truth != NOT_KNOWN
    if not known.any():
        raise InvalidInput("no record knows a finding; allowed: at least one to score on")
    rows = [_of(name, named[known[:, at], at], chances[known[:, at], at], truth[known[:, at], at] == PRESENT)
            for at, name in enumerate(names) if known[:, at].any()]  # fmt: skip
    areas = [each.auroc for each in rows if each.auroc is not None]
    return FindingsScore(tuple(rows), float(np.mean(areas)) if areas else None, auroc(chances.ravel(), truth.ravel()))


def _of(name: str, named: ndarray, chances: ndarray, there: ndarray) -> FindingScore:
    said = named == PRESENT
    at = np.minimum((chances * _BINS).astype(np.int64), _BINS - 1)
    gap = np.abs(np.bincount(at, weights=chances - there, minlength=_BINS)).sum() / len(there)
    return FindingScore(
        name, len(there), int(there.sum()), auroc(chances, there.astype(np.int64)),
        float(said[there].mean()) if there.any() else None, float((~said)[~there].mean()) if not there.all() else None,
        float(((chances - there) ** 2).mean()), float(gap),
    )  # fmt: skip


def auroc(scores: Float64[ndarray, " records"], present: Int64[ndarray, " records"]) -> float | None:
    """The probability that a record with the finding scores higher than one without (Hanley & McNeil 1982), ties
    counted half; None where all are alike. Records that are not known count for nothing."""
    scores, present = scores[present != NOT_KNOWN], present[present != NOT_KNOWN] == PRESENT
    some, none = int(present.sum()), int((~present).sum())
    if not (some and none):
        return None
    return float((scipy.stats.rankdata(scores)[present].sum() - some * (some + 1) / 2) / (some * none))


def _said(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}"
