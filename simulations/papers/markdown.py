"""Reproduced papers as Markdown: how many cells are near, then table by table each cell, and why it is not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from simulations.papers.paper import Cell, Measured
from simulations.papers.shown import HEAD, cell_row, meanings, near, reasons, verdict_points, verdict_text

_COUNTS: Final = ("paper", "table", "near", "near, not counted", "not had", "of ours alone")


def papers_markdown(measured: Sequence[Measured]) -> str:
    """A page without a title: the verdict, then a section of each paper and its tables."""
    cells = [cell for one in measured for cell in one.cells]
    lines = [f"{verdict_text(cells)}.", ""]
    lines += [f"- {title} {said}" for title, said in verdict_points(measured)]
    lines += ["", _row(_COUNTS), _row(["---"] * len(_COUNTS)), *(_row(_counted(one)) for one in measured)]
    for paper in dict.fromkeys(one.paper for one in measured):
        lines += ["", f"## {paper.title}", "", f"{paper.citation}, <{paper.link}>.", ""]
        lines += [f"- {sentence}" for sentence in paper.about]
        for one in measured:
            if one.paper is paper:
                lines += ["", f"### `{paper.name} --only {one.table.name}`", "", f"{one.table.caption}.", ""]
                lines += _table(one.cells)
    return "\n".join(lines) + "\n"


def _table(cells: Sequence[Cell]) -> list[str]:
    """The rows, and below them what the letters behind "no", "other" and "not had" stand for."""
    letters = {reason: _letter(place) for place, reason in enumerate(dict.fromkeys(_all(cells)))}
    lines = [_row(HEAD), _row(["---"] * len(HEAD))]
    for cell in cells:
        *shown, last = cell_row(cell)
        marks = ", ".join(letters[reason] for reason in reasons(cell))
        lines.append(_row([*shown, f"{last} ({marks})" if marks else last]))
    below = [*(f"- ({letter}) {reason}." for reason, letter in letters.items())]
    below += [f"- {', '.join(figures)}: {means}." for means, figures in meanings(cells).items()]
    return [*lines, "", *below] if below else lines


def _counted(one: Measured) -> list[str]:
    """How many cells of a table are near, of those that count, and how many do not."""
    shown = Counter(near(cell) for cell in one.cells)
    counted = [cell for cell in one.cells if cell.reproduces]
    other = [cell for cell in one.cells if near(cell) == "other"]
    return [
        one.paper.name, f"`{one.table.name}`", _share(counted), _share(other), str(shown["not had"] or ""),
        str(shown["–"] or ""),
    ]  # fmt: skip


def _share(cells: Sequence[Cell]) -> str:
    """How many are near, and of how many; "" of none."""
    return f"{sum(bool(cell.near) for cell in cells)} of {len(cells)}" if cells else ""


def _all(cells: Sequence[Cell]) -> list[str]:
    return [reason for cell in cells for reason in reasons(cell)]


def _letter(place: int) -> str:
    return "abcdefghijklmnopqrstuvwxyz"[place]


def _row(words: Sequence[str]) -> str:
    return f"| {' | '.join(words)} |"
