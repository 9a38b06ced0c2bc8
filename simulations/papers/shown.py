"""Cells in words: for the terminal, for the page, and the verdict over all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from simulations.papers.paper import NEAR, Cell, Measured, Unit

_DECIMALS: Final[dict[Unit, int]] = {
    "percent": 2, "points": 2, "count": 0, "epsilon": 3, "order": 1, "seconds": 1, "mebibytes": 0,
}  # fmt: skip
_AFTER: Final[dict[Unit, str]] = {"percent": " %", "points": " points", "seconds": " s", "mebibytes": " MiB"}
HEAD: Final = ("of", "figure", "printed", "ours", "difference", "near")


def number(value: float | None, unit: Unit, *, half: float | None = None) -> str:
    """A figure with the decimals of its unit, and the half-width of its interval; "–" for None."""
    if value is None:
        return "–"
    around = "" if half is None else f" ± {half:,.{max(1, _DECIMALS[unit])}f}"
    return f"{value:,.{_DECIMALS[unit]}f}{around}{_AFTER.get(unit, '')}"


def difference(cell: Cell) -> str:
    """The difference in words; "" where there is nothing to compare."""
    less = cell.difference
    if less is None:
        return ""
    return f"{less:+.2f} points" if cell.unit in ("percent", "points") else f"{100 * less:+.1f} %"


def near(cell: Cell) -> str:
    """Whether the cell is near; of other data or another mechanism it says so instead, as it reproduces nothing."""
    if cell.difference is None:
        return "not had" if cell.ours is None else "–"
    if cell.other:
        return "other"
    return "yes" if cell.near else "no"


def cell_row(cell: Cell) -> list[str]:
    """The cell under HEAD."""
    return [
        cell.row, cell.figure, number(cell.printed, cell.unit), number(cell.ours, cell.unit, half=cell.half),
        difference(cell), near(cell),
    ]  # fmt: skip


def meanings(cells: Sequence[Cell]) -> dict[str, list[str]]:
    """What figures of a table mean, and which figures: each sentence once."""
    found: dict[str, list[str]] = {}
    for cell in cells:
        if cell.means:
            named = found.setdefault(cell.means, [])
            if cell.figure not in named:
                named.append(cell.figure)
    return found


def reasons(cell: Cell) -> list[str]:
    """Why the cell does not count, or is not near; nothing of a cell that is near, or has no printed figure."""
    # What is other than in the paper is named, near or not.
    found = [f"{cell.other}, in place of the paper's own"] if cell.other else []
    if cell.ours is None or cell.near is False:
        found.append(cell.why or "no reason is known")
    return found


def notes(cells: Sequence[Cell]) -> list[str]:
    """What the figures of a table mean, and why cells are not near or are missing: each sentence once."""
    found: dict[str, list[str]] = {}
    for cell in cells:
        for reason in reasons(cell):
            # All of a row is other, not one figure of it.
            where = cell.row if cell.other and reason.startswith(cell.other) else f"{cell.row}, {cell.figure}"
            found.setdefault(reason, []).append(where)
    said = [f"{', '.join(figures)}: {means}" for means, figures in meanings(cells).items()]
    return [*said, *(f"{'; '.join(dict.fromkeys(where))}: {why}" for why, where in found.items())]


def verdict_text(cells: Sequence[Cell]) -> str:
    """How many of the cells that have a printed figure and ours, of the paper's own data and mechanism, are near."""
    counted = [cell for cell in cells if cell.reproduces]
    if not counted:
        return "no cell to compare"
    return f"{sum(bool(cell.near) for cell in counted)} of {len(counted)} cells {NEAR}"


def verdict_points(measured: Sequence[Measured]) -> list[tuple[str, str]]:
    """Each paper's own count, and how many cells were not compared."""
    by_paper: dict[str, list[Cell]] = {}
    for one in measured:
        by_paper.setdefault(one.paper.title, []).extend(one.cells)
    points = []
    for title, cells in by_paper.items():
        others = Counter(near(cell) for cell in cells if not cell.reproduces)
        words = {
            "not had": "whose votes or data cannot be had", "–": "of ours alone",
            "other": "of other data or another mechanism than the paper's",
        }  # fmt: skip
        rest = "".join(f"; {others[key]} {said}" for key, said in words.items() if others[key])
        points.append((f"{title}:", f"{verdict_text(cells)}{rest}."))
    return points
