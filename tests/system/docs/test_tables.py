"""Every table of figures in the pages says where its figures come from, and is what they say.

A comment directly above a table is one of

    measured: FILE.csv       stored rows of tests/vectors/measured (SOURCES.md), of which this file, or
                             test_stated_numbers.py for those of `baselines`, makes the figures again
    computed: tests/FILE.py  a test that computes the figures, and names the page
    not stored: REASON       what made them, and why nothing holds them

A table has figures where a cell begins with a number that has decimals.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from simulations.stages.label import mean_and_interval
from tests.harness.pages import FENCE, PAGES, ROOT

STORED = ROOT / "tests" / "vectors" / "measured"
_TABLE = re.compile(r"^(?:<!-- ([a-z ]+): (.+?) -->\n)?(\|.*\n\|[-:| ]+\|\n(?:\|.*\n)+)", re.MULTILINE)
_BEGINS = re.compile(r"[+≤≥<>−-]?[\d,]+\.\d")
_FIGURE = re.compile(r"([+-]?[\d,]+(?:\.(\d+))?)(?: ± ([\d.]+))?( %)?")
# Decisions say what was known on their day; generated tables are compared with the program, or with stored rows.
_LEFT_OUT = tuple(
    f"docs/{name}"
    for name in ("decisions/", "reference/command-line.md", "reference/errors.md", "reference/reproduced-papers.md")
)


def cells(line: str) -> list[str]:
    return [cell.strip().strip("*") for cell in line.strip().strip("|").split("|")]


@dataclass(frozen=True)
class Table:
    """A table with figures: its page and line, the mark above it ("" for none) and what that names, and its cells."""

    page: Path
    line: int
    kind: str
    named: str
    cells: list[list[str]]

    @property
    def made_here(self) -> bool:
        return self.kind == "measured" and "value" in pd.read_csv(STORED / self.named, nrows=0)


def tables() -> list[Table]:
    found = []
    for page in PAGES:
        if str(page.relative_to(ROOT)).startswith(_LEFT_OUT):
            continue
        text = FENCE.sub(lambda block: "\n" * block[0].count("\n"), page.read_text(encoding="utf-8"))
        for match in _TABLE.finditer(text):
            head, _, *rows = map(cells, match[3].splitlines())
            line = text[: match.start()].count("\n") + 1
            if any(_BEGINS.match(cell) for row in rows for cell in row):
                found.append(Table(page, line, match[1] or "", match[2] or "", [head, *rows]))
    return found


TABLES = tables()


def test_a_table_of_figures_says_where_they_come_from(subtests: pytest.Subtests) -> None:
    for table in TABLES:
        with subtests.test(f"{table.page.relative_to(ROOT)}, line {table.line}"):
            assert table.kind in ("measured", "computed", "not stored"), "no mark above the table"
            if table.kind == "measured":
                assert (STORED / table.named).is_file()
            elif table.kind == "computed":
                assert table.page.name in (ROOT / table.named).read_text(encoding="utf-8")
            else:
                assert len(table.named.split()) >= 5, "no reason"


def test_a_table_of_stored_figures_is_theirs(subtests: pytest.Subtests) -> None:
    held = [table for table in TABLES if table.made_here]
    assert held
    for table in held:
        with subtests.test(table.named):
            check(table)


def check(table: Table) -> None:
    """Columns of the file: row and column of the table (from 1), the how manieth figure of the cell, and one value.

    A figure is the mean of its values, and what stands behind ± the half-width of their 95 % interval (Student's t).
    All figures of a column are stored, or none.
    """
    rows = pd.read_csv(STORED / table.named)
    shown = {
        (at, column)
        for at, row in enumerate(table.cells)
        for column in rows["column"].unique()
        if _BEGINS.match(row[column - 1])
    }
    assert set(zip(rows["row"], rows["column"], strict=True)) == shown
    for (row, column, figure), of in rows.groupby(["row", "column", "figure"]):
        found = list(_FIGURE.finditer(table.cells[int(row)][int(column) - 1]))[int(figure) - 1]
        scale = 100 if found[4] else 1
        mean, half = mean_and_interval(scale * of["value"].to_numpy(np.float64))
        decimals = len(found[2] or "")
        assert found[1].replace(",", "") == f"{mean:.{decimals}f}", (row, column, mean)
        assert found[3] == (None if found[3] is None else f"{half:.{decimals}f}"), (row, column, half)


def test_every_stored_file_is_shown() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert not [path.name for path in STORED.iterdir() if path.name not in pages]
