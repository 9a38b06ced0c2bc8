"""The figures of a run: accuracy beside its baselines, epsilon over answers, and who used how much of a cap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any  # matplotlib's style arguments of a bar

import matplotlib
import numpy as np
from jaxtyping import Bool, Float64, Int64
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy import ndarray

from protocols.labelling.schedule import STOP_MEANINGS
from protocols.plural import at_most, counted
from simulations.pipeline import RunResult
from simulations.plots.groups import group_drawings
from simulations.plots.style import COLOURS, SERIES, Drawing, light_grid, new_figure, percent_axis, spread_labels, style
from simulations.results.files import Summary
from simulations.results.text import MARK, count, parties_words, percentage

_BAR = 0.62
_FEWEST_BINS, _MOST_BINS = 6, 40
_NARROW = 0.005
_OTHERS = "grey, hatched: not for release"


@dataclass(frozen=True)
class _Bar:
    """One bar; half: half-width of its 95 % interval; kind: "run", "baseline" or "open" (without privacy)."""

    words: str
    value: float
    half: float | None
    kind: str


def accuracy_bars(figures: Summary) -> list[_Bar]:
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
    return [_Bar(words, value, half, kind) for words, value, half, kind in candidates if value is not None]


def against_baselines(figures: Summary) -> Drawing:
    """Labels released and accuracies beside the baselines, with 95 % confidence intervals over seeds."""
    seeds, votes = len(figures["seeds"]), figures["record_votes"]
    released = "Labels released" if votes is None else "Noisy sums released"
    ended = "ended by the smallest budget" if votes is None else "with the noise that the smallest budget affords"
    labels = [_Bar("this run", figures["answered"], figures["answered_ci95"], "run")]
    uniform = figures["baselines"]["minimum_budget_uniform"]["answered"]
    if uniform is not None:
        labels.append(_Bar("minimum budget for all", uniform, None, "baseline"))
    accuracies = accuracy_bars(figures)
    note = f"whiskers: 95 % interval over {seeds} seeds of one partition" if seeds > 1 else "one seed: no interval"
    with style():
        heights = [len(labels) + 0.4, len(accuracies) + 0.4]
        figure = new_figure(height=1.5 + 0.31 * (len(labels) + len(accuracies)))
        if accuracies:
            upper, lower = figure.subplots(2, 1, height_ratios=heights)
            _bars(lower, accuracies, text=lambda bar: percentage(bar.value), longest=1.0)
            lower.set_title(f"Accuracy ({_OTHERS})")
            percent_axis(lower.xaxis)
            lower.set_xticks(np.linspace(0, 1, 6))
            lower.set_xlabel(f"share that is right\n{note}")
        else:
            upper = figure.subplots()
            upper.set_xlabel(note)
        longest = max(bar.value + (bar.half or 0.0) for bar in labels)
        _bars(upper, labels, text=lambda bar: count(bar.value), longest=max(longest, 1.0))
        upper.set_title(released + ("" if uniform is None else " (grey: not for release)"))
        upper.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    spoken = "; ".join(f"{bar.words} {percentage(bar.value)}" for bar in accuracies) or "no accuracy was measured"
    measured = (
        "Labels and the plurality are compared with the public pool's true labels, models with the test part. "
        if accuracies
        else "No accuracy was measured: there were no true labels. "
    )
    return Drawing(
        "baselines",
        f"{measured}'Minimum budget for all' is the same study with every vote weighing 1, {ended}. Grey and hatched "
        "bars are computed from votes and records, hatched ones without privacy, only for comparison: not for release. "
        f"{note[0].upper()}{note[1:]}; a bar without whisker does not vary over the seeds, or was not kept "
        "seed by seed.",
        f"Bar charts. {released}: {'; '.join(f'{bar.words} {count(bar.value)}' for bar in labels)}. "
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
            (mean, f"mean {percentage(mean)}", COLOURS["ink"], "-")
        ]
        if plurality is not None:
            lines.append((plurality, f"plurality {percentage(plurality)}", COLOURS["vermillion"], (0, (4, 3))))
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
        f"{parties_words(parties)}; the best {percentage(best)}, the worst {percentage(worst)}. Known in a "
        "simulation only: the protocol releases no teacher's accuracy, and no budget pays for it. Not for release.",
        f"Histogram of teacher accuracy over {parties_words(parties)}, from {percentage(worst)} to "
        f"{percentage(best)}, mean {percentage(mean)}.",
        figure,
    )


def _bins(values: Float64[ndarray, " parties"]) -> Float64[ndarray, " edges"]:
    """Edges by numpy's automatic rule, 6 to 40 bins; one narrow bin where all values are equal."""
    low, high = float(values.min()), float(values.max())
    if high - low < 1e-9:
        return np.array([low - _NARROW, low + _NARROW])
    automatic = len(np.histogram_bin_edges(values, bins="auto")) - 1
    return np.linspace(low, high, int(np.clip(automatic, _FEWEST_BINS, _MOST_BINS)) + 1)


