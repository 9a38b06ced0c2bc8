"""The figure of a plan: labels released against their expected accuracy, the nondominated settings of each mechanism
joined.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from protocols.errors import InvalidInput
from simulations.planning.grid import Optimum
from simulations.plots.style import COLOURS, light_grid, new_figure, percent_axis, style


def frontier_figure(optima: Sequence[Optimum], *, min_accuracy: float) -> Figure:
    """Expected accuracy of the released labels over their expected number: a line for each mechanism, the first one's
    with the chosen and its default noise.

    Raises InvalidInput for an empty frontier.
    """
    if not optima or not all(each.frontier for each in optima):
        raise InvalidInput("the frontier has 0 points; allowed: at least 1")
    chosen, common = optima[0].chosen, optima[0].common
    with style():
        figure = new_figure(height=3.6)
        axes = figure.subplots()
        for each, colour, marker in zip(optima, ("blue", "green", "purple", "orange"), "os^v", strict=False):
            line = sorted(each.frontier, key=lambda point: point.answered)
            axes.plot(
                [p.answered for p in line],
                [p.accuracy for p in line],
                color=COLOURS[colour],
                marker=marker,
                markersize=5,
                label=each.mechanism,
            )
        if common.answered >= 1:
            axes.plot(common.answered, common.accuracy, "s", color=COLOURS["grey"], markersize=8, label="default noise")
        axes.plot(chosen.answered, chosen.accuracy, "D", color=COLOURS["vermillion"], markersize=9, label="chosen")
        axes.axhline(min_accuracy, color=COLOURS["muted"], linestyle=":", linewidth=1.2, label="minimum accuracy")
        at_the_end = chosen.answered > 0.6 * max(p.answered for each in optima for p in each.frontier)
        axes.annotate(
            chosen.noise.words,
            (chosen.answered, chosen.accuracy),
            xytext=(-10, -14) if at_the_end else (9, 7),
            ha="right" if at_the_end else "left",
            textcoords="offset points",
            color=COLOURS["ink"],
        )
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.4g}")
        axes.xaxis.set_minor_formatter(lambda value, _: "")
        axes.set_xlabel("labels released, expected")
        axes.set_ylabel("their accuracy, expected")
        percent_axis(axes.yaxis)
        light_grid(axes, "y")
        axes.set_title("What the budgets can buy")
        axes.legend(loc="lower left")
    return figure
