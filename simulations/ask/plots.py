"""Figures of `ask`: accuracy before and after, overall and by class."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64
from matplotlib.axes import Axes
from numpy import ndarray

from simulations.ask.results import Summary
from simulations.plots.style import COLOURS, Drawing, light_grid, new_figure, percent_axis, style
from simulations.results.text import percent

# Querying parties with a row; the rest is in summary.json.
_MOST_ROWS = 24
# Querying parties with a panel of classes.
_MOST_PANELS = 6
_MOST_CLASSES = 40


def ask_drawings(figures: Summary) -> list[Drawing]:
    """The figures of a run, in the order of a report; figures: as returned by `ask_summary`."""
    drawn = [before_and_after(figures)]
    if len(figures["queriers"][0]["classes"]) <= _MOST_CLASSES:
        drawn.append(by_class(figures))
    return drawn


def before_and_after(figures: Summary) -> Drawing:
    """Each querying party's accuracy on test data before and after: on all classes, and on those it lacks."""
    queriers = figures["queriers"][:_MOST_ROWS]
    note = _note(figures)
    with style():
        figure = new_figure(height=1.3 + 0.62 * len(queriers))
        axes = figure.add_subplot()
        rows = np.arange(len(queriers))[::-1].astype(float)
        for row, querier in zip(rows.tolist(), queriers, strict=True):
            _arrow(axes, row + 0.15, querier["before"], querier["after"], querier["after_ci95"], COLOURS["blue"])
            if querier["before_lacked"] is not None:
                before, after, half = (querier[k] for k in ("before_lacked", "after_lacked", "after_lacked_ci95"))
                _arrow(axes, row - 0.2, before, after, half, COLOURS["vermillion"])
        axes.set_yticks(rows, [f"{q['party']}\n{q['model'].replace('_', ' ')}" for q in queriers])
        axes.set_ylim(-0.6, len(queriers) - 0.4)
        axes.set_xlim(0, 1)
        percent_axis(axes.xaxis)
        axes.set_xlabel(f"test records that are right ({note})")
        axes.set_title("Accuracy before and after")
        for colour, words in ((COLOURS["blue"], "all classes"), (COLOURS["vermillion"], "classes it lacks")):
            axes.plot([], [], color=colour, marker="o", label=words)
        axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2)
        light_grid(axes, "x")
    spoken = "; ".join(f"{q['party']} from {percent(q['before'])} to {percent(q['after'])}" for q in queriers)
    return Drawing(
        "before_after",
        "Each querying party's own model on test data, before it asked (ring) and after it was retrained with the "
        f"labels it was given (dot). {note[0].upper()}{note[1:]}. A party lacks a class of which it holds less than "
        "half of an equal share of its records.",
        f"Accuracy before and after: {spoken}.",
        figure,
    )


def by_class(figures: Summary) -> Drawing:
    """Accuracy on each class before and after, above the party's own records of that class."""
    queriers = figures["queriers"][:_MOST_PANELS]
    with style():
        figure = new_figure(height=0.5 + 1.75 * len(queriers))
        panels = np.atleast_1d(figure.subplots(len(queriers), 1))
        for axes, querier in zip(panels.tolist(), queriers, strict=True):
            classes = querier["classes"]
            place = np.arange(len(classes))
            for key, shift, colour in (("before", -0.2, "grey"), ("after", 0.2, "blue")):
                heights = [one[key] or 0.0 for one in classes]
                halves = [one["after_ci95"] for one in classes if key == "after"]
                errors = _reach(heights, halves) if any(half is not None for half in halves) else None
                axes.bar(
                    place + shift, heights, width=0.38, color=COLOURS[colour], yerr=errors, label=key,
                    error_kw={"elinewidth": 0.9, "capsize": 2},
                )  # fmt: skip
            names = [f"{one['class']}\n{one['own_records']} own\n+{one['labels_given']:.0f}" for one in classes]
            axes.set_xticks(place, names, fontsize=7)
            axes.set_ylim(0, 1.05)
            percent_axis(axes.yaxis)
            axes.set_title(f"{querier['party']}, {querier['model'].replace('_', ' ')}")
            light_grid(axes, "y")
        panels[0].legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2)
    return Drawing(
        "by_class",
        "The same by class. Under each class: how many labelled records of that class the party has itself, and "
        f"how many such labels it was given. {_note(figures).capitalize()}.",
        "Accuracy by class before and after, one panel per querying party; the figures are in queriers.csv.",
        figure,
    )


def _arrow(axes: Axes, row: float, before: float, after: float, half: float | None, colour: str) -> None:
    axes.plot([before, after], [row, row], color=colour, linewidth=1.2)
    axes.plot(before, row, marker="o", markerfacecolor="white", markeredgecolor=colour)
    reach = None if half is None else _reach([after], [half])
    axes.errorbar(after, row, xerr=reach, fmt="o", color=colour, ecolor=COLOURS["ink"], elinewidth=1.0, capsize=3)


def _reach(values: list[float], halves: list[float | None]) -> Float64[ndarray, "sides bars"]:
    """How far whiskers extend down and up; shares stay within 0 and 1."""
    half = np.array([0.0 if one is None else one for one in halves])
    return np.stack([np.minimum(half, values), np.minimum(half, 1 - np.array(values))])


def _note(figures: Summary) -> str:
    seeds = len(figures["seeds"])
    return f"whiskers: 95 % interval over {seeds} seeds" if seeds > 1 else "one seed: no interval"