def _bars(axes: Axes, bars: list[_Bar], *, text: Callable[[_Bar], str], longest: float) -> None:
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


# More budget groups than this are shown by representatives (curves) or as a scatter (shares).
LARGEST_SHOWN = 12
_REPRESENTATIVES = 9
_POINTS = 240
# A scatter of more dots than this is drawn as an image inside the SVG, which stays small.
_MOST_VECTORS = 1000


@dataclass(frozen=True, eq=False)
class BudgetGroups:
    """The groups of equal (epsilon, delta, weight), in the order of `groups` in summary.json."""

    epsilon: Float64[ndarray, " groups"]
    weight: Float64[ndarray, " groups"]
    size: Int64[ndarray, " groups"]
    member: Int64[ndarray, " parties"]
    first: Int64[ndarray, " groups"]
    exhausted_first: Bool[ndarray, " groups"]

    def __len__(self) -> int:
        return len(self.epsilon)

    def largest(self, values: Int64[ndarray, "rows parties"]) -> Int64[ndarray, "rows groups"]:
        """The largest value of each group's parties."""
        order = np.argsort(self.member, kind="stable")
        starts = np.concatenate([[0], np.cumsum(self.size)[:-1]])
        return np.maximum.reduceat(values[:, order], starts, axis=1)

    def shown(self) -> Int64[ndarray, " shown"]:
        """All groups; of too many, those at even quantiles of epsilon and the first exhausted one."""
        if len(self) <= LARGEST_SHOWN:
            return np.arange(len(self))
        even = np.rint(np.linspace(0, len(self) - 1, _REPRESENTATIVES)).astype(np.int64)
        return np.union1d(even, np.flatnonzero(self.exhausted_first)[:1])


def budget_groups(result: RunResult, exhausted_first: list[str]) -> BudgetGroups:
    """The groups of a run; exhausted_first: names of the parties whose budgets ran out first."""
    given = np.stack([result.budgets.epsilon, result.budgets.delta, result.study.weights])
    distinct, first, member, size = np.unique(given, axis=1, return_index=True, return_inverse=True, return_counts=True)
    out_first = np.zeros(distinct.shape[1], dtype=bool)
    out_first[member[[result.study.seats[name] for name in exhausted_first]]] = True
    return BudgetGroups(distinct[0], distinct[2], size, member, first, out_first)


