"""What a paper is here: its tables, the parts that compute them, and cells that hold a printed figure beside ours.

Cells in words: for the terminal, for the page, and the verdict over all of them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import (
    Any,  # Any: the values of a JSON object
    Final,
    Literal,
)

import numpy as np

from protocols.reading import parse_json, read_json
from simulations.datasets.sources import DataSource
from simulations.progress import Reporter
from simulations.stages.inputs import Host
from simulations.stages.label import mean_and_interval

# percent: in points of 100; points: of a difference of percentages; seconds and mebibytes: have no printed figure.
Unit = Literal["percent", "points", "count", "epsilon", "order", "seconds", "mebibytes"]
_IN_POINTS: Final = ("percent", "points")
NEAR_POINTS: Final = 1.0
NEAR_SHARE: Final = 0.05
NEAR: Final = f"within {NEAR_POINTS:g} point or {NEAR_SHARE:.0%}".replace("%", " %")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One figure: what the paper printed (None: nothing), and what was measured here (None: it cannot be had).

    row and figure name it within its table. half: of the 95 % interval over so many `seeds`; None where nothing is
    random, or for one seed. other: the data or the mechanism that is here in place of the paper's own, "" for none.
    means: what the figure says, of an epsilon in particular; why: the reason where it is not near, or is missing.
    """

    row: str
    figure: str
    unit: Unit
    printed: float | None
    ours: float | None
    half: float | None = None
    seeds: int = 0
    other: str = ""
    means: str = ""
    why: str = ""

    @property
    def difference(self) -> float | None:
        """Ours less the printed figure: of percentages in points, of others as a share of the printed figure."""
        if self.printed is None or self.ours is None:
            return None
        less = self.ours - self.printed
        return less if self.unit in _IN_POINTS else less / self.printed

    @property
    def near(self) -> bool | None:
        """Whether ours is within 1 point (percentages) or 5 % (others); None where there is nothing to compare."""
        difference = self.difference
        if difference is None:
            return None
        # Rounding of the difference must not decide: 1 % of 100 points is a rounding error of 1e-14.
        return abs(difference) <= (NEAR_POINTS if self.unit in _IN_POINTS else NEAR_SHARE) + 1e-9

    @property
    def reproduces(self) -> bool:
        """Whether the cell counts in the verdict: both figures are there, of the same data and mechanism."""
        return self.difference is not None and not self.other


@dataclass(frozen=True)
class Task:
    """What a part is given. seeds: of noise, partitions, teachers and students, whichever the part draws."""

    seeds: tuple[int, ...]
    host: Host
    reporter: Reporter


@dataclass(frozen=True)
class Part:
    """Rows of a table that are computed together, and kept once they are. needs: the files without which it fails;
    trains: kinds of students that `pip install ./benchmarks` adds, without which it fails too.

    compute may raise any ConclaveError. One part has one name in its table.
    """

    name: str
    compute: Callable[[Task], Sequence[Cell]]
    needs: tuple[DataSource, ...] = ()
    trains: tuple[str, ...] = ()


@dataclass(frozen=True)
class PaperTable:
    """A table or a figure of a paper. name: as --only takes it; caption: what it shows, with its settings."""

    name: str
    caption: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Paper:
    """A paper, and what of it is computed. about: sentences on all of its tables."""

    name: str
    title: str
    citation: str
    link: str
    about: tuple[str, ...]
    tables: tuple[PaperTable, ...]


@dataclass(frozen=True)
class Measured:
    """A table with its cells."""

    paper: Paper
    table: PaperTable
    cells: tuple[Cell, ...]


def printed_figures(paper: str) -> dict[str, Any]:
    """What the paper printed: benchmarks/papers/PAPER.json."""
    found = read_json(Path(__file__).with_name(f"{paper}.json"))
    assert isinstance(found, dict)  # a file of this project
    return found


def points(share: float) -> float:
    """A printed share as a percentage, without the rounding error of the product."""
    return round(100 * share, 6)


def over_seeds(values: Sequence[float]) -> dict[str, Any]:
    """`ours`, `half` and `seeds` of a cell: the mean of at least one value, one for each seed, and its interval."""
    mean, half = mean_and_interval(np.asarray(values, dtype=np.float64))
    return {"ours": mean, "half": half, "seeds": len(values)}


def cells_text(cells: Sequence[Cell]) -> str:
    """Cells as JSON, which `read_cells` takes."""
    return json.dumps([vars(cell) for cell in cells], allow_nan=False)


def read_cells(text: str, *, where: str) -> tuple[Cell, ...]:
    """The cells of a kept part. Raises DataCorrupt."""
    return tuple(Cell(**each) for each in parse_json(text, where=where))


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
