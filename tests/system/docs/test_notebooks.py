"""Every notebook runs, from its first cell to its last, and is stored without outputs."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import pytest

from tests.harness.pages import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def _cells(path: Path, kind: str) -> list[dict[str, Any]]:
    """Its cells of a kind. A notebook is JSON, of format 4.5."""
    document = json.loads(path.read_text(encoding="utf-8"))
    assert (document["nbformat"], document["nbformat_minor"]) == (4, 5)
    return [cell for cell in document["cells"] if cell["cell_type"] == kind]


def test_there_is_a_notebook_to_start_from() -> None:
    assert [path.name for path in NOTEBOOKS] == ["votes-to-labels.ipynb"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_every_cell_runs_and_shows_something(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    before = matplotlib.get_backend()
    plt.switch_backend("agg")
    names: dict[str, object] = {"__name__": "__main__"}
    try:
        for cell in _cells(path, "code"):
            tree = ast.parse("".join(cell["source"]))
            last = tree.body[-1]
            # What a notebook shows: the value of a cell's last expression, and what is printed.
            value = None
            if isinstance(last, ast.Expr):
                tree.body.pop()
            exec(compile(tree, path.name, "exec"), names)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), path.name, "eval"), names)
            assert value is not None or capsys.readouterr().out, "".join(cell["source"])
        assert len(plt.get_fignums()) == 3
        assert all(plt.figure(number).axes for number in plt.get_fignums())
    finally:
        plt.close("all")
        plt.switch_backend(before)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_stored_without_outputs_and_its_links_lead_somewhere(path: Path) -> None:
    for cell in _cells(path, "code"):
        assert (cell["outputs"], cell["execution_count"]) == ([], None)
    for cell in _cells(path, "markdown"):
        for target in re.findall(r"\]\(([^)\s]+)\)", "".join(cell["source"])):
            assert (path.parent / target).resolve().exists(), target