def epsilon_curves(
    result: RunResult, groups: BudgetGroups, shown: Int64[ndarray, " shown"]
) -> tuple[Float64[ndarray, " points"], Float64[ndarray, "points shown"]]:
    """(answers, epsilon) of the first seed: each group's largest ledger at the group's own fixed order.

    Ledgers settle at the end of a batch; between two ends the spend is interpolated. The first point is the
    limit of no spend, the constant part of the conversion.
    """
    seed, filters = result.seeds[0], result.study.budgets
    answers = np.cumsum([0] + [answered for _, answered in seed.labelling.batches]).astype(float)
    start = np.zeros((1, len(groups.member)), dtype=np.int64)
    spent = groups.largest(np.concatenate([start, seed.spent_after]))[:, shown]
    ends = np.arange(len(answers))
    steps = max(1, -(-_POINTS // max(1, len(ends) - 1)))
    at = np.linspace(0, ends[-1], ends[-1] * steps + 1)
    spend = np.stack([np.interp(at, ends, column) for column in spent.T], axis=1)
    of_group = groups.first[shown]
    shape = spend.shape
    seats = np.broadcast_to(of_group, shape).ravel()
    return np.interp(at, ends, answers), filters.readings(np.maximum(spend, 1).ravel(), seats).reshape(shape)


def spending_figure(result: RunResult, groups: BudgetGroups) -> Drawing:
    """Epsilon by the ledger over answers, one line per budget group, with each cap and the stopping point."""
    shown = groups.shown()
    answers, epsilon = epsilon_curves(result, groups, shown)
    caps = result.study.budgets.epsilon_guaranteed[groups.first[shown]]
    seed = result.seeds[0]
    total = answers[-1]
    planned = result.study.budgets.planned is not None
    converted = "composed exactly" if planned else "converted at the order that was fixed for it beforehand"
    with style():
        figure = new_figure(height=3.9)
        axes = figure.add_subplot()
        axes.set_title("ε spent by budget group: the operator's reading;\nthe guarantee is the cap (dashed)")
        right = max(total, 1.0)
        for i, colour in enumerate(_colours(len(shown), sequential=len(groups) > LARGEST_SHOWN)):
            # The last point at which this group's ledger changed: where the group left, or where the study ended.
            end = int(np.searchsorted(epsilon[:, i], epsilon[-1, i], side="left")) if len(answers) > 1 else 0
            axes.plot([0, right], [caps[i], caps[i]], color=colour, linewidth=1.0, linestyle=(0, (4, 3)))
            axes.plot(answers[: end + 1], epsilon[: end + 1, i], color=colour)
            axes.plot(answers[end], epsilon[end, i], "o", color=colour, clip_on=False, zorder=4)
        top = float(max(caps.max(), epsilon.max())) * 1.06
        axes.set_xlim(0, right)
        axes.set_ylim(0, top)
        _label_right(axes, caps, [_group_words(groups, g) for g in shown.tolist()], top=top)
        axes.axvline(total, color=COLOURS["ink"], linewidth=1.0)
        axes.annotate(
            "stop", (total, 1.0), (0, 3), xycoords=("data", "axes fraction"), textcoords="offset points", ha="center"
        )
        axes.set_xlabel(f"labels released by seed {seed.seed}, up to the stop at {count(total)}")
        axes.set_ylabel("ε at the party's own δ" if planned else "ε at the party's own δ and fixed order")
        axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))
        light_grid(axes, "y")
    some = ""
    if len(shown) < len(groups):
        some = f" {len(shown)} of {len(groups)} budget groups are drawn, at even quantiles of ε."
    return Drawing(
        "epsilon_spent",
        f"Each line is the spend in a party's ledger, {converted} (seed {seed.seed}). It is an operator's "
        "reading of budget used, not a guarantee: what may be published is the cap, the dashed line. Lines start "
        "above zero where the conversion has a constant part, however little is spent. The study ended after "
        f"{count(total)} released labels: "
        f"{STOP_MEANINGS[seed.labelling.stop.reason]}.{some}",
        f"Line chart of epsilon spent over labels released, {len(shown)} budget groups. The lines end at "
        f"{_list(epsilon[-1])}; their caps are {_list(caps)}.",
        figure,
    )


def shares(result: RunResult, groups: BudgetGroups) -> Drawing:
    """How much of its cap each budget group used, and which ran out first."""
    share = result.study.budgets.share(np.array([seed.labelling.spent for seed in result.seeds]))
    sums = np.stack([np.bincount(groups.member, weights=row, minlength=len(groups)) for row in share])
    by_seed = sums / groups.size
    mean, several = by_seed.mean(axis=0), len(result.seeds) > 1
    # If all run out at once, none is highlighted.
    first = groups.exhausted_first & ~groups.exhausted_first.all()
    bars = len(groups) <= LARGEST_SHOWN
    with style():
        figure = new_figure(height=1.5 + 0.33 * len(groups) if bars else 3.5)
        axes = figure.add_subplot()
        axes.set_title(f"Share of budget used: {_who(groups)}")
        if bars:
            _share_bars(axes, groups, by_seed, first)
        else:
            _share_dots(axes, groups, by_seed, first)
    return Drawing(
        "budget_used",
        f"The ledger over the cap, the mean of each group's parties{' and seeds' if several else ''}. "
        + (
            "The one draw of noise is charged at once: with the best weights, it spends all budgets whole."
            if result.study.budgets.once
            else "What is left of a budget would have paid for more labels: with the best weights, all come near 100 % "
            "together. A budget has run out when it does not fit one more query."
        ),
        f"Share of the cap used by {len(groups)} budget groups, from {percentage(mean.min())} to "
        f"{percentage(mean.max())}; {_who(groups)}.",
        figure,
    )


