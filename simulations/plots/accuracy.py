"""Figures of accuracy: the run against its baselines, and the teachers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any  # matplotlib's style arguments of a bar

import numpy as np
from jaxtyping import Float64
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy import ndarray

from simulations.plots.style import COLOURS, Drawing, light_grid, new_figure, percent_axis, style
from simulations.results.files import Summary
from simulations.results.text import MARK, count, parties_words, percent

_BAR = 0.62
_FEWEST_BINS, _MOST_BINS = 6, 40
_NARROW = 0.005
_OTHERS = "grey, hatched: not for release"


@dataclass(frozen=True)
class Bar:
    """One bar; half: half-width of its 95 % interval; kind: "run", "baseline" or "open" (without privacy)."""

    words: str
    value: float
    half: float | None
    kind: str


def accuracy_bars(figures: Summary) -> list[Bar]:
    """The measured accuracies of a run, this run's first."""
    baselines = figures["baselines"]
    uniform = baselines["minimum_budget_uniform"]
    candidates = [
        ("student, on test data", figures["student_accuracy"], figures["student_accuracy_ci95"], "run"),
        ("released labels", figures["label_accuracy"], figures["label_accuracy_ci95"], "run"),
        ("minimum budget for all: student", uniform["student_accuracy"], None, "baseline"),
        ("minimum budget for all: labels", uniform["label_accuracy"], None, "baseline"),
        ("mean single party", baselines["single_party_accuracy_mean"], None, "baseline"),
        ("best single party", baselines["single_party_accuracy_best"], None, "baseline"),
        ("always the most frequent class", baselines["majority_class_accuracy"], None, "baseline"),
        ("plurality without noise (without privacy)", figures["plurality_accuracy"], None, "open"),
        ("all data pooled (without privacy)", baselines["non_private_student_accuracy"], None, "open"),
    ]
    return [Bar(words, value, half, kind) for words, value, half, kind in candidates if value is not None]


def against_baselines(figures: Summary) -> Drawing:
    """Labels released and accuracies beside the baselines, with 95 % confidence intervals over seeds."""
    seeds = len(figures["seeds"])
    labels = [Bar("this run", figures["answered"], figures["answered_ci95"], "run")]
    uniform = figures["baselines"]["minimum_budget_uniform"]["answered"]
    if uniform is not None:
        labels.append(Bar("minimum budget for all", uniform, None, "baseline"))
    accuracies = accuracy_bars(figures)
    note = f"whiskers: 95 % interval over {seeds} seeds of one partition" if seeds > 1 else "one seed: no interval"
    with style():
        heights = [len(labels) + 0.4, len(accuracies) + 0.4]
        figure = new_figure(height=1.5 + 0.31 * (len(labels) + len(accuracies)))
        if accuracies:
            upper, lower = figure.subplots(2, 1, height_ratios=heights)
            _bars(lower, accuracies, text=lambda bar: percent(bar.value), longest=1.0)
            lower.set_title(f"Accuracy ({_OTHERS})")
            percent_axis(lower.xaxis)
            lower.set_xticks(np.linspace(0, 1, 6))
            lower.set_xlabel(f"share that is right\n{note}")
        else:
            upper = figure.subplots()
            upper.set_xlabel(note)
        longest = max(bar.value + (bar.half or 0.0) for bar in labels)
        _bars(upper, labels, text=lambda bar: count(bar.value), longest=max(longest, 1.0))
        upper.set_title("Labels released" + ("" if uniform is None else " (grey: not for release)"))
        upper.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    spoken = "; ".join(f"{bar.words} {percent(bar.value)}" for bar in accuracies) or "no accuracy was measured"
    measured = (
        "Labels and the plurality are compared with the public pool's true labels, models with the test part. "
        if accuracies
        else "No accuracy was measured: there were no true labels. "
    )
    return Drawing(
        "baselines",
        f"{measured}'Minimum budget for all' is the same study with every vote weighing 1, ended by the "
        "smallest budget. Grey and hatched bars are computed from votes and records, hatched ones without privacy, "
        "only for comparison: not for release. "
        f"{note[0].upper()}{note[1:]}; a bar without whisker does not vary over the seeds, or was not kept "
        "seed by seed.",
        f"Bar charts. Labels released: {'; '.join(f'{bar.words} {count(bar.value)}' for bar in labels)}. "
        f"Accuracy: {spoken}.",
        figure,
    )


