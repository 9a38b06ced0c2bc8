"""The style of all figures, and figures as files: SVG, PNG, PDF. Does not use pyplot, which has global state."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import matplotlib
import numpy as np
import scipy
from jaxtyping import Float64
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from numpy import ndarray

from runtime.files import write_atomically
from runtime.page import COLOURS as COLOURS
from runtime.page import inlined

SERIES = ("blue", "vermillion", "green", "purple", "orange", "sky")
MARKERS = ("o", "s", "D", "^", "v", "P")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (7, 2)))
_DOTS_PER_INCH = 160
# Inches, of a figure on a telephone.
_TELEPHONE = 3.6


@dataclass(frozen=True)
class Look:
    """How large a figure and its parts are: inches and points. outlines: text of an SVG is drawn as outlines, so that
    it needs no font where it is shown; otherwise it stays text.
    """

    width: float
    font: float
    line: float
    marker: float
    outlines: bool


PAGE = Look(width=6.6, font=9.0, line=1.8, marker=5.0, outlines=False)
# One column of a two-column paper. A PDF's fonts are embedded whole, as journals ask (TrueType, not Type 3).
PAPER = Look(width=3.3, font=7.0, line=1.1, marker=3.2, outlines=True)


@dataclass(frozen=True, eq=False)
class Drawing:
    """A figure with its file name, caption, and alternative text."""

    name: str
    caption: str
    alt: str
    figure: Figure
    look: Look = PAGE

    @cached_property
    def svg(self) -> str:
        """The figure as `svg_text` gives it, drawn once for its file and for a page."""
        return svg_text(self.figure, look=self.look)

    @cached_property
    def png(self) -> bytes:
        """The figure as `png_bytes` gives it."""
        return png_bytes(self.figure)

    @cached_property
    def narrow(self) -> str:
        """The figure as SVG for a telephone: the same letters, folded, in half the width. The figure stays so."""
        _ = self.svg, self.png  # drawn before it is folded
        with style(self.look):
            _fold(self.figure)
        return svg_text(self.figure, look=self.look)


def style(look: Look = PAGE) -> AbstractContextManager[None]:
    """The matplotlib settings under which figures are made and written."""
    return matplotlib.rc_context(
        {
            "font.family": ["DejaVu Sans"],
            "font.size": look.font,
            "axes.titlesize": look.font + 1,
            "axes.titleweight": "bold",
            "axes.titlelocation": "left",
            "axes.titlepad": 9.0,
            "axes.labelsize": look.font,
            "axes.labelcolor": COLOURS["ink"],
            "axes.titlecolor": COLOURS["ink"],
            "axes.edgecolor": COLOURS["grey"],
            "axes.linewidth": 0.8,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.axisbelow": True,
            "axes.unicode_minus": True,
            "grid.color": COLOURS["grid"],
            "grid.linewidth": 0.7,
            "text.color": COLOURS["ink"],
            "xtick.color": COLOURS["grey"],
            "ytick.color": COLOURS["grey"],
            "xtick.labelcolor": COLOURS["ink"],
            "ytick.labelcolor": COLOURS["ink"],
            "lines.linewidth": look.line,
            "lines.markersize": look.marker,
            "legend.frameon": False,
            "pdf.fonttype": 42,
            "svg.fonttype": "path" if look.outlines else "none",
            # Names inside an SVG depend only on this, so the same figure gives the same bytes.
            "svg.hashsalt": "conclave",
        }
    )


def new_figure(*, height: float, look: Look = PAGE) -> Figure:
    """An empty figure of the look's width; height: inches. Call within `style(look)`."""
    figure = Figure(figsize=(look.width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _lay_out(figure: Figure) -> None:
    """Places a figure's parts, once: Matplotlib would lay the figure out, and draw it twice, for each of its files."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine(None)


def _fold(figure: Figure) -> None:
    """Makes a figure half as wide: texts are folded, of the numbers on a horizontal axis every other is left, and names
    are turned."""
    figure.set_layout_engine("constrained")
    width, height = _TELEPHONE, figure.get_size_inches()[1] + 0.4
    for axes in figure.axes:
        names, limits, legend = [each.get_text() for each in axes.get_yticklabels()], axes.get_xlim(), axes.get_legend()
        named = max(map(len, names), default=0) > 14
        if named:
            axes.set_yticks(axes.get_yticks(), [_folded(each, 22) for each in names])
            height += 0.14 * len(names)
        axes.set_title(_folded(axes.get_title(loc="left"), 20 if named else 30), loc="left")
        axes.set_xlabel(_folded(axes.get_xlabel(), 24 if named else 34))
        axes.set_ylabel(_folded(axes.get_ylabel(), 34))
        texts = [(each, 14) for each in axes.texts] + [(each, 38) for each in (legend.texts if legend else ())]
        for each, most in texts:
            each.set_text(_folded(each.get_text(), most))
        if legend and (place := legend.get_bbox_to_anchor().transformed(axes.transAxes.inverted())).y1 < 0:
            legend.set_bbox_to_anchor((place.x0, place.y1 - 0.25), transform=axes.transAxes)
        if any(
            each.get_text().strip("0123456789.,-\N{MINUS SIGN}%\N{NO-BREAK SPACE} ") for each in axes.get_xticklabels()
        ):
            axes.tick_params(axis="x", labelrotation=45)
        else:
            axes.set_xticks([each for each in axes.get_xticks() if limits[0] <= each <= limits[1]][::2])
        axes.set_xlim(limits)
    for legend in figure.legends:
        legend.set_ncols(1)
        height += 0.16 * len(legend.texts)
    figure.set_size_inches(width, height)


def _folded(words: str, most: int) -> str:
    """The words with no line longer than `most` letters, where they can be broken."""
    return "\n".join(textwrap.fill(line, most) for line in words.split("\n"))


def svg_text(figure: Figure, *, look: Look = PAGE) -> str:
    """The figure as SVG on white."""
    sink = io.StringIO()
    with style(look):
        _lay_out(figure)
        figure.savefig(
            sink, format="svg", facecolor="white", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type"))
        )
    return sink.getvalue()


def png_bytes(figure: Figure) -> bytes:
    """The figure as PNG on white."""
    sink = io.BytesIO()
    with style():
        _lay_out(figure)
        figure.savefig(sink, format="png", dpi=_DOTS_PER_INCH, facecolor="white", metadata={"Software": None})
    return sink.getvalue()


def pdf_bytes(figure: Figure, *, look: Look = PAGE) -> bytes:
    """The figure as PDF on white, its fonts embedded."""
    sink = io.BytesIO()
    with style(look):
        _lay_out(figure)
        figure.savefig(sink, format="pdf", facecolor="white", metadata=dict.fromkeys(("CreationDate", "Creator")))
    return sink.getvalue()


def inline_svg(drawing: Drawing) -> str:
    """The figure as two <svg> elements for an HTML page: a telephone shows the second, anything else the first."""
    wide = inlined(drawing.svg, name=drawing.name, alt=drawing.alt)
    return wide + inlined(drawing.narrow, name=f"{drawing.name}-narrow", alt=drawing.alt, only="telephone")


def spread_labels(positions: Float64[ndarray, " labels"], *, gap: float) -> Float64[ndarray, " labels"]:
    """Positions in the same order, at least `gap` apart, moved as little as can be (least squares).

    By isotonic regression.
    """
    order, apart = np.argsort(positions, kind="stable"), gap * np.arange(len(positions))
    result = np.empty_like(positions)
    result[order] = scipy.optimize.isotonic_regression(positions[order] - apart).x + apart
    return result


def percent_axis(axis: Axis) -> None:
    """Labels an axis of shares in [0, 1] with percentages."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g} %"))


