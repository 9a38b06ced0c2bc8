"""The plots of a release's report as inline SVG."""

from __future__ import annotations

import io
from typing import Any  # rows of a statement

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

_BLUE, _GREY, _VERMILLION = "#0072b2", "#8b95a3", "#d55e00"
# More seats than this are drawn as points, sorted by budget used.
_MOST_BARS = 40


def budget_plot(seats: list[dict[str, Any]]) -> str:
    """The budget used by each seat as a share of its cap, in the roster's order, as SVG."""
    with matplotlib.rc_context({"svg.hashsalt": "conclave", "font.family": ["DejaVu Sans"], "font.size": 9.0}):
        shares = [100 * seat["budget_used_share"] for seat in seats]
        names = [seat["seat"] for seat in seats]
        figure = Figure(figsize=(6.6, max(1.6, 0.5 + 0.24 * len(seats)) if len(seats) <= _MOST_BARS else 3.0))
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        if len(seats) <= _MOST_BARS:
            axes.barh(range(len(seats)), shares, color=_BLUE)
            axes.set_yticks(range(len(seats)), names)
            axes.invert_yaxis()
            axes.set_xlabel("budget used, % of the cap")
            axes.set_xlim(0, 100)
            axes.axvline(100, color=_VERMILLION)
        else:
            axes.plot(sorted(shares), ".", color=_BLUE)
            axes.set_xlabel("seats, in order of budget used")
            axes.set_ylabel("budget used, % of the cap")
            axes.set_ylim(0, 103)
            axes.axhline(100, color=_VERMILLION)
        return _svg(figure)


def batch_plot(batches: list[tuple[int, int]]) -> str:
    """The numbers of answered and refused queries of each batch, as SVG."""
    with matplotlib.rc_context({"svg.hashsalt": "conclave", "font.family": ["DejaVu Sans"], "font.size": 9.0}):
        figure = Figure(figsize=(6.6, 2.4))
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        answered = [each for _, each in batches]
        refused = [size - each for size, each in batches]
        axes.bar(range(len(batches)), answered, color=_BLUE, label="answered")
        axes.bar(range(len(batches)), refused, bottom=answered, color=_GREY, label="refused")
        axes.set_xlabel("batch")
        axes.set_ylabel("queries")
        axes.legend(frameon=False)
        return _svg(figure)


def _svg(figure: Figure) -> str:
    figure.tight_layout()
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None}, transparent=True)
    return text.getvalue()[text.getvalue().index("<svg") :]
