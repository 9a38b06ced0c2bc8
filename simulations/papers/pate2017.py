"""Semi-supervised Knowledge Transfer for Deep Learning from Private Training Data: Figure 4."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any  # rows of a JSON file

import numpy as np

from protocols.mechanisms.lnmax import LNMax
from protocols.research.published import moments2017
from simulations.papers.paper import Cell, Paper, PaperTable, Part, Task, printed_figures
from simulations.papers.votes import (
    DATA_DEPENDENT_MEANS,
    NO_VOTES,
    VOTES,
    WORST_CASE_MEANS,
    published_counts,
    worst_case,
)

NAME = "pate2017"
# The moments among which the published program chose; the accountant here chooses among 128.
_MOMENTS = np.arange(1, 9)
# Laplace noise of scale 20 votes, which the paper calls 0.05 per query.
_GAMMA = 0.05
_CLASSES = 10
_OTHER_QUERIES = (
    "which queries were asked is published for 100 of them only; ours are the first ones of the same ensemble's counts"
)


def paper() -> Paper:
    """What is computed of the paper."""
    rows = printed_figures(NAME)["rows"]
    return Paper(
        name=NAME,
        title="Semi-supervised Knowledge Transfer for Deep Learning from Private Training Data",
        citation="Papernot, Abadi, Erlingsson, Goodfellow & Talwar, ICLR 2017",
        link="https://arxiv.org/abs/1610.05755",
        about=("The votes of the 250 MNIST teachers are those that the authors published with their paper of 2018.",),
        tables=(
            PaperTable(
                "figure-4",
                "LNMax, Laplace noise of scale 20 votes: what the student's queries cost",
                tuple(
                    Part(_row(row), partial(_figure_4, row), (VOTES,) if row["dataset"] == "MNIST" else ())
                    for row in rows
                ),
            ),
        ),
    )


def _row(row: dict[str, Any]) -> str:
    return f"{row['dataset']}, {row['queries']:,} queries"


def _figure_4(row: dict[str, Any], task: Task) -> Sequence[Cell]:
    epsilon, why = None, NO_VOTES
    if row["dataset"] == "MNIST":
        counts = published_counts(task, row["dataset"])[: row["queries"]]
        total = moments2017.total_log_moments(counts, _MOMENTS, gamma=_GAMMA, sensitivity=np.ones(1)).for_research()[0]
        epsilon, why = float(((total - np.log(row["delta"])) / _MOMENTS).min()), _OTHER_QUERIES
    worst = worst_case(LNMax(gamma=_GAMMA), classes=_CLASSES, queries=row["queries"], delta=row["delta"])
    return (
        Cell(row=_row(row), figure="epsilon", unit="epsilon", printed=row["eps"], ours=epsilon,
             means=DATA_DEPENDENT_MEANS, why=why),
        Cell(row=_row(row), figure="epsilon, worst case", unit="epsilon", printed=None, ours=worst,
             means=WORST_CASE_MEANS),
    )  # fmt: skip
