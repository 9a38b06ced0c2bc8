"""Reproduced papers as Markdown: how many cells are near, then of each table the cells that were compared.

A table of many cells has one row a figure, with the ends of its ranges; every cell is in cells.csv.

The files of reproduced papers: tidy cells, and a page.
"""

from __future__ import annotations

import io
import json
import shlex
from collections import Counter
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
    difference,
    meanings,
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

_MANY: Final = 10  # compared cells from which on a table has one row a figure
_ENDS: Final = ("figure", "printed", "ours", "difference", "near")  # of all cells of a figure


def papers_markdown(measured: Sequence[Measured]) -> str:
    """A page without a title: the verdict, then a section of each paper and its tables."""
    lines = [f"{total([cell for one in measured for cell in one.cells])}.", ""]
    lines += [f"- {title} {counts}" for title, counts in verdict_points(measured)]
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
    alone = [cell for cell in cells if cell.ours is not None]
    shown = compared or (alone if len(alone) <= _MANY else [])
    if not shown:
        return ["All of them are in cells.csv."]
    why = [reason for cell in shown for reason in reasons(cell)]
    missing = dict.fromkeys(reason for cell in cells if near(cell) == "not had" for reason in reasons(cell))
    letters = {reason: _letter(place) for place, reason in enumerate(dict.fromkeys(why))}
    head: tuple[str, ...]
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
    """Both ends, with their unit once; one where they are the same."""
    first, *others = dict.fromkeys(of) or [""]
    lower, _, unit = first.partition(" ")
    return f"{lower} to {others[0]}" if others and others[0].endswith(unit) else first


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
