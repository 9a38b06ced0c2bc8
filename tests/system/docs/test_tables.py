"""Every table of figures in the pages says where its figures come from, and is what they say.

A comment directly above a table is one of

    measured: FILE.csv       stored rows of tests/vectors/measured (SOURCES.md), of which this file, or
                             test_stated_numbers.py for those of `baselines`, makes the figures again
    computed: tests/FILE.py  a test that computes the figures, and names the page
    not stored: REASON       what made them, and why nothing holds them

A table has figures where a cell begins with a number that has decimals.
"""

from __future__ import annotations

import re
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


def tables() -> list[tuple[Path, int, str, str, list[list[str]]]]:
    """Page, line, kind of mark ("" for none), what it names, and the cells, of every table with figures."""
    found = []
    for page in PAGES:
        if str(page.relative_to(ROOT)).startswith(_LEFT_OUT):
            continue
        text = FENCE.sub(lambda block: "\n" * block[0].count("\n"), page.read_text(encoding="utf-8"))
        for match in _TABLE.finditer(text):
            head, _, *rows = map(cells, match[3].splitlines())
            if any(_BEGINS.match(cell) for row in rows for cell in row):
                found.append(
                    (page, text[: match.start()].count("\n") + 1, match[1] or "", match[2] or "", [head, *rows])
                )
    return found


TABLES = tables()
NAMES = [f"{page.stem}-{line}" for page, line, _, _, _ in TABLES]


@pytest.mark.parametrize(("page", "line", "kind", "named"), [each[:4] for each in TABLES], ids=NAMES)
def test_a_table_of_figures_says_where_they_come_from(page: Path, line: int, kind: str, named: str) -> None:
    where = f"{page.relative_to(ROOT)}, line {line}"
    assert kind in ("measured", "computed", "not stored"), f"{where}: no mark above the table"
    if kind == "measured":
        assert (STORED / named).is_file(), where
    elif kind == "computed":
        assert page.name in (ROOT / named).read_text(encoding="utf-8"), where
    else:
        assert len(named.split()) >= 5, f"{where}: no reason"


def of_cells(kind: str, named: str) -> bool:
    return kind == "measured" and "value" in pd.read_csv(STORED / named, nrows=0)


HELD = [each for each in TABLES if of_cells(*each[2:4])]


@pytest.mark.parametrize(("named", "shown"), [each[3:] for each in HELD], ids=[each[3] for each in HELD])
def test_a_table_of_stored_figures_is_theirs(named: str, shown: list[list[str]]) -> None:
    """Columns of the file: row and column of the table (from 1), the how manieth figure of the cell, and one value.

    A figure is the mean of its values, and what stands behind ± the half-width of their 95 % interval (Student's t).
    """
    rows = pd.read_csv(STORED / named)
    assert len(rows)
    for (row, column, figure), of in rows.groupby(["row", "column", "figure"]):
        found = list(_FIGURE.finditer(shown[int(row)][int(column) - 1]))[int(figure) - 1]
        scale = 100 if found[4] else 1
        mean, half = mean_and_interval(scale * of["value"].to_numpy(np.float64))
        decimals = len(found[2] or "")
        assert found[1].replace(",", "") == f"{mean:.{decimals}f}", (row, column, mean)
        assert found[3] == (None if found[3] is None else f"{half:.{decimals}f}"), (row, column, half)


def test_every_stored_file_is_shown() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert not [path.name for path in STORED.iterdir() if path.name not in pages]
