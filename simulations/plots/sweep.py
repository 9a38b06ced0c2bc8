"""The figures of a sweep: labels and accuracies over what was varied, with their confidence intervals."""

from __future__ import annotations

import numpy as np
import pandas as pd
from jaxtyping import Float64
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy import ndarray

from protocols.errors import InvalidInput
from simulations.plots.style import (
    COLOURS,
    MARKERS,
    PAGE,
    PAPER,
    SERIES,
    Drawing,
    Look,
    level_line,
    light_grid,
    line_with_band,
    new_figure,
    percent_axis,
    plain_log_axis,
    style,
)

_AXES = {
    "budgets": "budget ε of every party",
    "delta": "δ of every budget",
    "sigma": "σ of the label noise, votes",
    "sigma_threshold": "σ of the threshold noise, votes",
    "threshold": "threshold, votes",
    "parties": "parties",
    "dropout": "probability that a party misses a batch",
}
_PANELS = {
    "answered": "labels or sums",
    "student_accuracy": "student accuracy",
    "student_auroc": "student AUROC",
    "label_accuracy": "label accuracy",
}
# More lines than this could not be told apart, and more figures would not be read.
_MOST_LINES, _MOST_FIGURES = len(SERIES), 6
# So many letters of the names on an axis stand beside each other on an inch.
_LETTERS = 13


def sweep_drawings(table: pd.DataFrame, varied: tuple[str, ...], *, covered: str, look: Look = PAGE) -> list[Drawing]:
    """Figures of a table of intervals, one row per setting, with at most six lines each and six figures in all.

    varied: the settings that differ; covered: a sentence on what the intervals cover. The horizontal axis is the first
    numeric setting that varies (a list of budgets is numeric where each is one epsilon); its points are joined. Where
    none is numeric, it has the values of the first one, and nothing is joined. Every combination of the other settings
    is a line, so no setting is hidden in a mean; lines of the same figures everywhere, as of settings that are the same
    study, are one. Raises InvalidInput for a table without rows or settings.
    """
    if table.empty or not varied:
        raise InvalidInput(f"a sweep has {len(table)} settings and varies {list(varied)}; allowed: some of each")
    across = next((name for name in varied if _numeric(table[name]) is not None), None)
    along = across or varied[0]
    others = [name for name in varied if name != along and table[name].nunique(dropna=False) > 1]
    lines = [_name(row, others) for row in table[others].to_dict("records")] if others else [""] * len(table)
    alike: dict[str, list[str]] = {}
    for line in dict.fromkeys(lines):
        rows = table[[each == line for each in lines]]
        alike.setdefault(rows[[along, *_shown(table)]].to_json(orient="values"), []).append(line)
    named = {line: "\n= ".join(each) for each in alike.values() for line in each}
    table = table.assign(_line=[named[line] for line in lines])
    known = list(dict.fromkeys(table["_line"]))
    drawn = []
    cut = " Intervals of shares are drawn from 0 to 100 %." * bool(table.filter(like="_high").notna().any(axis=None))
    for start in range(0, min(len(known), _MOST_LINES * _MOST_FIGURES), _MOST_LINES):
        chosen = known[start : start + _MOST_LINES]
        number = "" if len(known) <= _MOST_LINES else f"-{start // _MOST_LINES + 1}"
        seen = table[table["_line"].isin(chosen)]
        figure = _figure(seen, chosen, along, others, numeric=across is not None, look=look)
        left = len(known) - _MOST_LINES * _MOST_FIGURES
        drawn.append(
            Drawing(
                name=f"sweep{number}",
                caption=f"Labels and accuracies against {along.replace('_', ' ')}. {_of(table)}{covered}"
                + cut
                + (f" {left} more lines are only in the table." if left > 0 else ""),
                alt=f"Chart of {', '.join(_PANELS[name] for name in _shown(table))} against {along}.",
                figure=figure,
                look=look,
            )
        )
    return drawn


def _figure(
    table: pd.DataFrame, lines: list[str], along: str, others: list[str], *, numeric: bool, look: Look
) -> Figure:
    panels = _shown(table)
    with style(look):
        # On paper the caption has the title.
        paper = look is PAPER
        deep = sum(1 + line.count("\n") for line in lines)
        figure = new_figure(
            height=0.4 + 1.35 * len(panels) + 0.15 * deep if paper else 0.9 + 2.25 * len(panels), look=look
        )
        for axes, name in zip(figure.subplots(len(panels), 1, squeeze=False)[:, 0], panels, strict=True):
            values = list(dict.fromkeys(table[along].astype(str)))  # in the order given
            for i, line in enumerate(lines):
                rows = table[table["_line"] == line].drop_duplicates(along)
                rows = rows[pd.to_numeric(rows[name]).notna()]
                if not rows.empty:
                    place = _over if numeric else _beside
                    place(axes, rows, name, along, i, len(lines), values)
            _finish(axes, table, name, values, numeric=numeric, look=look)
        if not paper:
            figure.axes[0].set_title(_title(table))
        figure.align_ylabels()
        figure.axes[-1].set_xlabel(_AXES.get(along, along.replace("_", " ")))
        if len(lines) > 1:
            _legend(figure, others, columns=1 if paper else 2)
    return figure


