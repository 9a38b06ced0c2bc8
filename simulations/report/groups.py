"""The tables of a report in which the student is told apart by groups of test records."""

from __future__ import annotations

from typing import Any  # rows of a template

from simulations.results.files import Summary
from simulations.results.text import percent, share_text

_MOST_ROWS = 20
Row = dict[str, Any]


def shown_groups(figures: Summary) -> Row | None:
    """A table for each attribute, each with its groups, of many those that pay most; None without a student."""
    own, costs = figures["by_group"], figures["baselines"]["cost_by_group"]
    if own is None:
        return None
    rows = [{**each, **(costs[at] if costs else {})} for at, each in enumerate(own)]
    tables = []
    for attribute in dict.fromkeys(row["attribute"] for row in rows):
        of = [row for row in rows if row["attribute"] == attribute]
        if len(of) > _MOST_ROWS:
            of.sort(key=lambda row: -row["cost"] if costs else row["accuracy"])
        tables.append(
            {"attribute": attribute, "rows": [_cells(row) for row in of[:_MOST_ROWS]], "left": len(of[_MOST_ROWS:])}
        )
    return {"tables": tables, "priced": costs is not None}


def _cells(row: Row) -> Row:
    def share(name: str) -> str:
        return share_text(row[name], row["records"])

    cells = {
        "group": row["group"],
        "records": row["records"],
        "accuracy": share("accuracy"),
        "interval": f"{percent(row['accuracy_low'])} to {percent(row['accuracy_high'])}",
        "confidence": share("confidence"),
        "brier": f"{row['brier']:.3f}",
    }
    if "cost" in row:
        low, high = 100 * row["cost_low"], 100 * row["cost_high"]
        cells |= {
            "pooled": share("pooled_accuracy"),
            "cost": f"{100 * row['cost']:+.1f} ({low:+.1f} to {high:+.1f})",
        }
    return cells
