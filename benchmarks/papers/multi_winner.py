"""Private multi-winner voting: what a query on several labels costs in three ways, and how many epsilon affords."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final  # Any: rows of a JSON file

from benchmarks.papers.paper import Cell, Paper, PaperTable, Part, Task, printed_figures
from benchmarks.papers.votes import WORST_CASE_MEANS, afforded, worst_case
from protocols.mechanisms import ONE_VOTE, ConfidentGNMax, Mechanism, TauVoting

NAME: Final = "multi_winner"
_DELTA: Final = 1e-5
_WORST: Final = f"{WORST_CASE_MEANS}; at delta {_DELTA:g}"


def paper() -> Paper:
    """What is computed of the paper."""
    rows = printed_figures(NAME)["rows"]
    return Paper(
        name=NAME,
        title="Private Multi-Winner Voting for Machine Learning",
        citation="Dziedzic, Choquette-Choo, Dullerud, Suriyakumar, Shamsabadi, Kaleem, Jha, Papernot & Wang, "
        "PoPETs 2023(1)",
        link="https://arxiv.org/abs/2211.15410",
        about=(
            "No figure is compared: neither the paper's text nor the models' votes could be had. The settings are "
            "those of the authors' program.",
            "Each way is charged in the worst case over all votes, label only: binary and powerset with "
            "Confident-GNMax, tau with one noisy count a label and no threshold noise.",
        ),
        tables=(
            PaperTable(
                "queries",
                "What a query on all labels costs, and how many epsilon affords",
                tuple(Part(row["dataset"], partial(_queries, row)) for row in rows),
            ),
        ),
    )


def _queries(row: dict[str, Any], task: Task) -> Sequence[Cell]:
    findings, sigma, cells = row["findings"], float(row["sigma2"]), []
    confident = ConfidentGNMax(sigma=sigma, sigma_threshold=float(row["sigma1"]), threshold=float(row["T"]))
    tau = TauVoting(sigma=sigma, tau=row["tau"], threshold=row["parties"] / 2)
    ways: dict[str, tuple[Mechanism, int, int, float]] = {
        "binary": (confident, 2, findings, ONE_VOTE),
        "powerset": (confident, 2**findings, 1, ONE_VOTE),
        f"tau {row['tau']}": (tau, findings, 1, tau.squared_move(findings)),
    }
    for way, (mechanism, classes, rows, moved) in ways.items():
        epsilon = partial(_epsilon, mechanism, classes=classes, rows=rows, moved=moved)
        name = f"{row['dataset']}, {row['parties']} models, {findings} labels, {way}"
        cells += [
            Cell(row=name, figure="epsilon of one query", unit="epsilon", printed=None, ours=epsilon(1), means=_WORST),
            Cell(row=name, figure=f"queries at epsilon {row['eps']}", unit="count", printed=None,
                 ours=afforded(epsilon, row["eps"]), means=_WORST),
        ]  # fmt: skip
    return cells


def _epsilon(mechanism: Mechanism, queries: int, *, classes: int, rows: int, moved: float) -> float:
    return worst_case(mechanism, classes=classes, queries=rows * queries, delta=_DELTA, delta_squared=moved)