def _of(table: pd.DataFrame) -> str:
    """A sentence on what AUROCs are of, where there are some."""
    names = [] if "auroc_of" not in table else table["auroc_of"].dropna().unique().tolist()
    return f"AUROC: {'; '.join(names)}. " if names else ""


def _legend(figure: Figure, others: list[str], *, columns: int) -> None:
    """A legend below all panels, with the names of the settings that tell its lines apart; each line once."""
    shown: dict[str, Artist] = {}
    for axes in figure.axes:
        for artist, label in zip(*axes.get_legend_handles_labels(), strict=True):
            shown.setdefault(label, artist)
    title = ", ".join(name.replace("_", " ") for name in others)
    figure.legend([*shown.values()], [*shown], title=title, loc="outside lower center", alignment="left", ncols=columns)


def _shown(table: pd.DataFrame) -> list[str]:
    """The figures that the table has."""
    return [name for name in _PANELS if name in table and pd.to_numeric(table[name]).notna().any()]


def _numeric(values: pd.Series) -> pd.Series | None:
    """The values as numbers; None unless all are numbers and some differ. A class, or a distribution of budgets, is
    none, and has no order.
    """
    if pd.api.types.is_bool_dtype(values):
        return None
    numbers = pd.to_numeric(values, errors="coerce")
    return numbers if numbers.notna().all() and numbers.nunique() > 1 else None


def _name(row: dict[object, object], others: list[str]) -> str:
    return ", ".join(str(row[name]) for name in others)


def _over(axes: Axes, rows: pd.DataFrame, name: str, along: str, i: int, of: int, values: list[str]) -> None:
    """Joined points over a number, with a band for the intervals."""
    rows = rows.assign(_x=pd.to_numeric(rows[along])).sort_values("_x")
    x = rows["_x"].to_numpy(dtype=float)
    mean, low, high = _interval(rows, name)
    line_with_band(axes, x, (mean, low, high), number=i, label=str(rows["_line"].iloc[0]))
    if np.isfinite(low).any():
        colour = COLOURS[SERIES[i]]
        axes.errorbar(x, mean, yerr=[mean - low, high - mean], fmt="none", ecolor=colour, elinewidth=0.9, capsize=2.5)


def _interval(rows: pd.DataFrame, name: str) -> list[Float64[ndarray, " points"]]:
    """The means, and the ends of their intervals: of shares, as far as they lie in [0, 1]."""
    columns = (name, f"{name}_low", f"{name}_high")
    found = [pd.to_numeric(rows[column]).to_numpy(dtype=np.float64) for column in columns]
    return found if name == "answered" else [np.clip(each, 0, 1) for each in found]


def _beside(axes: Axes, rows: pd.DataFrame, name: str, along: str, i: int, of: int, values: list[str]) -> None:
    """Points that are not joined, at the place of each value, with bars for the intervals."""
    colour = COLOURS[SERIES[i]]
    x = np.array([values.index(str(value)) for value in rows[along]], dtype=float) + 0.5 * (i - (of - 1) / 2) / of
    mean, low, high = _interval(rows, name)
    error = [mean - low, high - mean] if np.isfinite(low).any() else None
    axes.errorbar(
        x, mean, yerr=error, fmt=MARKERS[i], color=colour, markersize=6.5, elinewidth=1.2, capsize=3,
        label=str(rows["_line"].iloc[0]),
    )  # fmt: skip


def _finish(axes: Axes, table: pd.DataFrame, name: str, values: list[str], *, numeric: bool, look: Look) -> None:
    """Axes of one panel, and the accuracy of guessing the most frequent class. values: along the horizontal axis."""
    axes.set_ylabel(_PANELS[name])
    if name == "answered":
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    else:
        percent_axis(axes.yaxis)
        share = pd.to_numeric(table["majority_share"]).dropna() if "majority_share" in table else pd.Series(dtype=float)
        if name != "student_auroc" and len(share) and share.max() - share.min() < 0.01:
            level_line(axes, float(share.mean()), "always the most frequent class")
    light_grid(axes, "y")
    if not numeric:
        axes.set_xticks(range(len(values)), values)
        if max(map(len, values)) * len(values) > _LETTERS * look.width:
            for each in axes.get_xticklabels():
                each.set_rotation(20)
                each.set_horizontalalignment("right")
        axes.set_xlim(-0.6, len(values) - 0.4)
        return
    places = pd.to_numeric(pd.Series(values))
    if places.min() > 0 and places.max() >= 20 * places.min():
        plain_log_axis(axes)


def _title(table: pd.DataFrame) -> str:
    refused = int((table["note"].fillna("") != "").sum()) if "note" in table.columns else 0
    title = f"Sweep of {len(table):,} {'setting' if len(table) == 1 else 'settings'}"
    return f"{title}; {refused} of them afford no label" if refused else title