def _share_bars(
    axes: Axes, groups: BudgetGroups, by_seed: Float64[ndarray, "seeds groups"], first: Bool[ndarray, " groups"]
) -> None:
    """One bar per group, with whiskers over the seeds; first: whose budget ran out first."""
    mean, low, high = by_seed.mean(axis=0), by_seed.min(axis=0), by_seed.max(axis=0)
    several = len(by_seed) > 1
    rows = np.arange(len(groups))[::-1]
    colours = np.where(first, COLOURS["vermillion"], COLOURS["blue"]).tolist()
    axes.barh(rows, mean, height=0.62, color=colours)
    if several:
        axes.errorbar(
            mean,
            rows,
            # A mean of equal numbers may be rounded to just beside them.
            xerr=np.maximum([mean - low, high - mean], 0.0),
            fmt="none",
            ecolor=COLOURS["ink"],
            elinewidth=1,
        )
    for row, value, end, out in zip(rows, mean, high, first, strict=True):
        # Beside the bar, or beyond the line at 100 % where it would cross that.
        place = end + 0.012 if end < 0.8 else 1.012
        axes.text(place, row, percentage(value) + (", first" if out else ""), va="center")
    axes.set_yticks(rows, [_group_words(groups, g) for g in range(len(groups))])
    axes.set_xlim(0, 1.16)
    axes.set_xticks(np.linspace(0, 1, 6))
    percent_axis(axes.xaxis)
    axes.set_xlabel("share of the cap used" + (", mean over seeds; whiskers: all seeds" if several else ""))
    axes.axvline(1.0, color=COLOURS["ink"], linewidth=1.0, linestyle=(0, (4, 3)))
    light_grid(axes, "x")


def _share_dots(
    axes: Axes, groups: BudgetGroups, by_seed: Float64[ndarray, "seeds groups"], first: Bool[ndarray, " groups"]
) -> None:
    """One dot per group over its budget, for many groups."""
    mean, several = by_seed.mean(axis=0), len(by_seed) > 1
    axes.scatter(
        groups.epsilon[~first],
        mean[~first],
        s=16,
        color=COLOURS["blue"],
        alpha=0.7,
        linewidths=0,
        rasterized=len(groups) > _MOST_VECTORS,
    )
    axes.scatter(groups.epsilon[first], mean[first], s=46, marker="D", color=COLOURS["vermillion"], zorder=3)
    if groups.epsilon[-1] > 20 * groups.epsilon[0]:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_ylim(0, 1.05)
    percent_axis(axes.yaxis)
    axes.axhline(1.0, color=COLOURS["ink"], linewidth=1.0, linestyle=(0, (4, 3)))
    axes.set_ylabel("share of the cap used" + (", mean over seeds" if several else ""))
    axes.set_xlabel(f"budget ε; one dot per group of equal budgets ({counted(len(groups), 'group')})")
    light_grid(axes, "y")


def _who(groups: BudgetGroups) -> str:
    """Which budgets ran out first, in words for a title."""
    out = int(groups.exhausted_first.sum())
    if out == 0:
        return "nobody ran out"
    if out == len(groups):
        return "all ran out together" if out > 1 else "it ran out"
    if out == 1:
        return f"ε {at_most(groups.epsilon[groups.exhausted_first][0])} ran out first"
    return f"{count(out)} of {count(len(groups))} groups ran out first"


def _group_words(groups: BudgetGroups, group: int) -> str:
    size = parties_words(int(groups.size[group]))
    return f"ε {at_most(groups.epsilon[group])} · {size} · weight {groups.weight[group]:.3g}"


def _list(values: Float64[ndarray, " groups"]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)


def _colours(number: int, *, sequential: bool) -> list[str]:
    if not sequential and number <= len(SERIES):
        return [COLOURS[name] for name in SERIES[:number]]
    # The middle of viridis: visible on white and on black.
    return [to_hex(colour) for colour in matplotlib.colormaps["viridis"](np.linspace(0.2, 0.82, number))]


def _label_right(axes: Axes, heights: Float64[ndarray, " labels"], words: list[str], *, top: float) -> None:
    """Writes one label per height right of the axes, moved apart where they would touch."""
    moved = spread_labels(heights, gap=top * 0.058)
    moved -= max(0.0, float(moved.max()) - top)
    for height, place, text in zip(heights, moved, words, strict=True):
        axes.annotate(
            text,
            xy=(1.0, height),
            xytext=(1.035, place),
            xycoords=("axes fraction", "data"),
            textcoords=("axes fraction", "data"),
            va="center",
            arrowprops={"arrowstyle": "-", "color": COLOURS["grey"], "linewidth": 0.6, "shrinkA": 1, "shrinkB": 0},
            annotation_clip=False,
        )


def drawings(result: RunResult, figures: Summary) -> list[Drawing]:
    """The figures of a run, in the order of a report. figures: the result of `summary`."""
    groups = budget_groups(result, figures["exhausted_first"])
    drawn = [against_baselines(figures), spending_figure(result, groups), shares(result, groups)]
    if result.study.budgets.once:
        # One charge makes no curve.
        del drawn[1]
    if result.teacher_accuracy is not None:
        drawn.append(teachers(result.teacher_accuracy, plurality=result.plurality_accuracy))
    if result.by_group is not None:
        drawn += group_drawings(result.by_group)
    return drawn
