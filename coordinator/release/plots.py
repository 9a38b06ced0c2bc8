"""The plots of a release's report as inline SVG."""

from __future__ import annotations

import io
from typing import Any  # rows of a statement

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from protocols.plural import counted
from runtime.figures import COLOURS, inlined

_INK = COLOURS["ink"]
_STYLE: dict[Any, Any] = {  # its keys are a Literal of Matplotlib's stubs
    "svg.hashsalt": "conclave", "svg.fonttype": "none", "font.family": ["DejaVu Sans"], "font.size": 9.0,
    "axes.edgecolor": COLOURS["grey"], "axes.labelcolor": _INK, "text.color": _INK, "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK, "xtick.color": COLOURS["grey"], "ytick.color": COLOURS["grey"], "axes.spines.top": False,
    "axes.spines.right": False,
}  # fmt: skip
# More seats than this are drawn as points, sorted by budget used.
_MOST_BARS = 40


def budget_plot(seats: list[dict[str, Any]]) -> str:
    """The budget used by each seat as a share of its cap, in the roster's order, as SVG."""
    with matplotlib.rc_context(_STYLE):
        shares = [100 * seat["budget_used_share"] for seat in seats]
        names = [seat["seat"] for seat in seats]
        figure = Figure(figsize=(6.6, max(1.6, 0.5 + 0.24 * len(seats)) if len(seats) <= _MOST_BARS else 3.0))
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        if len(seats) <= _MOST_BARS:
            axes.barh(range(len(seats)), shares, color=COLOURS["blue"])
            axes.set_yticks(range(len(seats)), names)
            axes.invert_yaxis()
            axes.set_xlabel("budget used, % of the cap")
            axes.set_xlim(0, 100)
            axes.axvline(100, color=COLOURS["vermillion"])
        else:
            axes.plot(sorted(shares), ".", color=COLOURS["blue"])
            axes.set_xlabel("seats, in order of budget used")
            axes.set_ylabel("budget used, % of the cap")
            axes.set_ylim(0, 103)
            axes.axhline(100, color=COLOURS["vermillion"])
        highest = max(shares)
        said = f"Budget used by each of {counted(len(seats), 'seat')}, as a share of its cap: at most {highest:.1f} %."
        return _svg(figure, "budget", said)


def batch_plot(batches: list[tuple[int, int]]) -> str:
    """The numbers of answered and refused queries of each batch, as SVG."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(6.6, 2.4))
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        answered = [each for _, each in batches]
        refused = [size - each for size, each in batches]
        numbers = range(len(batches))
        axes.bar(numbers, answered, color=COLOURS["blue"], label="answered")
        axes.bar(numbers, refused, bottom=answered, color=COLOURS["grey"], label="refused")
        axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
        axes.set_xlabel("batch")
        axes.set_ylabel("queries")
        axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2)
        said = f"{counted(len(batches), 'batch')}: {counted(sum(answered), 'query')} answered, {sum(refused)} refused."
        return _svg(figure, "batches", said)


def _svg(figure: Figure, name: str, alt: str) -> str:
    figure.tight_layout()
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None}, transparent=True)
    return inlined(text.getvalue(), name=name, alt=alt)
