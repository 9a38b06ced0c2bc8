"""What a paper is here: its tables, the parts that compute them, and cells that hold a printed figure beside ours."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal  # Any: the values of a JSON object

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
    """Rows of a table that are computed together, and kept once they are. needs: the files without which it fails.

    compute may raise any ConclaveError. One part has one name in its table.
    """

    name: str
    compute: Callable[[Task], Sequence[Cell]]
    needs: tuple[DataSource, ...] = ()


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
    """What the paper printed: simulations/papers/PAPER.json."""
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
