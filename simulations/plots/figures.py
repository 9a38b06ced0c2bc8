"""The figures of a run, and writing figures as SVG and PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from runtime.files import write_atomically
from simulations.pipeline import RunResult
from simulations.plots.accuracy import against_baselines, teachers
from simulations.plots.budgets import budget_groups, shares, spending
from simulations.plots.groups import group_drawings
from simulations.plots.style import Drawing, inline_svg, png_bytes, svg_text
from simulations.results.files import Summary

__all__ = ["Drawing", "drawings", "inline_svg", "write_figure", "write_figures"]


def drawings(result: RunResult, figures: Summary) -> list[Drawing]:
    """The figures of a run, in the order of a report. figures: the result of `summary`."""
    groups = budget_groups(result, figures["exhausted_first"])
    drawn = [against_baselines(figures), spending(result, groups), shares(result, groups)]
    if result.study.budgets.once:
        # One charge makes no curve.
        del drawn[1]
    if result.teacher_accuracy is not None:
        drawn.append(teachers(result.teacher_accuracy, plurality=result.plurality_accuracy))
    if result.by_group is not None:
        drawn += group_drawings(result.by_group)
    return drawn


def write_figures(drawn: Sequence[Drawing], out: Path) -> list[Path]:
    """Writes every drawing as out/figures/NAME.svg and NAME.png; returns the paths.

    Raises StorageFailed; each file is whole or absent.
    """
    paths = []
    for drawing in drawn:
        paths += _write(drawing.svg, drawing.figure, out / "figures" / drawing.name)
    return paths


def write_figure(figure: Figure, path: Path) -> list[Path]:
    """Writes one figure as `path`.svg and `path`.png (path without a suffix); returns both paths."""
    return _write(svg_text(figure), figure, path)


def _write(text: str, figure: Figure, path: Path) -> list[Path]:
    svg, png = path.with_name(path.name + ".svg"), path.with_name(path.name + ".png")
    write_atomically(svg, text)
    write_atomically(png, png_bytes(figure))
    return [svg, png]
