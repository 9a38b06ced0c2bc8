"""The figure of a comparison: test accuracy of every method against epsilon."""

from __future__ import annotations

import pandas as pd

from simulations.baselines.table import COVERED
from simulations.plots.style import (
    Drawing,
    level_line,
    light_grid,
    line_with_band,
    new_figure,
    percent_axis,
    plain_log_axis,
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
            line_with_band(axes, x, (mean, low, high), number=at, label=str(method))
        for _, row in summary[summary["epsilon"].isna() & summary["accuracy"].notna()].iterrows():
            level_line(axes, row["accuracy"], row["method"])
        axes.set_xlabel("ε of every party")
        axes.set_ylabel("accuracy on the test records")
        percent_axis(axes.yaxis)
        light_grid(axes, "y")
        if not private.empty:
            plain_log_axis(axes)
            axes.set_xticks(sorted(private["epsilon"].unique()))
            axes.legend(loc="best", alignment="left")
    return Drawing(
        name="methods",
        caption=f"Accuracy on the same test records. Dotted: without privacy. {COVERED}",
        alt="Chart of the test accuracy of every method against epsilon.",
        figure=figure,
    )