def light_grid(axes: Axes, axis: str) -> None:
    """Grid lines across one axis ("x" or "y") only."""
    if axis == "x":
        axes.xaxis.grid(True)
    else:
        axes.yaxis.grid(True)
    axes.tick_params(length=0 if axis == "y" else 3, axis="y")


def line_with_band(
    axes: Axes,
    x: Float64[ndarray, " points"],
    interval: tuple[Float64[ndarray, " points"], Float64[ndarray, " points"], Float64[ndarray, " points"]],
    *,
    number: int,
    label: str,
) -> None:
    """Joined points and a band. interval: means, lower and upper ends; number: of the line, which gives its look."""
    mean, low, high = interval
    colour = COLOURS[SERIES[number % len(SERIES)]]
    dash, marker = DASHES[number % len(DASHES)], MARKERS[number % len(MARKERS)]
    axes.plot(x, mean, color=colour, linestyle=dash, marker=marker, label=label)
    if np.isfinite(low).any():
        axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)


def level_line(axes: Axes, height: float, name: str) -> None:
    """A dotted line across, with its name at the right."""
    axes.axhline(height, color=COLOURS["grey"], linewidth=0.9, linestyle=":")
    axes.annotate(
        name, (0.995, height), xycoords=("axes fraction", "data"),
        ha="right", va="bottom", fontsize=7.5, color=COLOURS["grey"],
    )  # fmt: skip


def plain_log_axis(axes: Axes) -> None:
    """A logarithmic horizontal axis whose numbers are not powers of ten."""
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(FuncFormatter(lambda value, _: ""))


def write_figures(drawn: Sequence[Drawing], out: Path) -> list[Path]:
    """Writes every drawing as out/figures/NAME.svg and NAME.png; returns the paths.

    Raises StorageFailed; each file is whole or absent.
    """
    paths = []
    for drawing in drawn:
        paths += _write(drawing.svg, drawing.png, out / "figures" / drawing.name)
    return paths


def write_figure(figure: Figure, path: Path) -> list[Path]:
    """Writes one figure as `path`.svg and `path`.png (path without a suffix); returns both paths."""
    return _write(svg_text(figure), png_bytes(figure), path)


def _write(text: str, image: bytes, path: Path) -> list[Path]:
    svg, png = path.with_name(path.name + ".svg"), path.with_name(path.name + ".png")
    write_atomically(svg, text)
    write_atomically(png, image)
    return [svg, png]
