"""Figures of the student by group of test records: accuracy beside the pooled model's, and a reliability plot.

The figure of a membership report: true over false positives, on logarithmic axes, and the ceiling.
"""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from protocols.plural import at_most
from simulations.groups import FEWEST, ByGroup, Calibration, GroupFigures
from simulations.membership.attack import true_positive_ceiling
from simulations.membership.report import AttackResult, MembershipReport
from simulations.plots.style import COLOURS, Drawing, light_grid, new_figure, percent_axis, style
from simulations.results.text import ATTACKS, MODELS, finding, percentage

# More groups of one attribute would not be read: those that pay most, else those with the least accuracy, are shown.
_MOST_ROWS = 20


def group_drawings(found: ByGroup) -> list[Drawing]:
    """Both figures of a run that has a student."""
    return [_accuracies(found), _reliability(found)]


def _accuracies(found: ByGroup) -> Drawing:
    attributes = list(dict.fromkeys(each.attribute for each in found.groups))
    shown = [_chosen([each for each in found.groups if each.attribute == name]) for name in attributes]
    priced = found.pooled is not None
    with style():
        figure = new_figure(height=1.0 + sum(0.45 + 0.24 * len(each) for each in shown))
        panels = figure.subplots(
            len(shown), 1, squeeze=False, sharex=True, height_ratios=[len(each) + 1 for each in shown]
        )[:, 0]
        for axes, attribute, groups in zip(panels, attributes, shown, strict=True):
            _panel(axes, groups, f"by {attribute}")
        panels[0].set_title("Student, group by group" + " (rings: pooled, not for release)" * priced)
        panels[-1].set_xlabel("share of the group's test records that is right")
    worst = min(found.groups, key=lambda each: each.accuracy)
    return Drawing(
        "by_group",
        "Accuracy of the student on groups of the test records, with Wilson's 95 % intervals, which cover the choice "
        "of these records"
        + "; rings: a model of all data pooled, without privacy and not for release" * priced
        + f". Pale: fewer than {FEWEST} records.",
        f"Dot plot of the student's accuracy by {', '.join(attributes)}. Least: {worst.attribute} {worst.group}, "
        f"{percentage(worst.accuracy)} of {worst.records} test records.",
        figure,
    )


def _chosen(groups: list[GroupFigures]) -> list[GroupFigures]:
    if len(groups) <= _MOST_ROWS:
        return groups
    return sorted(groups, key=lambda each: each.accuracy if each.cost is None else -each.cost.value)[:_MOST_ROWS]


def _panel(axes: Axes, groups: list[GroupFigures], words: str) -> None:
    rows = np.arange(len(groups))[::-1]
    for row, each in zip(rows.tolist(), groups, strict=True):
        pale = 0.4 if each.records < FEWEST else 1.0
        axes.plot([each.low, each.high], [row, row], color=COLOURS["blue"], linewidth=1.3, alpha=pale)
        axes.plot(each.accuracy, row, "o", color=COLOURS["blue"], alpha=pale)
        if each.pooled is not None:
            axes.plot(each.pooled, row, "o", color=COLOURS["orange"], markerfacecolor="none", markersize=7, alpha=pale)
    axes.set_yticks(rows, [f"{each.group} ({each.records:,})" for each in groups])
    axes.set_ylim(-0.7, len(groups) - 0.3)
    axes.set_ylabel(words)
    percent_axis(axes.xaxis)
    light_grid(axes, "x")


