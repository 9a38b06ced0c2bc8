"""CaPC: what querying parties gain, and what a query costs the others."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final  # Any: rows of a JSON file

from benchmarks.papers.paper import Cell, Paper, PaperTable, Part, Task, Unit, printed_figures
from benchmarks.papers.votes import WORST_CASE_MEANS, afforded, worst_case
from protocols.mechanisms.confident_gnmax import ConfidentGNMax
from simulations.datasets.sources import published

NAME: Final = "capc"
_STANDS_IN: Final = "mnist"
_CLASSES: Final = 10
_DELTA: Final = 1e-5
_MODEL: Final = "mlp"
# Records of the querying party that nobody has labelled.
_UNLABELLED: Final = 150
_SKEWS: Final = {"classes alike": "iid", "classes skewed": "dirichlet:5"}
_WORST: Final = f"{WORST_CASE_MEANS}; at delta {_DELTA:g}"
_AFTER: Final = "seeds draw the noise alone: the data, the parties and their models are the same in all"
_GAIN: Final = f"accuracy of the querying party on test records, after less before; {_AFTER}"
_ASKED: Final = "the querying party asks until its records or the smallest budget are used up"


def paper() -> Paper:
    """What is computed of the paper."""
    rows = printed_figures(NAME)["rows"]
    return Paper(
        name=NAME,
        title="CaPC Learning: Confidential and Private Collaborative Learning",
        citation="Choquette-Choo, Dullerud, Dziedzic, Zhang, Jha, Papernot & Wang, ICLR 2021",
        link="https://arxiv.org/abs/2102.05188",
        about=(
            "No figure is compared: neither the paper's text nor its data could be had.",
            "The gain is measured on MNIST by `conclave-simulate run --confidentiality hidden_queries`: one querying "
            "party, an mlp in each party, one draw of noise for threshold and label, the paper's numbers of parties "
            "and epsilons, charged in the worst case.",
        ),
        tables=(
            PaperTable(
                "queries",
                "What a query costs at the settings of the published program, and how many epsilon affords",
                tuple(Part(row["dataset"], partial(_queries, row)) for row in rows),
            ),
            PaperTable(
                "gain",
                "What querying parties gain",
                tuple(
                    Part(_row(row, how), partial(_gain, row, how, partition), (published("mnist").source,))
                    for row in rows
                    for how, partition in _SKEWS.items()
                ),
            ),
        ),
    )


def _row(row: dict[str, Any], how: str = "") -> str:
    return f"{row['dataset']}, {row['parties']} parties" + (f", {how}" if how else "")


def _queries(row: dict[str, Any], task: Task) -> Sequence[Cell]:
    mechanism = ConfidentGNMax(
        sigma=float(row["sigma2"]), sigma_threshold=float(row["sigma1"]), threshold=float(row["T"])
    )

    def epsilon(queries: int) -> float:
        return worst_case(mechanism, classes=_CLASSES, queries=queries, delta=_DELTA)

    name = _row(row)
    return [
        Cell(row=name, figure="epsilon of one query", unit="epsilon", printed=None, ours=epsilon(1), means=_WORST),
        Cell(row=name, figure=f"queries at epsilon {row['eps']}", unit="count", printed=None,
             ours=afforded(epsilon, row["eps"]), means=_WORST),
    ]  # fmt: skip


def _gain(row: dict[str, Any], how: str, partition: str, task: Task) -> Sequence[Cell]:
    from simulations.pipeline import run, study_of
    from simulations.results.files import summary
    from simulations.setup.experiment import experiment
    from simulations.stages.inputs import read_inputs

    settings = experiment(
        parties=row["parties"], dataset=_STANDS_IN, partition=partition, queries=_UNLABELLED, teacher=_MODEL,
        budgets=row["eps"], delta=_DELTA, confidentiality="hidden_queries", baselines=False, seeds=task.seeds,
    )  # fmt: skip
    inputs = read_inputs(settings, host=task.host, reporter=task.reporter)
    budgets, study = study_of(inputs)
    found = summary(run(inputs, budgets=budgets, study=study, host=task.host, reporter=task.reporter))
    common: dict[str, Any] = {"row": _row(row, how), "printed": None, "other": _STANDS_IN, "seeds": len(task.seeds)}
    labels, half = found["answered"], found["answered_ci95"]
    found |= {**found["asker"], "after_ci95": found["asker"]["gain_ci95"]}
    shares: dict[str, tuple[str, Unit, str]] = {
        "labels that are right": ("label_accuracy", "percent", ""),
        "before": ("before", "percent", ""),
        "after": ("after", "percent", _AFTER),
        "gain": ("gain", "points", _GAIN),
    }
    return [
        Cell(figure="labels", unit="count", ours=labels, half=half, means=_ASKED, **common),
        *(
            Cell(figure=figure, unit=unit, ours=_percent(found[key]), half=_percent(found.get(f"{key}_ci95")),
                 means=means, **common)
            for figure, (key, unit, means) in shares.items()
        ),
    ]  # fmt: skip


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
