"""The figure of a sweep: labels released, and accuracies where they are known, over what was varied."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from protocols.errors import InvalidInput
from simulations.plots.style import COLOURS, DASHES, MARKERS, SERIES, light_grid, new_figure, percent_axis, style

_OUTCOMES = frozenset(
    "answered answered_ci95 asked label_accuracy student_accuracy share_of_budget_used_min "
    "share_of_budget_used_max epsilon_guaranteed_max".split()
)
_AXES = {
    "epsilon_mean": "mean budget ε over the parties",
    "delta": "δ of every budget",
    "sigma": "σ of the label noise, votes",
    "sigma_threshold": "σ of the threshold noise, votes",
    "threshold": "threshold, votes",
    "parties": "parties",
    "dropout": "probability that a party misses a batch",
}
_ACCURACIES = {"student_accuracy": "student accuracy", "label_accuracy": "label accuracy"}
# More rules than this could not be told apart.
_MOST_LINES = len(SERIES)


def sweep_figure(table: pd.DataFrame) -> Figure:
    """Answers and accuracies of a sweep, one line per weighting rule.

    The horizontal axis is the mean budget if it varies, else the first numeric setting that does, else the
    rules themselves. Settings that share a rule and a place on the axis are drawn as their mean, with the
    span of all as a band. Raises InvalidInput for a table without rows or without the column `answered`.
    """
    if table.empty or "answered" not in table.columns:
        raise InvalidInput(
            f"a sweep's table has {len(table)} rows and the columns {list(table)}; "
            "allowed: at least one row, and the column answered"
        )
    table = table.reset_index(drop=True)
    shown = [name for name in _ACCURACIES if name in table.columns and pd.to_numeric(table[name]).notna().any()]
    panels = [("answered", "labels released"), *((name, _ACCURACIES[name]) for name in shown)]
    across = _across(table)
    with style():
        figure = new_figure(height=0.9 + 2.25 * len(panels))
        for axes, (column, words) in zip(figure.subplots(len(panels), 1, squeeze=False)[:, 0], panels, strict=True):
            if across is None:
                _by_rule(axes, table, column)
            else:
                _over(axes, table, column, across)
            axes.set_ylabel(words)
            axes.set_ylim(bottom=0) if column == "answered" else None
            if column != "answered":
                percent_axis(axes.yaxis)
            else:
                axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
            light_grid(axes, "y")
        first, last = figure.axes[0], figure.axes[-1]
        first.set_title(_title(table))
        if across is not None:
            last.set_xlabel(_AXES.get(across, across.replace("_", " ")))
            if len(_rules(table)) > 1:
                first.legend(title="weights", loc="best", alignment="left")
    return figure


def _across(table: pd.DataFrame) -> str | None:
    """The numeric setting for the horizontal axis; None if none varies."""
    others = [str(name) for name in table.columns if name not in _AXES and name not in _OUTCOMES]
    for name in [*_AXES, *others]:
        if name in table.columns and pd.api.types.is_numeric_dtype(table[name]) and table[name].nunique() > 1:
            return name
    return None


def _rules(table: pd.DataFrame) -> list[str]:
    """The weighting rules of the table, at most as many as can be told apart."""
    if "weights" not in table.columns:
        return ["all settings"]
    return [str(rule) for rule in table["weights"].dropna().unique()][:_MOST_LINES]


def _of_rule(table: pd.DataFrame, rule: str) -> pd.DataFrame:
    return table[table["weights"] == rule] if "weights" in table.columns else table


def _over(axes: Axes, table: pd.DataFrame, column: str, across: str) -> None:
    for i, rule in enumerate(_rules(table)):
        rows = _of_rule(table, rule)
        rows = rows[rows[across].notna() & pd.to_numeric(rows[column]).notna()]
        if rows.empty:
            continue
        at = rows.assign(_value=pd.to_numeric(rows[column]).astype(float)).groupby(across)["_value"]
        x = np.array(sorted(rows[across].unique()), dtype=float)
        mean, low, high = at.mean().to_numpy(), at.min().to_numpy(), at.max().to_numpy()
        colour = COLOURS[SERIES[i]]
        axes.plot(x, mean, color=colour, linestyle=DASHES[i], marker=MARKERS[i], label=rule)
        if (high > low).any():
            axes.fill_between(x, low, high, color=colour, alpha=0.13, linewidth=0)
        half = (
            pd.to_numeric(rows["answered_ci95"]) if column == "answered" and "answered_ci95" in rows.columns else None
        )
        if half is not None and half.notna().all() and len(x) == len(rows):
            axes.errorbar(
                x,
                mean,
                yerr=half.to_numpy()[np.argsort(rows[across].to_numpy())],
                fmt="none",
                ecolor=colour,
                capsize=3,
            )
    values = table[across].dropna()
    if values.min() > 0 and values.max() >= 20 * values.min():
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(FuncFormatter(lambda value, _: ""))


def _by_rule(axes: Axes, table: pd.DataFrame, column: str) -> None:
    """Draws one dot per setting, at one place per rule, if no numeric setting varies."""
    rules = _rules(table)
    for i, rule in enumerate(rules):
        values = pd.to_numeric(_of_rule(table, rule)[column]).dropna().to_numpy(dtype=float)
        axes.plot(np.full(len(values), i), values, MARKERS[i], color=COLOURS[SERIES[i]], markersize=7, label=rule)
    axes.set_xticks(range(len(rules)), rules)
    axes.set_xlim(-0.6, len(rules) - 0.4)


def _title(table: pd.DataFrame) -> str:
    refused = int((table["note"].fillna("") != "").sum()) if "note" in table.columns else 0
    title = f"Sweep of {len(table):,} {'setting' if len(table) == 1 else 'settings'}"
    return f"{title}; {refused} of them afford no label" if refused else title
