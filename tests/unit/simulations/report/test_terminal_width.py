import re

import pytest

from simulations.report.terminal import print_rows

COLUMNS = ["mechanism", "view", "epsilon guaranteed", "used (operator's reading)", "lower bound", "share used"]
ROW = ["thresholded_gnmax", "label", 1.23456, "a sentence of some length", 0.5, 0.25]


@pytest.mark.parametrize(("columns", "width"), [(None, 80), ("130", 130), ("wide", 80)])
def test_a_table_that_is_piped_is_as_wide_as_is_said_and_loses_nothing(monkeypatch, capsys, columns, width):
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    print_rows("a title", COLUMNS, [ROW])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    # Words begin on the left of their column, figures end on its right.
    body = [re.split("│", line)[1:-1] for line in lines if line.startswith("│")]
    assert body[0][0].startswith(" thresholded_gnmax")
    assert body[0][2].endswith("1.235 ")
    # Column by column, the folded pieces make the cells again, each word in one piece.
    rows = [re.split("[│┃]", line)[1:-1] for line in lines if re.match("[│┃]", line)]
    shown = [" ".join(" ".join(column).split()) for column in zip(*rows, strict=True)]
    assert shown == [f"{name} {cell}" for name, cell in zip(COLUMNS, [ROW[0], ROW[1], "1.235", *ROW[3:]], strict=True)]
