"""What a run writes and says of the groups of test records: summary.json, two tables, and lines for the terminal."""

from __future__ import annotations

import csv
import io
from typing import Any  # the values of a JSON object

import numpy as np

from simulations.groups.calibration import Calibration
from simulations.groups.cost import Cost
from simulations.groups.figures import FEWEST, ByGroup, GroupFigures, PaysMost
from simulations.results.marks import MARK
from simulations.results.text import percent
from simulations.stages.label import mean_and_interval

Row = dict[str, Any]  # Any: JSON

# What is said where a share is of so few records.
FEW = f"fewer than {FEWEST} records"


def groups_summary(found: ByGroup | None) -> list[Row] | None:
    """The student's figures of each group; None without a student."""
    return None if found is None else [_own(each) for each in found.groups]


def calibration_summary(found: ByGroup | None) -> Row | None:
    """The student's calibration, as a mean over the seeds whose student was trained; None without a student."""
    if found is None:
        return None
    error, error_half = mean_and_interval(np.array([each.error for each in found.calibrations]))
    brier, brier_half = mean_and_interval(np.array([each.brier for each in found.calibrations]))
    return {
        "error": error,
        "error_ci95": error_half,
        "brier": brier,
        "brier_ci95": brier_half,
        "bins": len(found.calibrations[0].records),
    }


def baseline_groups(found: ByGroup | None) -> Row:
    """What is computed from private records, and not for release: keys of `baselines`; None without a pooled model."""
    if found is None or found.pooled is None:
        return {"calibration_error": None, "brier": None, "cost_by_group": None, "pays_most": None}
    rows = [
        {"attribute": each.attribute, "group": each.group, "pooled_accuracy": each.pooled, **_cost("cost", each.cost)}
        for each in found.groups
    ]
    return {
        "calibration_error": found.pooled.error,
        "brier": found.pooled.brier,
        "cost_by_group": rows,
        "pays_most": None if found.pays_most is None else _most(found.pays_most),
    }


def _own(each: GroupFigures) -> Row:
    return {
        "attribute": each.attribute,
        "group": each.group,
        "records": each.records,
        "accuracy": each.accuracy,
        "accuracy_low": each.low,
        "accuracy_high": each.high,
        "confidence": each.confidence,
        "brier": each.brier,
        "note": FEW if each.records < FEWEST else "",
    }


def _cost(name: str, cost: Cost | None) -> Row:
    if cost is None:
        return {}
    return {name: cost.value, f"{name}_low": cost.low, f"{name}_high": cost.high}


def _most(most: PaysMost) -> Row:
    return {
        "attribute": most.figures.attribute,
        "group": most.figures.group,
        "records": most.figures.records,
        **_cost("cost", most.figures.cost),
        "cost_of_the_others": most.rest,
        **_cost("excess", most.excess),
        "compared": most.compared,
    }


def groups_table(found: ByGroup) -> str:
    """by_group.csv: one row per group; columns that are not for release say so."""
    rows = []
    for each in found.groups:
        own = _own(each)
        note = own.pop("note")
        private = {"pooled_accuracy": each.pooled, **_cost("cost", each.cost)}
        shown = {} if each.pooled is None else {f"{MARK}{name}": value for name, value in private.items()}
        rows.append({**own, **shown, "note": note})
    return _csv(rows)


def calibration_table(found: ByGroup) -> str:
    """calibration.csv: one row per bin of the first seed's student, from the least sure to the surest."""
    first = found.calibrations[0]
    rows = _bins(first, "")
    if found.pooled is not None:
        rows = [{**own, **other} for own, other in zip(rows, _bins(found.pooled, f"{MARK}pooled_"), strict=True)]
    return _csv([{"bin": number, "records": int(first.records[number]), **row} for number, row in enumerate(rows)])


def _bins(found: Calibration, start: str) -> list[Row]:
    return [
        {f"{start}confidence": sure, f"{start}accuracy": right}
        for sure, right in zip(found.confidence.tolist(), found.accuracy.tolist(), strict=True)
    ]


def _csv(rows: list[Row]) -> str:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def pays_most_words(most: Row, *, seeds: int) -> str:
    """In one sentence: the group for which privacy costs most, as `pays_most` of summary.json says, and whether it may
    be chance. Or that it costs none of them accuracy."""
    if most["cost"] <= 0:
        return f"none of {most['compared']} groups loses accuracy"

    def points(name: str) -> str:
        return f"{100 * most[name]:+.1f}"

    chance = (
        "the difference may be chance"
        if most["excess_low"] <= 0
        else f"more than the choice of {'test records and seeds' if seeds > 1 else 'test records'} explains"
    )
    return (
        f"{most['attribute']} {most['group']}: {points('cost')} points (95 %: {points('cost_low')} to "
        f"{points('cost_high')}; {most['records']:,} test records), the others {points('cost_of_the_others')}: "
        f"{chance}, among {most['compared']} groups"
    )


def share_text(share: float, records: int) -> str:
    """A share as a percentage, with a note where it is of few records."""
    return percent(share) if records >= FEWEST else f"{percent(share)} of only {records}"
