"""Scalable Private Learning with PATE: Tables 1 and 2."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final  # Any: rows of a JSON file

import numpy as np

from benchmarks.papers.glyph_like import Size, glyph_like
from benchmarks.papers.paper import Cell, Paper, PaperTable, Part, Task, over_seeds, points, printed_figures
from benchmarks.papers.students import asked_first, released, student_accuracy
from benchmarks.papers.votes import (
    DATA_DEPENDENT_MEANS,
    NO_VOTES,
    VOTES,
    WORST_CASE_MEANS,
    confident_figures,
    published_counts,
    worst_case,
)
from benchmarks.sanitised import corrected_cost, understated_published_cost
from coordinator.students import STUDENTS
from protocols.mechanisms.confident_gnmax import ConfidentGNMax
from protocols.research.data_dependent import answer_probability
from simulations.datasets.dataset import Dataset, DatasetRequest, Order
from simulations.datasets.published_images import load_mnist
from simulations.datasets.published_tables import adult
from simulations.datasets.sources import DataSource, published

NAME = "pate2018"
_PUBLIC_VOTES = ("MNIST", "Adult")
_EXPECTED = "the mean over the threshold's noise; the paper's is of one draw of it"
_TABLE_1 = "Tables 1 and 2 of the paper print different epsilons for these queries; the votes give that of Table 2"
_SANITISED = "our epsilon and the release's cost as the paper states it, which is too small, at its beta and sigma_ss"
_CORRECTED = "the same with the release's cost as it is (benchmarks/smooth-sensitivity.md)"
_OF_PRINTED = "not our epsilon: the printed one, and the release's cost as it is"


@dataclass(frozen=True)
class _Student:
    """kind: as the table of students names it; public, test: sizes of the pool and of the test part, which are drawn
    from what was not asked about."""

    load: Callable[[DatasetRequest, Order], Dataset]
    kind: str
    source: DataSource
    public: int
    test: int
    means: str
    why: str


_STUDENTS: Final = {
    "MNIST": _Student(
        load_mnist, "vat", published("mnist").source, 9000, 1000,
        "virtual adversarial training, as in the paper, of a smaller network",
        "a smaller network",
    ),
    "Adult": _Student(
        adult, "random_forest", published("adult").source, 4999, 11282,
        "a random forest, tested on 11,282 rows of adult.test",
        "the paper does not say which part of adult.test it learns from",
    ),
}  # fmt: skip


def paper() -> Paper:
    """What is computed of the paper."""
    rows = [row for row in printed_figures(NAME)["rows"] if row["aggregator"] == "Confident-GNMax"]
    return Paper(
        name=NAME,
        title="Scalable Private Learning with PATE",
        citation="Papernot, Song, Mironov, Raghunathan, Talwar & Erlingsson, ICLR 2018",
        link="https://arxiv.org/abs/1802.08908",
        about=(
            "Votes of 250 MNIST and 250 Adult teachers are the authors' own; those of SVHN and Glyph cannot be had.",
        ),
        tables=(
            PaperTable(
                "table-1",
                "Confident-GNMax: queries answered, what they cost, and what a student learns of them",
                (
                    *(Part(row["dataset"], partial(_table_1, row), _needs(row)) for row in rows),
                    *(Part(f"{row['dataset']}, student", partial(_student, row), *_student_needs(row)) for row in rows),
                ),
            ),
            PaperTable(
                "glyph",
                "Glyph at its own size, 5,000 teachers and 150 classes, on rendered characters",
                tuple(Part("Glyph", partial(glyph_like, row, Size())) for row in rows if row["dataset"] == "Glyph"),
            ),
            PaperTable(
                "table-2",
                "Epsilon before and after it is sanitised by smooth sensitivity, and its order",
                tuple(Part(row["dataset"], partial(_table_2, row), _needs(row)) for row in rows),
            ),
        ),
    )


def _needs(row: dict[str, Any]) -> tuple[DataSource, ...]:
    return (VOTES,) if row["dataset"] in _PUBLIC_VOTES else ()


def _student_needs(row: dict[str, Any]) -> tuple[tuple[DataSource, ...], tuple[str, ...]]:
    """The files, and the kinds of students that come with the benchmarks."""
    student = _STUDENTS.get(row["dataset"])
    if student is None:
        return (), ()
    return (VOTES, student.source), tuple({student.kind} - set(STUDENTS.own))


def _mechanism(row: dict[str, Any]) -> ConfidentGNMax:
    return ConfidentGNMax(sigma=float(row["sigma2"]), sigma_threshold=float(row["sigma1"]), threshold=float(row["T"]))


def _row(row: dict[str, Any]) -> str:
    return f"{row['dataset']}, {row['queries']:,} queries"


def _table_1(row: dict[str, Any], task: Task) -> Sequence[Cell]:
    where, mechanism = _row(row), _mechanism(row)
    answered = epsilon = None
    if row["dataset"] in _PUBLIC_VOTES:
        counts = published_counts(task, row["dataset"])[: row["queries"]]
        least = confident_figures(counts, mechanism, delta=row["delta"]).expected_mironov
        assert least is not None  # the accountant's mechanism has a threshold
        epsilon = float(least.epsilon[0])
        answer = answer_probability(counts.max(axis=1), sigma_threshold=float(row["sigma1"]), threshold=float(row["T"]))
        answered = float(answer.for_research().sum())
    why = NO_VOTES if answered is None else ""
    worst = worst_case(mechanism, classes=row["classes"], queries=row["queries"], delta=row["delta"])
    return (
        Cell(row=where, figure="answered", unit="count", printed=row["answered"], ours=answered, means=_EXPECTED,
             why=why),
        Cell(row=where, figure="epsilon", unit="epsilon", printed=row["eps"], ours=epsilon, means=DATA_DEPENDENT_MEANS,
             why=why or _TABLE_1),
        Cell(row=where, figure="epsilon, worst case", unit="epsilon", printed=None, ours=worst, means=WORST_CASE_MEANS),
    )  # fmt: skip


def _student(row: dict[str, Any], task: Task) -> Sequence[Cell]:
    cell = partial(Cell, row=_row(row), unit="percent")
    student, printed = _STUDENTS.get(row["dataset"]), points(row["student"])
    if student is None:
        return [cell(figure="student", printed=printed, ours=None, why=NO_VOTES)]
    counts = published_counts(task, row["dataset"])[: row["queries"]]
    right, learnt = [], []
    for seed in task.seeds:
        dataset = student.load(
            DatasetRequest(seed=seed, data_dir=task.host.data_dir, public_size=student.public, test_size=student.test),
            asked_first(np.arange(len(counts))),
        )
        labels = released(_mechanism(row), counts, seed=seed)
        truth = dataset.public_labels[: len(labels)]
        answered = labels >= 0
        right.append(100 * float((labels == truth)[answered].mean()))
        learnt.append(student_accuracy(task, dataset, labels, kind=student.kind, seed=seed))
    return [
        cell(figure="labels that are right", printed=None, **over_seeds(right)),
        cell(figure="student", printed=printed, means=student.means, why=student.why, **over_seeds(learnt)),
    ]


def _table_2(row: dict[str, Any], task: Task) -> Sequence[Cell]:
    where, printed = _row(row), row.get("table2_eps", row["eps"])
    epsilon = order = None
    if row["dataset"] in _PUBLIC_VOTES:
        counts = published_counts(task, row["dataset"])[: row["queries"]]
        least = confident_figures(counts, _mechanism(row), delta=row["delta"]).expected_mironov
        assert least is not None  # the accountant's mechanism has a threshold
        epsilon, order = float(least.epsilon[0]), float(least.order[0])
    why = NO_VOTES if epsilon is None else ""
    given = row["release"]
    release = {
        "order": row["order"], "beta": given["order_times_beta"] / row["order"], "sigma_ss": given["sigma_ss"]
    }  # fmt: skip
    stated, corrected = (float(cost(**release)) for cost in (understated_published_cost, corrected_cost))
    last = partial(Cell, row=where, unit="epsilon", printed=None)
    return (
        Cell(row=where, figure="epsilon", unit="epsilon", printed=printed, ours=epsilon, means=DATA_DEPENDENT_MEANS,
             why=why),
        Cell(row=where, figure="order", unit="order", printed=row["order"], ours=order, why=why),
        Cell(row=where, figure="epsilon, sanitised", unit="epsilon", printed=row["sanitised"],
             ours=None if epsilon is None else epsilon + stated, means=_SANITISED, why=why),
        last(figure="printed epsilon, sanitised, corrected", ours=printed + corrected, means=_OF_PRINTED)
        if epsilon is None
        else last(figure="epsilon, sanitised, corrected", ours=epsilon + corrected, means=_CORRECTED),
    )  # fmt: skip