def teachers(accuracy: Float64[ndarray, "parties teachers"], *, plurality: float | None) -> Drawing:
    """How good single parties are: a histogram over parties of the mean accuracy of their teachers."""
    by_party = accuracy.mean(axis=1)
    worst, mean, best = float(by_party.min()), float(by_party.mean()), float(by_party.max())
    bins = _bins(by_party)
    parties, several = len(by_party), accuracy.shape[1] > 1
    with style():
        figure = new_figure(height=3.0)
        axes = figure.add_subplot()
        whose = "teachers are" if several else "teacher is"
        axes.set_title(f"{MARK.capitalize()}how often a party's {whose} right")
        axes.hist(by_party, bins=bins.tolist(), color=COLOURS["sky"], edgecolor="white", linewidth=0.6)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
        percent_axis(axes.xaxis)
        low, high = float(bins[0]), float(bins[-1])
        tall = axes.get_ylim()[1]
        axes.set_ylim(0, tall * 1.28)
        lines: list[tuple[float, str, str, str | tuple[int, tuple[int, int]]]] = [
            (mean, f"mean {percent(mean)}", COLOURS["ink"], "-")
        ]
        if plurality is not None:
            lines.append((plurality, f"plurality {percent(plurality)}", COLOURS["vermillion"], (0, (4, 3))))
            low, high = min(low, plurality), max(high, plurality)
        margin = max(0.06 * (high - low), 8 * _NARROW - (high - low) / 2)
        axes.set_xlim(max(0.0, low - margin), min(1.0, high + margin) + 1e-9)
        middle = sum(axes.get_xlim()) / 2
        for level, (value, words, colour, dash) in enumerate(lines):
            axes.axvline(value, color=colour, linewidth=1.3, linestyle=dash)
            left = value > middle
            axes.annotate(
                words,
                xy=(value, tall * (1.2 - 0.12 * level)),
                xytext=(-5 if left else 5, 0),
                textcoords="offset points",
                ha="right" if left else "left",
                va="center",
                color=colour,
            )
        axes.set_xlabel("accuracy on the public pool" + (", mean of the party's teachers" if several else ""))
        axes.set_ylabel("parties")
        light_grid(axes, "y")
    return Drawing(
        "teachers",
        f"{parties_words(parties)}; the best {percent(best)}, the worst {percent(worst)}. Known in a "
        "simulation only: the protocol releases no teacher's accuracy, and no budget pays for it. Not for release.",
        f"Histogram of teacher accuracy over {parties_words(parties)}, from {percent(worst)} to "
        f"{percent(best)}, mean {percent(mean)}.",
        figure,
    )


def _bins(values: Float64[ndarray, " parties"]) -> Float64[ndarray, " edges"]:
    """Edges by numpy's automatic rule, 6 to 40 bins; one narrow bin where all values are equal."""
    low, high = float(values.min()), float(values.max())
    if high - low < 1e-9:
        return np.array([low - _NARROW, low + _NARROW])
    automatic = len(np.histogram_bin_edges(values, bins="auto")) - 1
    return np.linspace(low, high, int(np.clip(automatic, _FEWEST_BINS, _MOST_BINS)) + 1)


def _bars(axes: Axes, bars: list[Bar], *, text: Callable[[Bar], str], longest: float) -> None:
    looks: dict[str, dict[str, Any]] = {
        "run": {"color": COLOURS["blue"]},
        "baseline": {"color": COLOURS["grey"]},
        "open": {"facecolor": "none", "edgecolor": COLOURS["orange"], "hatch": "////", "linewidth": 1.0},
    }
    rows = np.arange(len(bars))[::-1]
    for row, bar in zip(rows.tolist(), bars, strict=True):
        axes.barh(row, bar.value, height=_BAR, **looks[bar.kind])
        end = bar.value
        if bar.half is not None:
            # Neither a count nor a share is below 0, nor a share above 1.
            low, end = max(0.0, bar.value - bar.half), min(longest, bar.value + bar.half)
            reach = [[bar.value - low], [end - bar.value]]
            axes.errorbar(bar.value, row, xerr=reach, fmt="none", ecolor=COLOURS["ink"], elinewidth=1.1, capsize=3)
        axes.text(end + 0.012 * longest, row, text(bar), va="center")
    axes.set_yticks(rows, [bar.words for bar in bars])
    axes.set_ylim(-0.6, len(bars) - 0.4)
    axes.set_xlim(0, longest * 1.14)
    light_grid(axes, "x")
