"""Reproduced papers as Markdown: how many cells are near, then of each table the cells that were compared.

A table of many cells has one row a figure, with the ends of its ranges; every cell is in cells.csv.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from simulations.papers.paper import NEAR, Cell, Measured
from simulations.papers.shown import HEAD, cell_row, difference, meanings, near, number, reasons, verdict_points
from simulations.papers.shown import verdict_text as total

_MANY: Final = 10  # compared cells from which on a table has one row a figure
_ENDS: Final = ("figure", "printed", "ours", "difference", "near")  # of all cells of a figure


def papers_markdown(measured: Sequence[Measured]) -> str:
    """A page without a title: the verdict, then a section of each paper and its tables."""
    lines = [f"{total([cell for one in measured for cell in one.cells])}.", ""]
    lines += [f"- {title} {said}" for title, said in verdict_points(measured)]
    said: set[str] = set()
    for paper in dict.fromkeys(one.paper for one in measured):
        lines += ["", f"## {paper.title}", "", f"{paper.citation}, <{paper.link}>.", ""]
        lines += [f"- {sentence}" for sentence in paper.about]
        for one in measured:
            if one.paper is paper:
                lines += ["", f"### `{paper.name} --only {one.table.name}`", ""]
                lines += [f"{one.table.caption}. {_counted(one.cells)}.", "", *_table(one.cells, said)]
    return "\n".join(lines) + "\n"


def _table(cells: Sequence[Cell], said: set[str]) -> list[str]:
    """The rows, and below them why cells are not near or not had, and what figures mean: once a page (`said`)."""
    compared = [cell for cell in cells if cell.difference is not None]
    shown = compared or [cell for cell in cells if cell.ours is not None]
    why = [reason for cell in shown for reason in reasons(cell)]
    missing = dict.fromkeys(reason for cell in cells if near(cell) == "not had" for reason in reasons(cell))
    letters = {reason: _letter(place) for place, reason in enumerate(dict.fromkeys(why))}
    if len(shown) > _MANY:
        head, rows = _ENDS, [_folded(name, [cell for cell in shown if cell.figure == name]) for name in _figures(shown)]
    else:
        head, rows = HEAD, [_marked(cell, letters) for cell in shown]
    below = [f"- {f'({letter})' if head is HEAD else 'Not near:'} {reason}." for reason, letter in letters.items()]
    below += [f"- Not had: {reason}." for reason in missing]
    for means, figures in meanings(shown).items():
        if means not in said:
            said.add(means)
            below.append(f"- {', '.join(figures)}: {means}.")
    return [_row(head), f"{'|---' * len(head)}|", *map(_row, rows), *([""] if below else []), *below]


def _marked(cell: Cell, letters: dict[str, str]) -> list[str]:
    """A cell under HEAD, and the letters of what stands below."""
    marks = ", ".join(letters[reason] for reason in reasons(cell))
    *first, last = cell_row(cell)
    return [*first, f"{last} ({marks})" if marks else last]


def _folded(figure: str, cells: Sequence[Cell]) -> list[str]:
    """All cells of one figure under _ENDS: the ends of what is printed, of ours and of the differences."""
    printed = [cell.printed for cell in cells if cell.printed is not None]
    ours = [cell.ours for cell in cells if cell.ours is not None]
    compared = sorted((cell for cell in cells if cell.difference is not None), key=lambda cell: cell.difference or 0)
    many = f"{sum(bool(cell.near) for cell in compared)} of {len(compared)}" if compared else ""
    unit = cells[0].unit
    ends = [[number(value, unit) for value in (min(of), max(of))] if of else [] for of in (printed, ours)]
    return [figure, *map(_ends, ends), _ends([difference(cell) for cell in (*compared[:1], *compared[-1:])]), many]


def _ends(of: Sequence[str]) -> str:
    return " to ".join(dict.fromkeys(of))


def _counted(cells: Sequence[Cell]) -> str:
    """How many cells are near, of those that count, and how many others there are."""
    kinds = Counter(near(cell) for cell in cells if not cell.reproduces)
    words = {"other": "of something other", "not had": "not had", "–": "of ours alone"}
    rest = [f"{kinds[kind]} {word}" for kind, word in words.items() if kinds[kind]]
    counted = total(cells).removesuffix(f" cells {NEAR}")
    return ", ".join([*([f"Near: {counted}"] if any(cell.reproduces for cell in cells) else []), *rest])


def _figures(cells: Sequence[Cell]) -> list[str]:
    return list(dict.fromkeys(cell.figure for cell in cells))


def _letter(place: int) -> str:
    return "abcdefghijklmnopqrstuvwxyz"[place]


def _row(words: Sequence[str]) -> str:
    return f"| {' | '.join(words)} |"
