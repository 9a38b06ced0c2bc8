"""The figure of a comparison: test accuracy of every method against epsilon."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.ticker import FuncFormatter

from simulations.baselines.table import COVERED
from simulations.plots.style import (
    COLOURS,
    DASHES,
    MARKERS,
    SERIES,
    Drawing,
    light_grid,
    new_figure,
    percent_axis,
    style,
)


def comparison_drawing(summary: pd.DataFrame) -> Drawing:
    """Lines with intervals for methods that have an epsilon, dotted lines across for those without privacy."""
    with style():
        figure = new_figure(height=4.2)
        axes = figure.subplots()
        private = summary[summary["epsilon"].notna() & summary["accuracy"].notna()]
        for at, (method, rows) in enumerate(private.groupby("method", sort=False)):
            x, mean, low, high = (
                pd.to_numeric(rows[name]).to_numpy(dtype=float)
                for name in ("epsilon", "accuracy", "accuracy_low", "accuracy_high")
            )
            colour = COLOURS[SERIES[at % len(SERIES)]]
            dash, marker = DASHES[at % len(DASHES)], MARKERS[at % len(MARKERS)]
            axes.plot(x, mean, color=colour, linestyle=dash, marker=marker, label=str(method))
            if np.isfinite(low).any():
                axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
        for _, row in summary[summary["epsilon"].isna() & summary["accuracy"].notna()].iterrows():
            axes.axhline(row["accuracy"], color=COLOURS["grey"], linewidth=0.9, linestyle=":")
            axes.annotate(
                row["method"], (0.995, row["accuracy"]), xycoords=("axes fraction", "data"),
                ha="right", va="bottom", fontsize=7.5, color=COLOURS["grey"],
            )  # fmt: skip
        axes.set_xlabel("ε of every party")
        axes.set_ylabel("accuracy on the test records")
        percent_axis(axes.yaxis)
        light_grid(axes, "y")
        if not private.empty:
            axes.set_xscale("log")
            ticks = sorted(private["epsilon"].unique())
            axes.set_xticks(ticks)
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.xaxis.set_minor_formatter(FuncFormatter(lambda value, _: ""))
            axes.legend(loc="best", alignment="left")
    return Drawing(
        name="methods",
        caption=f"Accuracy on the same test records. Dotted: without privacy. {COVERED}",
        alt="Chart of the test accuracy of every method against epsilon.",
        figure=figure,
    )
