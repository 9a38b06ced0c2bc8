"""The figure of a plan: labels released against their expected accuracy, with nondominated settings joined."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from protocols.errors import InvalidInput
from simulations.planning.predictions import Prediction
from simulations.plots.style import COLOURS, light_grid, new_figure, percent_axis, style


def frontier_figure(
    frontier: Sequence[Prediction], *, chosen: Prediction, common: Prediction, min_accuracy: float
) -> Figure:
    """Expected accuracy of the released labels over their expected number, with the chosen and the default noise.

    Raises InvalidInput for an empty frontier.
    """
    if not frontier:
        raise InvalidInput("the frontier has 0 points; allowed: at least 1")
    with style():
        figure = new_figure(height=3.6)
        axes = figure.subplots()
        line = sorted(frontier, key=lambda point: point.answered)
        axes.plot(
            [p.answered for p in line],
            [p.accuracy for p in line],
            color=COLOURS["blue"],
            marker="o",
            label="most labels at each accuracy",
        )
        if common.answered >= 1:
            axes.plot(common.answered, common.accuracy, "s", color=COLOURS["grey"], markersize=8, label="default noise")
        axes.plot(chosen.answered, chosen.accuracy, "D", color=COLOURS["vermillion"], markersize=9, label="chosen")
        axes.axhline(min_accuracy, color=COLOURS["muted"], linestyle=":", linewidth=1.2, label="minimum accuracy")
        at_the_end = chosen.answered > 0.6 * line[-1].answered
        axes.annotate(
            f"σ {chosen.noise.sigma:g}, σ₁ {chosen.noise.sigma_threshold:g}, T {chosen.noise.threshold:g}",
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