def _reliability(found: ByGroup) -> Drawing:
    first, pooled = found.calibrations[0], found.pooled
    with style():
        figure = new_figure(height=3.4)
        axes = figure.add_subplot()
        axes.plot([0, 1], [0, 1], color=COLOURS["grey"], linewidth=0.9, linestyle=":", label="sure as it is right")
        if pooled is not None:
            _curve(axes, pooled, "orange", "s", "--", "all data pooled: not for release")
        _curve(axes, first, "blue", "o", "-", "student")
        least = min(float(each.confidence.min()) for each in (first, pooled) if each is not None)
        axes.set_xlim(max(0.0, least - 0.05), 1.02)
        axes.set_ylim(-0.02, 1.02)
        axes.set_title("As sure as it is right?" + " (dashed: pooled, not for release)" * (pooled is not None))
        axes.set_xlabel("how sure: probability of the named class, mean of a bin")
        axes.set_ylabel("how right: share of the bin")
        percent_axis(axes.xaxis)
        percent_axis(axes.yaxis)
        light_grid(axes, "y")
        axes.legend(loc="best")
    return Drawing(
        "calibration",
        f"Reliability of the first seed's student on the test records, in {len(first.records)} bins of equal size: "
        f"below the dotted line it is surer than it is right. Expected calibration error {first.error:.3f}, "
        f"Brier score {first.brier:.3f}.",
        f"Reliability plot. Expected calibration error of the student {first.error:.3f}; its surest bin says "
        f"{percentage(float(first.confidence[-1]))} and is right {percentage(float(first.accuracy[-1]))} of the time.",
        figure,
    )


def _curve(axes: Axes, found: Calibration, colour: str, marker: str, dash: str, label: str) -> None:
    axes.plot(found.confidence, found.accuracy, color=COLOURS[colour], marker=marker, linestyle=dash, label=label)


_LOOKS = {
    "released": ("blue", ("-", "--")),
    "no_private_data": ("green", ("-", "--")),
    "non_private": ("orange", ("-", "--")),
}


def roc_drawing(report: MembershipReport) -> Drawing:
    """The curves of all measured attacks, the chance line, and the ceiling that epsilon gives for every unit."""
    ceiling = report.least_protected
    least = 1 / max(result.non_members for result in report.released)
    wide = np.geomspace(least, 1, 200)
    with style():
        figure = new_figure(height=4.6)
        axes = figure.add_subplot()
        axes.set_title("Membership attack on the released student")
        most = true_positive_ceiling(wide, epsilon=np.asarray(ceiling.epsilon), delta=np.asarray(ceiling.delta))
        axes.fill_between(wide, most, 1, color=COLOURS["grid"], alpha=0.45, linewidth=0)
        axes.plot(wide, most, color=COLOURS["ink"], linewidth=1.3, label=f"ceiling, ε = {at_most(ceiling.epsilon)}")
        axes.plot(wide, wide, color=COLOURS["muted"], linewidth=1.0, linestyle=":", label="chance")
        for name, (colour, dashes) in _LOOKS.items():
            for result, dash in zip(getattr(report, name), dashes, strict=False):
                _draw(axes, result, colour=COLOURS[colour], dash=dash, model=MODELS[name])
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(least, 1)
        axes.set_ylim(least / 2, 1.15)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
            axis.set_minor_formatter(NullFormatter())
            axis.grid(True)
        axes.set_xlabel("non-members taken for members (false-positive rate)")
        axes.set_ylabel("members found (true-positive rate)")
        axes.legend(loc="upper left", bbox_to_anchor=(0.0, -0.14), ncols=1, fontsize=8.0)
    loss = report.released[0]
    return Drawing(
        "membership",
        f"{finding(report)} Shaded: what no attack on one unit can reach under the guarantee. A curve below the chance "
        "line at the left means that fewer members than non-members score highest. Computed from private records: for "
        "research, not for release.",
        f"Curves of true over false positives, both axes logarithmic. The loss attack on the released student has an "
        f"area of {loss.area.value:.3f}; the ceiling's is {ceiling.area:.3f}.",
        figure,
    )


def _draw(axes: Axes, result: AttackResult, *, colour: str, dash: str, model: str) -> None:
    """Draws one attack on one model, without rates of 0, which a logarithmic axis cannot show."""
    found = result.curve.true_positive_rate
    shown = np.where(found > 0, found, np.nan)
    axes.step(
        result.curve.false_positive_rate,
        shown,
        where="post",
        color=colour,
        linestyle=dash,
        linewidth=1.5,
        label=f"{model}; {ATTACKS[result.attack]}: AUC {result.area.value:.3f}",
    )
