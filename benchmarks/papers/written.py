"""The files of reproduced papers: tidy cells, a page, and Markdown of the cells that were compared.

In Markdown a table of many cells has one row per figure, with the ends of its ranges; every cell is in cells.csv.
"""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import (
    Any,  # values of a row
    Final,
)

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.papers.paper import (
    HEAD,
    NEAR,
    Cell,
    Measured,
    Paper,
    cell_row,
    near,
    notes,
    number,
    reasons,
    verdict_points,
    verdict_text,
)
from benchmarks.papers.paper import verdict_text as total
from benchmarks.papers.running import Wanted
from protocols.study.study import ADJACENCY
from runtime.files import write_atomically
from runtime.page import Tone, document, facts, lines, table, text, verdict
from simulations.results.files import environment

_MANY: Final = 10  # compared cells from which on a table has one row per figure
_COLUMNS: Final = ("figure", "printed", "ours", "near")


def papers_markdown(measured: Sequence[Measured]) -> str:
    """A page without a title: the verdict, then of each paper its tables, and below them why cells are not near."""
    page = [f"{total([cell for one in measured for cell in one.cells])}."]
    counts = verdict_points(measured)
    for paper, (_, counted) in zip(dict.fromkeys(one.paper for one in measured), counts, strict=True):
        mine = [one for one in measured if one.paper is paper]
        shown = {one.table: _shown(one.cells) for one in mine}
        why = dict.fromkeys(reason for cells in shown.values() for cell in cells for reason in reasons(cell))
        letters = {reason: "abcdefghijklmnopqrstuvwxyz"[place] for place, reason in enumerate(why)}
        page += ["", f"## {paper.title}", "", f"{paper.citation}, <{paper.link}>. Here: {counted}", ""]
        page += [f"- {sentence}" for sentence in paper.about]
        for one in mine:
            if shown[one.table]:
                page += ["", f"### {one.table.name}", "", f"{one.table.caption}.", ""]
                page += _table(shown[one.table], letters)
        missing = [reason for one in mine for cell in one.cells if near(cell) == "not had" for reason in reasons(cell)]
        below = [f"({letter}) {reason}" for reason, letter in letters.items()]
        below += [f"Not had: {reason}" for reason in dict.fromkeys(missing)]
        alone = [f"`{one.table.name}`" for one in mine if not shown[one.table]]
        below += [f"In cells.csv alone: {', '.join(alone)}"] if alone else []
        page += ["", *(f"- {line}." for line in below)] if below else []
    return "\n".join(page) + "\n"


def _shown(cells: Sequence[Cell]) -> list[Cell]:
    """The cells that were compared."""
    return [cell for cell in cells if cell.difference is not None]


def _table(cells: Sequence[Cell], letters: dict[str, str]) -> list[str]:
    if len(cells) > _MANY:
        names = dict.fromkeys(cell.figure for cell in cells)
        rows = [_folded(name, [cell for cell in cells if cell.figure == name], letters) for name in names]
    else:
        rows = [[f"{cell.row}: {cell.figure}", number(cell.printed, cell.unit),
                 number(cell.ours, cell.unit, half=cell.half), near(cell) + _marks([cell], letters)]
                for cell in cells]  # fmt: skip
    return [_row(_COLUMNS), f"{'|---' * len(_COLUMNS)}|", *map(_row, rows)]


def _marks(cells: Sequence[Cell], letters: dict[str, str]) -> str:
    """The letters of why some of the cells are not near."""
    marks = sorted({letters[reason] for cell in cells for reason in reasons(cell)})
    return f" ({', '.join(marks)})" if marks else ""


def _folded(figure: str, cells: Sequence[Cell], letters: dict[str, str]) -> list[str]:
    """All cells of one figure: the ends of what is printed and of ours, and how many are near."""
    ends = []
    for of in ([cell.printed for cell in cells], [cell.ours for cell in cells]):
        had = [value for value in of if value is not None]
        ends.append(_ends([number(value, cells[0].unit) for value in (min(had), max(had))]) if had else "")
    compared = [bool(cell.near) for cell in cells if cell.difference is not None]
    many = f"{sum(compared)} of {len(compared)}" if compared else ""
    return [figure, *ends, many + _marks(cells, letters)]


def _ends(of: Sequence[str]) -> str:
    """Both ends, with their unit once; one where they are the same."""
    first, *others = dict.fromkeys(of)
    lower, _, unit = first.partition(" ")
    return f"{lower} to {others[0]}" if others and others[0].endswith(unit) else first


def _row(words: Sequence[str]) -> str:
    return f"| {' | '.join(words)} |"


