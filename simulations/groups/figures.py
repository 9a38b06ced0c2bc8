"""The figures of every group of test records, of a run's students and the pooled model, and which group pays most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64
from numpy import ndarray

from party.teachers.scores import wilson
from simulations.datasets.groups import Grouping
from simulations.groups.calibration import Calibration, brier_terms, calibration
from simulations.groups.cost import Cost, Replicates, between, cost_of

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
    cost: Cost | None


@dataclass(frozen=True)
class PaysMost:
    """The group of at least FEWEST records for which privacy costs most.

    excess: its cost minus that of the other records, with an interval for the largest of `compared` groups (Bonferroni:
    each has the level 1 - 0.05 / compared). rest: the cost of the other records.
    """

    figures: GroupFigures
    rest: float
    excess: Cost
    compared: int


@dataclass(frozen=True, eq=False)
class ByGroup:
    """What a run's students do on each group of the test records. calibrations: of each seed's student that was
    trained, the first seed's first; pooled: of the pooled model; pays_most: None without it, or without two groups of
    at least FEWEST records.
    """

    groups: tuple[GroupFigures, ...]
    calibrations: tuple[Calibration, ...]
    pooled: Calibration | None
    pays_most: PaysMost | None


def by_group(
    groupings: Sequence[Grouping],
    students: Sequence[Float32[ndarray, "test classes"]],
    pooled: Float32[ndarray, "test classes"] | None,
    labels: Int64[ndarray, " test"],
) -> ByGroup:
    """The figures of all groups. students: the probabilities of each seed's student, at least one; pooled: those of the
    model of all private records without privacy.
    """
    right = np.array([each.argmax(axis=1) == labels for each in students])
    sure = np.array([each.max(axis=1) for each in students], np.float64).mean(axis=0)
    brier = np.array([brier_terms(each, labels) for each in students]).mean(axis=0)
    without = None if pooled is None else pooled.argmax(axis=1) == labels
    replicates = Replicates(len(students))
    found, excesses = [], []
    for grouping in groupings:
        for number, name in enumerate(grouping.names):
            of = grouping.member == number
            found.append(_figures(grouping.attribute, name, of, right, sure, brier, without, replicates))
            if without is not None and min(of.sum(), (~of).sum()) >= FEWEST:
                excesses.append((found[-1], of))
    most = None if without is None or not excesses else _pays_most(excesses, right, without, replicates)
    return ByGroup(
        tuple(found),
        tuple(calibration(each, labels) for each in students),
        None if pooled is None else calibration(pooled, labels),
        most,
    )


def _figures(
    attribute: str,
    name: str,
    of: Bool[ndarray, " test"],
    right: Bool[ndarray, "seeds test"],
    sure: Float64[ndarray, " test"],
    brier: Float64[ndarray, " test"],
    without: Bool[ndarray, " test"] | None,
    replicates: Replicates,
) -> GroupFigures:
    accuracy, records = float(right[:, of].mean()), int(of.sum())
    low, high = wilson(accuracy, records)
    cost = None
    if without is not None:
        ends = between(replicates.of(without[of], right[:, of]), level=_LEVEL)
        cost = Cost(cost_of(without[of], right[:, of]), *ends)
    return GroupFigures(
        attribute, name, records, accuracy, low, high, float(sure[of].mean()), float(brier[of].mean()),
        None if without is None else float(without[of].mean()), cost,
    )  # fmt: skip


def _pays_most(
    compared: Sequence[tuple[GroupFigures, Bool[ndarray, " test"]]],
    right: Bool[ndarray, "seeds test"],
    without: Bool[ndarray, " test"],
    replicates: Replicates,
) -> PaysMost:
    figures, of = max(compared, key=lambda each: cost_of(without[each[1]], right[:, each[1]]))
    own, rest = cost_of(without[of], right[:, of]), cost_of(without[~of], right[:, ~of])
    drawn = replicates.of(without[of], right[:, of]) - replicates.of(without[~of], right[:, ~of])
    ends = between(drawn, level=1 - (1 - _LEVEL) / len(compared))
    return PaysMost(figures, rest, Cost(own - rest, *ends), len(compared))
