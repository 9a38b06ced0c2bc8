"""Printed figures beside ours: what is near, what counts, what is kept, and what the command says and writes."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.papers import PAPERS, find_papers
from benchmarks.papers.__main__ import paper_flags
from benchmarks.papers.paper import (
    Cell,
    Paper,
    PaperTable,
    Part,
    difference,
    near,
    notes,
    over_seeds,
    printed_figures,
    verdict_text,
)
from benchmarks.papers.running import check_data, wanted
from benchmarks.papers.written import from_tidy, papers_markdown
from protocols.errors import DataUnavailable, InvalidInput
from simulations.commands.group import run_command
from simulations.datasets.sources import DataSource
from tests.harness.refusals import refuses

FILES = DataSource(folder="votes", url="https://example.org", steps="download votes.npy")


def cell(printed, ours, unit="epsilon", **more):
    return Cell(row="MNIST", figure="figure", unit=unit, printed=printed, ours=ours, **more)


@pytest.mark.parametrize(
    ("printed", "ours", "unit", "shown", "is_near"),
    [
        (98.0, 97.0, "percent", "-1.00 points", True),
        (98.0, 99.1, "percent", "+1.10 points", False),
        (100, 105, "count", "+5.0 %", True),
        (100, 94, "count", "-6.0 %", False),
        (2.0, 2.1, "epsilon", "+5.0 %", True),
        (8.03, 7.4, "epsilon", "-7.8 %", False),
        (None, 1.0, "epsilon", "", None),
        (1.0, None, "count", "", None),
    ],
)
def test_a_percentage_is_near_within_a_point_and_other_figures_within_a_twentieth(printed, ours, unit, shown, is_near):
    made = cell(printed, ours, unit)
    assert difference(made) == shown
    assert made.near is is_near


def test_only_cells_with_both_figures_of_the_papers_own_data_and_mechanism_count_in_the_verdict():
    cells = [cell(2.0, 2.0), cell(2.0, 3.0, why="other queries"), cell(2.0, 2.0, other="glyphs"), cell(2.0, None)]
    assert verdict_text(cells) == "1 of 2 cells within 1 point or 5 %"
    assert verdict_text(cells[2:]) == "no cell to compare"
    assert [near(each) for each in cells] == ["yes", "no", "other", "not had"]
    assert notes(cells) == [
        "MNIST, figure: other queries",
        "MNIST: glyphs, in place of the paper's own",
        "MNIST, figure: no reason is known",
    ]


@pytest.mark.parametrize("name", list(PAPERS))
def test_a_paper_has_tables_and_parts_of_distinct_names_and_says_where_its_figures_come_from(name):
    (paper,) = find_papers(name)
    assert paper.name == name
    assert paper.link.startswith("https://")
    assert len(printed_figures(name)["about"]) > 20
    for names in ([one.name for one in paper.tables], *([part.name for part in one.parts] for one in paper.tables)):
        assert len(set(names)) == len(names) > 0


def test_what_is_missing_is_said_at_once_with_the_next_step(tmp_path, monkeypatch):
    parts = (Part("one", lambda task: [], (FILES,), ("unheard",)),), (Part("one", lambda task: []),)
    papers = [Paper("p", "P", "c", "l", (), (PaperTable("a", "A", parts[0]), PaperTable("b", "B", parts[1])))]
    monkeypatch.delenv("CONCLAVE_DATA", raising=False)
    with refuses(DataUnavailable, "CONCLAVE_DATA", "--only b"):
        check_data(wanted("p", papers, only=(), seeds=(0,)), None)
    with refuses(DataUnavailable, "votes"):
        check_data(wanted("p", papers, only=("a",), seeds=(0,)), tmp_path)
    check_data(wanted("p", papers, only=("b",), seeds=(0,)), None)
    (tmp_path / FILES.folder).mkdir()
    with refuses(InvalidInput, "unheard", "pip install", "--only b"):
        check_data(wanted("p", papers, only=(), seeds=(0,)), tmp_path)
    with refuses(InvalidInput, "table", "c"):
        wanted("p", papers, only=("c",), seeds=(0,))


COMPUTED: list[str] = []


def invented() -> Paper:
    """A paper of two parts, of which the second is interrupted where a file says so."""

    def first(task):
        COMPUTED.append("first")
        return [cell(98.0, unit="percent", means="a mean", **over_seeds([97.0 + seed for seed in task.seeds]))]

    def second(task):
        COMPUTED.append("second")
        if Path("stop").exists():
            raise KeyboardInterrupt
        return [cell(None, 0.5, means="worst case"), cell(4.0, None, why="votes are <not> published")]

    return Paper(
        "invented", "An invented paper", "Nobody 2000", "https://example.org", ("About it.",),
        (PaperTable("table-1", "A table", (Part("one", first), Part("two", second))),),
    )  # fmt: skip


def test_a_finished_part_is_kept_and_the_same_command_goes_on(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("benchmarks.papers.PAPERS", {"invented": f"{__name__}:invented"})
    monkeypatch.setattr("benchmarks.papers.import_module", lambda name: __import__("sys").modules[__name__])
    monkeypatch.setattr("benchmarks.papers.running.printed_figures", lambda name: {})
    COMPUTED.clear()
    Path("stop").touch()
    command = ["invented", "--seeds", "0-2", "--out", "out", "--quiet"]
    assert run_command(command, paper_flags) == 130
    assert "--resume --out out" in capsys.readouterr().err
    Path("stop").unlink()
    assert run_command([*command, "--resume"], paper_flags) == 0
    assert COMPUTED == ["first", "second", "second"]
    said = capsys.readouterr().out
    assert "1 of 1 cells within 1 point or 5 %" in said
    assert max(map(len, said.splitlines())) <= 80
    page = Path("out/report.html").read_text()
    assert all(part in page for part in ("1 of 1 cells", "votes are &lt;not&gt; published", "98.00 ± 2.48\xa0%"))
    table = pd.read_csv("out/cells.csv")
    np.testing.assert_array_equal(table["near"].isna(), [False, True, True])
    pd.testing.assert_frame_equal(pd.read_parquet("out/cells.parquet")[["ours"]], table[["ours"]])
    assert papers_markdown(from_tidy(table, [invented()])) == Path("out/report.md").read_text()
    assert run_command([*command, "--resume", "--json"], paper_flags) == 0
    assert [row["ours"] for row in json.loads(capsys.readouterr().out)] == [98.0, 0.5, None]
    assert run_command(["other"], paper_flags) == 2
    assert "allowed: list, all, invented" in capsys.readouterr().err
