"""Whether a model's probabilities are true: expected calibration error, Brier score, the bins of a reliability plot.

A model is calibrated where, of the records that it is sure of to 0.8, eight in ten are right. The expected calibration
error is that of Guo et al. 2017, "On Calibration of Modern Neural Networks", eq. 3, with bins of equal mass in place of
equal width, as Nixon et al. 2019, "Measuring Calibration in Deep Learning", advise: no bin is of few records. It is not
0 for a calibrated model, as each bin's accuracy is a mean of few records.

The figures of every group of test records, of a run's students and the pooled model, and which group pays most.

What privacy costs a group: the accuracy of the pooled model without privacy minus the student's, on its records.

Private training costs small and difficult groups more (Bagdasaryan, Poursaeed and Shmatikov 2019, "Differential Privacy
Has Disparate Impact on Model Accuracy"); PATE does, too, less than DP-SGD in the experiments of Uniyal et al. 2021,
"DP-SGD vs PATE: Which Has Less Disparate Impact on Model Accuracy?".

Both models are scored on the same records, so the difference is a mean over records. Its interval is a percentile
bootstrap (Efron and Tibshirani 1993, section 13.3) that draws records, and seeds where there are several, each with
replacement (the pigeonhole bootstrap of Owen 2007, "The Pigeonhole Bootstrap"). Seeds are drawn once for all groups, so
that groups are compared in the same worlds. With one seed it covers the choice of test records alone. Where patients
are named they are drawn, with all of their records; and a share's interval is that of so many independent records as
vary as much (the effective sample size of Korn and Graubard 1998, "Confidence Intervals for Proportions").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64
from numpy import ndarray

from party.teachers.scores import wilson
from simulations.datasets.groups import Grouping

MOST_BINS = 15
# Fewer bins where one would have fewer records than this.
_RECORDS_PER_BIN = 20


@dataclass(frozen=True, eq=False)
class Calibration:
    """error: the expected calibration error, in [0, 1]; brier: in [0, 2]; per bin, from the least sure to the surest:
    its records, their mean confidence (of the named class) and the share of them that is right.
    """

    error: float
    brier: float
    records: Int64[ndarray, " bins"]
    confidence: Float64[ndarray, " bins"]
    accuracy: Float64[ndarray, " bins"]


def calibration(probabilities: Float32[ndarray, "records classes"], labels: Int64[ndarray, " records"]) -> Calibration:
    """The calibration of a model on these records, of which there is at least one.

    Up to 15 bins of equal mass, up to one record; records of equal confidence stay in their order.
    """
    sure = probabilities.max(axis=1).astype(np.float64)
    right = probabilities.argmax(axis=1) == labels
    bins = max(1, min(MOST_BINS, len(labels) // _RECORDS_PER_BIN))
    parts = np.array_split(np.argsort(sure, kind="stable"), bins)
    records = np.array([len(part) for part in parts], np.int64)
    confidence = np.array([sure[part].mean() for part in parts])
    accuracy = np.array([right[part].mean() for part in parts])
    error = float((records / len(labels)) @ np.abs(accuracy - confidence))
    return Calibration(error, float(brier_terms(probabilities, labels).mean()), records, confidence, accuracy)


def brier_terms(
    probabilities: Float32[ndarray, "records classes"], labels: Int64[ndarray, " records"]
) -> Float64[ndarray, " records"]:
    """Each record's squared distance from the truth, in [0, 2]; their mean is the Brier score (Brier 1950, over all
    classes)."""
    truth = np.zeros(probabilities.shape)
    truth[np.arange(len(labels)), labels] = 1.0
    squares: Float64[ndarray, " records"] = ((probabilities.astype(np.float64) - truth) ** 2).sum(axis=1)
    return squares


# A share of fewer records is not a percentage worth comparing.
FEWEST = 20
_LEVEL = 0.95


@dataclass(frozen=True)
class GroupFigures:
    """The figures of one group; shares in [0, 1], means over the seeds.

    accuracy: of the student, with Wilson's interval, which covers the choice of test records and not the noise (a mean
    over seeds varies at most as much between records as one seed does, so the interval is not too short); confidence
    and brier: of the student. pooled and cost: None without a pooled model; computed from private records.
    """

    attribute: str
    group: str
    records: int
    accuracy: float
    low: float
    high: float
    confidence: float
    brier: float
    pooled: float | None
    cost: CostOfPrivacy | None


@dataclass(frozen=True)
class PaysMost:
    """The group of at least FEWEST records for which privacy costs most.

    excess: its cost minus that of the other records, with an interval for the largest of `compared` groups (Bonferroni:
    each has the level 1 - 0.05 / compared). rest: the cost of the other records.
    """

    figures: GroupFigures
    rest: float
    excess: CostOfPrivacy
    compared: int


@dataclass(frozen=True, eq=False)
class ByGroup:
    """What a run's students do on each group of the test records. calibrations: of each seed's student that was
    trained, the first seed's first; pooled and cost: of the pooled model, on all test records; pays_most: None without
    it, or without two groups of at least FEWEST records; independent: how many independent records tell as much of the
    student as the test records, of which a patient may have several.
    """

    groups: tuple[GroupFigures, ...]
    calibrations: tuple[Calibration, ...]
    pooled: Calibration | None
    cost: CostOfPrivacy | None
    pays_most: PaysMost | None
    independent: float


def by_group(
    groupings: Sequence[Grouping],
    students: Sequence[Float32[ndarray, "test classes"]],
    pooled: Float32[ndarray, "test classes"] | None,
    labels: Int64[ndarray, " test"],
    *,
    patients: Int64[ndarray, " test"] | None = None,
) -> ByGroup:
    """The figures of all groups. students: the probabilities of each seed's student, at least one; pooled: those of the
    model of all private records without privacy; patients: whose each record is, None where no two are one patient's.
    """
    whose = np.arange(len(labels)) if patients is None else patients
    right = np.array([each.argmax(axis=1) == labels for each in students])
    sure = np.array([each.max(axis=1) for each in students], np.float64).mean(axis=0)
    brier = np.array([brier_terms(each, labels) for each in students]).mean(axis=0)
    without = None if pooled is None else pooled.argmax(axis=1) == labels
    replicates = Replicates(len(students))
    found, excesses = [], []
    for grouping in groupings:
        for number, name in enumerate(grouping.names):
            of = grouping.member == number
            found.append(_figures(grouping.attribute, name, of, right, sure, brier, without, whose, replicates))
            if without is not None and min(of.sum(), (~of).sum()) >= FEWEST:
                excesses.append((found[-1], of))
    most = None if without is None or not excesses else _pays_most(excesses, right, without, whose, replicates)
    return ByGroup(
        tuple(found),
        tuple(calibration(each, labels) for each in students),
        None if pooled is None else calibration(pooled, labels),
        None if without is None else _cost(without, right, whose, Replicates(len(students))),
        most,
        _independent(right.mean(axis=0), whose),
    )


def _figures(
    attribute: str,
    name: str,
    of: Bool[ndarray, " test"],
    right: Bool[ndarray, "seeds test"],
    sure: Float64[ndarray, " test"],
    brier: Float64[ndarray, " test"],
    without: Bool[ndarray, " test"] | None,
    whose: Int64[ndarray, " test"],
    replicates: Replicates,
) -> GroupFigures:
    accuracy, records = float(right[:, of].mean()), int(of.sum())
    low, high = wilson(accuracy, _independent(right[:, of].mean(axis=0), whose[of]))
    cost = None if without is None else _cost(without[of], right[:, of], whose[of], replicates)
    return GroupFigures(
        attribute, name, records, accuracy, low, high, float(sure[of].mean()), float(brier[of].mean()),
        None if without is None else float(without[of].mean()), cost,
    )  # fmt: skip


def _independent(right: Float64[ndarray, " records"], whose: Int64[ndarray, " records"]) -> float:
    """How many independent records vary as much as these, of which a patient has several: as many, at most."""
    patient, wrong = np.unique(whose, return_inverse=True)[1], right - right.mean()
    alone, together = (wrong**2).sum(), (np.bincount(patient, wrong) ** 2).sum()
    if not alone:
        return float(patient.max() + 1)
    return len(right) * min(1.0, float(alone / together)) if together else float(len(right))


def _cost(
    without: Bool[ndarray, " records"],
    right: Bool[ndarray, "seeds records"],
    whose: Int64[ndarray, " records"],
    replicates: Replicates,
) -> CostOfPrivacy:
    return CostOfPrivacy(cost_of(without, right), *between(replicates.of(without, right, whose), level=_LEVEL))


def _pays_most(
    compared: Sequence[tuple[GroupFigures, Bool[ndarray, " test"]]],
    right: Bool[ndarray, "seeds test"],
    without: Bool[ndarray, " test"],
    whose: Int64[ndarray, " test"],
    replicates: Replicates,
) -> PaysMost:
    figures, of = max(compared, key=lambda each: cost_of(without[each[1]], right[:, each[1]]))
    own, rest = cost_of(without[of], right[:, of]), cost_of(without[~of], right[:, ~of])
    drawn = replicates.of(without[of], right[:, of], whose[of])
    drawn -= replicates.of(without[~of], right[:, ~of], whose[~of])
    ends = between(drawn, level=1 - (1 - _LEVEL) / len(compared))
    return PaysMost(figures, rest, CostOfPrivacy(own - rest, *ends), len(compared))


REPLICATES = 4000


@dataclass(frozen=True)
class CostOfPrivacy:
    """A difference of accuracies in [-1, 1], with the ends of its interval."""

    value: float
    low: float
    high: float


class Replicates:
    """Bootstrap replicates of costs: the same seeds for every group. Deterministic in what it is given."""

    def __init__(self, seeds: int) -> None:
        self._rng = np.random.default_rng([*b"the cost of privacy", seeds])
        self._seed_shares = self._rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=REPLICATES) / seeds

    def of(
        self,
        pooled: Bool[ndarray, " records"],
        students: Bool[ndarray, "seeds records"],
        whose: Int64[ndarray, " records"],
    ) -> Float64[ndarray, " replicates"]:
        """The cost in each replicate, of at least one record. pooled, students: whether each model is right; whose: the
        patient of each record."""
        patient = np.unique(whose, return_inverse=True)[1]
        right = np.vstack([np.ones_like(pooled), pooled, students])
        patients = np.stack([np.bincount(patient, each) for each in right], axis=1)
        # Patients whom all models get alike are drawn together: what counts is how many of each kind are drawn.
        kinds, times = np.unique(patients, axis=0, return_counts=True)
        if (right == right[:, :1]).all():
            # A bootstrap of records that are all alike has no spread. With half a record of each kind that is next to
            # theirs, the ends lie where the rule of three has them (Hanley and Lippman-Hand 1983).
            _, first, *rest = right[:, 0]
            kinds = np.array([[1, first, *rest], [1, ~first, *rest], [1, first, *~np.array(rest)]], np.float64)
            times = np.array([len(patients), 0.5, 0.5])
        drawn = self._rng.multinomial(len(patients), times / times.sum(), size=REPLICATES)
        drawn = drawn / (drawn @ kinds[:, :1])
        private = np.einsum("rk,ks,rs->r", drawn, kinds[:, 2:], self._seed_shares, optimize=True)
        costs: Float64[ndarray, " replicates"] = drawn @ kinds[:, 1] - private
        return costs


def cost_of(pooled: Bool[ndarray, " records"], students: Bool[ndarray, "seeds records"]) -> float:
    """The cost on these records, of which there is at least one; a mean over seeds."""
    return float(pooled.mean() - students.mean())


def between(replicates: Float64[ndarray, " replicates"], *, level: float) -> tuple[float, float]:
    """The ends of a percentile interval that leaves out `1 - level`, half of it on each side; level: in (0, 1)."""
    low, high = np.quantile(replicates, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
