"""The tables of papers, part by part: a part that is finished is kept, and not computed again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import tomli_w

from benchmarks.papers.paper import (
    Cell,
    Measured,
    Paper,
    PaperTable,
    Part,
    Task,
    cells_text,
    printed_figures,
    read_cells,
)
from coordinator.students import STUDENTS
from protocols.errors import DataUnavailable, InvalidInput
from protocols.reading import read_text
from runtime.files import write_atomically
from simulations.datasets.dataset import content_digest
from simulations.datasets.sources import ENVIRONMENT, data_folder
from simulations.source import source_digest

# What a kept part depends on, besides data and printed figures: the code of papers and stages, and of what they call.
_CODE = (
    "benchmarks.papers", "benchmarks.typical_case", "benchmarks.bayesian", "benchmarks.label_law",
    "simulations.stages", "simulations.setup", "simulations.datasets",
    "coordinator.queries", "coordinator.students", "party.teachers", "protocols.mechanisms",
    "protocols.budgets", "protocols.bounds", "protocols.research",
)  # fmt: skip
_CELLS_BYTES = 2**24


@dataclass(frozen=True)
class Wanted:
    """What was asked for: a paper's name or "all", the tables of --only (empty: all), and the seeds."""

    name: str
    papers: tuple[Paper, ...]
    only: tuple[str, ...]
    seeds: tuple[int, ...]

    @property
    def tables(self) -> list[tuple[Paper, PaperTable]]:
        """The tables, paper by paper."""
        return [(paper, one) for paper in self.papers for one in paper.tables if not self.only or one.name in self.only]

    @property
    def config(self) -> str:
        """What was asked for, as TOML."""
        return tomli_w.dumps({"paper": self.name, "only": list(self.only), "seeds": list(self.seeds)})


def wanted(name: str, papers: Sequence[Paper], *, only: Sequence[str], seeds: tuple[int, ...]) -> Wanted:
    """What was asked for. Raises InvalidInput for a table that none of the papers has."""
    tables = [table.name for paper in papers for table in paper.tables]
    if unknown := [each for each in only if each not in tables]:
        raise InvalidInput(f"table is {unknown[0]!r}; allowed: {', '.join(dict.fromkeys(tables))}")
    return Wanted(name, tuple(papers), tuple(only), seeds)


def check_data(asked: Wanted, data_dir: Path | None) -> None:
    """Raises DataUnavailable, before anything runs, for data that a part needs: what is missing, and how to get it;
    InvalidInput for kinds of students that are not installed."""
    needs = {source.folder: source for _, table in asked.tables for part in table.parts for source in part.needs}
    root = data_folder(data_dir)
    missing = [source for folder, source in needs.items() if root is None or not (root / folder).is_dir()]
    if not missing:
        _check_students(asked)
        return
    where = (
        f"no folder of data was named: --data-dir was not given and {ENVIRONMENT} is not set"
        if root is None
        else f"{root} has no folder {', '.join(source.folder for source in missing)}"
    )
    without = [
        table.name
        for _, table in asked.tables
        if not any(source in missing for part in table.parts for source in part.needs)
    ]
    steps = "; ".join(f"for {source.folder}/: {source.steps} (from {source.url})" for source in missing)
    rest = f". Without these there is --only {', --only '.join(without)}" if without else ""
    raise DataUnavailable(f"{where}. Next: {steps}; then set {ENVIRONMENT}=DIR or give --data-dir DIR{rest}")


def _check_students(asked: Wanted) -> None:
    """Raises InvalidInput for kinds of students that are not installed."""
    trains = {table.name: {kind for part in table.parts for kind in part.trains} for _, table in asked.tables}
    if missing := sorted({kind for kinds in trains.values() for kind in kinds if kind not in STUDENTS}):
        rest = [name for name, kinds in trains.items() if not kinds]
        others = f", or --only {', --only '.join(rest)}" if rest else ""
        raise InvalidInput(
            f"not installed: the students {', '.join(missing)} of these tables; allowed: `pip install ./benchmarks` in "
            f"this clone{others}"
        )


def measure(asked: Wanted, task: Task, *, kept: Path) -> Iterator[Measured]:
    """Each table with its cells, in order. Parts that `kept` holds are not computed again.

    Raises ConclaveError; each part is kept there once it is finished.
    """
    task = replace(task, seeds=asked.seeds)
    for paper, table in asked.tables:
        cells = [cell for part in table.parts for cell in _cells(paper, table, part, task, kept=kept)]
        yield Measured(paper, table, tuple(cells))


def _cells(paper: Paper, table: PaperTable, part: Part, task: Task, *, kept: Path) -> Sequence[Cell]:
    about = f"{paper.name} {table.name} {part.name} {task.seeds} {printed_figures(paper.name)} {source_digest(*_CODE)}"
    path = kept / f"{content_digest(text=about)}.json"
    if path.exists():
        return read_cells(read_text(path, most=_CELLS_BYTES), where=str(path))
    with task.reporter.stage(f"{paper.name} {table.name}, {part.name}"):
        cells = tuple(part.compute(task))
    write_atomically(path, cells_text(cells))
    return cells