COVERED = "95 % confidence intervals: Student's t over seeds; a figure without one is not random, or of one seed."
READING = (
    f"Near: percentages {NEAR.replace(' or ', ', counts, orders and epsilons within ')} of the printed figure.",
    "An epsilon that a paper printed is computed from the votes that were cast, so it is private itself and must not "
    "be published. A worst-case epsilon may be.",
    f"A worst-case epsilon is of {ADJACENCY} neighbours, as are those of the papers on PATE; a figure of a paper that "
    "has others says so.",
)


def tidy(measured: Sequence[Measured]) -> pd.DataFrame:
    """One row for each cell; numbers are empty where there is none."""
    rows = [
        {
            "paper": one.paper.name,
            "table": one.table.name,
            **vars(cell),
            "difference": cell.difference,
            "near": cell.near,
        }
        for one in measured
        for cell in one.cells
    ]
    columns = ["paper", "table", *Cell.__dataclass_fields__, "difference", "near"]
    found = pd.DataFrame(rows, columns=columns)
    numbers = ["printed", "ours", "half", "difference"]
    return found.astype({**dict.fromkeys(numbers, "float64"), "near": "boolean"})


def write_papers(asked: Wanted, measured: Sequence[Measured], out: Path) -> pd.DataFrame:
    """Writes cells.csv, cells.parquet, env.json, report.html and report.md; returns the cells.

    Raises StorageFailed; each file is whole or absent.
    """
    found = tidy(measured)
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pandas(found, preserve_index=False), sink, compression="zstd")
    write_atomically(out / "cells.parquet", sink.getvalue())
    write_atomically(out / "cells.csv", found.to_csv(index=False))
    write_atomically(out / "env.json", json.dumps(environment(), indent=2) + "\n")
    write_atomically(out / "report.html", papers_page(asked, measured))
    write_atomically(out / "report.md", papers_markdown(measured))
    return found


def from_tidy(table: pd.DataFrame, papers: Sequence[Paper]) -> list[Measured]:
    """What `tidy` made the rows of; papers: those that the rows name. Tables without a row are left out."""
    words = table.astype(object).where(table.notna(), None)
    found = []
    for paper in papers:
        for one in paper.tables:
            rows = words[(words["paper"] == paper.name) & (words["table"] == one.name)].to_dict("records")
            cells = tuple(_cell({field: row[field] for field in Cell.__dataclass_fields__}) for row in rows)
            if cells:
                found.append(Measured(paper, one, cells))
    return found


def _cell(row: dict[str, Any]) -> Cell:
    """A row's cell; words that are missing in a file of comma-separated values are empty."""
    return Cell(**{**row, **{name: row[name] or "" for name in ("other", "means", "why")}})


def papers_page(asked: Wanted, measured: Sequence[Measured]) -> str:
    """The page as HTML: the verdict, then paper by paper its tables."""
    cells = [cell for one in measured for cell in one.cells]
    counted = [bool(cell.near) for cell in cells if cell.reproduces]
    tone: Tone = "plain" if not counted else "good" if all(counted) else "warn"
    body = [verdict(f"{verdict_text(cells)}.", verdict_points(measured), tone=tone)]
    for paper in asked.papers:
        mine = [one for one in measured if one.paper is paper]
        if not mine:
            continue
        body += [
            f'<section aria-labelledby="{paper.name}"><h2 id="{paper.name}">{text(paper.title)}</h2>',
            f'<p>{text(paper.citation)}, <a href="{text(paper.link)}">{text(paper.link)}</a></p>',
            *([lines(paper.about)] if paper.about else []),
        ]
        for one in mine:
            body.append(table(f"{one.table.name}. {one.table.caption}", HEAD, map(cell_row, one.cells), words=(1,)))
            if said := notes(one.cells):
                body.append(lines(said))
        body.append("</section>")
    body += [
        '<section aria-labelledby="reading"><h2 id="reading">How to read it</h2>', lines([*READING, COVERED]),
        "</section>", '<section aria-labelledby="again"><h2 id="again">Make it again</h2>',
        f"<pre>{text(command_text(asked))}</pre>",
        facts((name, value) for name, value in environment().items() if name != "versions"), "</section>",
    ]  # fmt: skip
    what = asked.papers[0].title if len(asked.papers) == 1 else f"{len(asked.papers)} papers"
    return document(title=what, kind="printed figures beside ours", body="\n".join(body))


def command_text(asked: Wanted) -> str:
    """The command that computes the same tables."""
    only = [word for name in asked.only for word in ("--only", name)]
    seeds = ",".join(map(str, asked.seeds))
    return shlex.join(["python", "-m", "benchmarks.papers", asked.name, *only, "--seeds", seeds])
