"""Semi-supervised Knowledge Transfer for Deep Learning from Private Training Data: section 4, Figure 4, appendix C."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any  # rows of a JSON file

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from benchmarks.moments2017 import total_log_moments
from benchmarks.papers.paper import Cell, Paper, PaperTable, Part, Task, over_seeds, points, printed_figures
from benchmarks.papers.students import (
    asked_first,
    counts_of,
    ensemble_votes,
    released,
    student_accuracy,
    without_privacy,
)
from benchmarks.papers.votes import (
    DATA_DEPENDENT_MEANS,
    NO_VOTES,
    VOTES,
    WORST_CASE_MEANS,
    published_array,
    published_counts,
    worst_case,
)
from protocols.mechanisms.lnmax import LNMax
from simulations.datasets.dataset import Dataset, DatasetRequest, Order, as_published
from simulations.datasets.published_images import load_mnist
from simulations.datasets.published_tables import adult, by_patient, encounters
from simulations.datasets.sources import published

NAME = "pate2017"
# The moments among which the published program chose; the accountant here chooses among 128.
_MOMENTS = np.arange(1, 9)
# Laplace noise of scale 20 votes, which the paper calls 0.05 per query.
_GAMMA = 0.05
_STUDENT = "mean_teacher"
# Of so many queries the authors published positions and labels.
_PUBLISHED = 100
_LABELS = "pate2017/mnist_250_student_labels_lap_20.npy"
_USED = "pate2017/mnist_250_teachers_100_indices_used_by_student.npy"
_STUDENT_MEANS = (
    f"a {_STUDENT}; the paper's is a generative adversarial network, and the one here learns less "
    "(docs/how-to/choose-a-student.md)"
)
_THE_100 = "the 100 queries whose positions the authors published"
_THE_FIRST = "which queries the paper asked is not published; ours are the first ones of the pool, in the file's order"
_ADULT = "our forests, on one-hot columns and other partitions, agree less"
# The paper's 18 columns and its balanced rows are not published; from ours readmission is hard to predict.
_DIABETES = "other rows and columns, and patients that are not split over training and test"
_OTHER_VOTES = "of the counts that the authors published in 2018, in which teachers agree less than the paper says"


def paper() -> Paper:
    """What is computed of the paper."""
    printed = printed_figures(NAME)
    return Paper(
        name=NAME,
        title="Semi-supervised Knowledge Transfer for Deep Learning from Private Training Data",
        citation="Papernot, Abadi, Erlingsson, Goodfellow & Talwar, ICLR 2017",
        link="https://arxiv.org/abs/1610.05755",
        about=(
            "Votes of 250 MNIST teachers on the first 9,000 test images: the counts that the authors published "
            "in 2018; those of SVHN are not published. Each seed draws a student's unlabelled and test images.",
            "Noise of inverse scale 0.05 is gamma here: a label costs at most 0.1, as a moved vote changes two counts.",
            "What appendix C prints was not checked against the paper, whose appendices could not be had.",
        ),
        tables=(
            PaperTable(
                "section-4.1",
                "250 teachers: their accuracy, and that of their labels under Laplace noise (Figures 2 and 3)",
                (
                    Part("MNIST", partial(_labels, printed), (VOTES, published("mnist").source)),
                    Part("SVHN", partial(_svhn, printed)),
                ),
            ),
            PaperTable(
                "figure-4",
                "LNMax, Laplace noise of scale 20 votes: what the student's queries cost, and what it learns",
                tuple(
                    Part(f"{_row(row)}{what}", partial(compute, row), *(needs if row["dataset"] == "MNIST" else ()))
                    for row in printed["rows"]
                    for what, compute, needs in (
                        ("", _figure_4, ((VOTES,),)),
                        (", student", _student, ((VOTES, published("mnist").source), (_STUDENT,))),
                    )
                ),
            ),
            PaperTable(
                "appendix-c",
                "Random forests: 250 teachers of 100 trees, and a student of 500 labels",
                (
                    Part(
                        "Adult",
                        partial(_forests, printed["appendix_c"]["Adult"], adult, row="Adult", why=_ADULT),
                        (published("adult").source,),
                    ),
                    Part(
                        "Diabetes",
                        partial(
                            _forests, printed["appendix_c"]["Diabetes"], _readmissions, row="Diabetes", other=_DIABETES
                        ),
                        (published("diabetes130").source,),
                    ),
                ),
            ),
        ),
    )


def _row(row: dict[str, Any]) -> str:
    return f"{row['dataset']}, {row['queries']:,} queries"


def _mnist(task: Task, order: Order, seed: int = 0) -> Dataset:
    return load_mnist(DatasetRequest(seed=seed, data_dir=task.host.data_dir), order)


def _labels(printed: dict[str, Any], task: Task) -> Sequence[Cell]:
    counts, truth = published_counts(task, "MNIST"), _mnist(task, as_published).public_labels
    top = np.sort(counts, axis=1)
    queries = np.arange(len(truth))

    def accuracies(gamma: float) -> list[float]:
        return [_percent(released(LNMax(gamma=gamma), counts, seed=seed) == truth) for seed in task.seeds]

    def ours(figure: str, value: float, printed: float | None = None, *, means: str = "", why: str = "") -> Cell:
        return Cell(row="MNIST", figure=figure, unit="percent", printed=printed, ours=value, means=means, why=why)

    return (
        ours("teachers, mean", 100 * float((counts[queries, truth] / counts.sum(axis=1)).mean()),
             points(printed["teacher_accuracy"]["MNIST"]), why=_OTHER_VOTES),
        ours("plurality of votes", _percent(counts.argmax(axis=1) == truth)),
        ours("gap of the two top classes", 100 * float((top[:, -1] - top[:, -2]).mean() / counts[0].sum())),
        *(
            Cell(row="MNIST", figure=f"labels, gamma {gamma:g}", unit="percent",
                 printed=points(printed["noisy_label_accuracy_eps_0.05"]["MNIST"]) if gamma == _GAMMA else None,
                 **over_seeds(accuracies(gamma)))
            for gamma in (0.01, _GAMMA, 0.1, 1.0)
        ),
        ours("labels, gamma 0.05, as published", _percent(published_array(task, _LABELS) == truth),
             means="of the labels that the authors published; what is printed is compared with labels drawn here"),
    )  # fmt: skip


def _svhn(printed: dict[str, Any], task: Task) -> Sequence[Cell]:
    figures = {
        "teachers, mean": printed["teacher_accuracy"]["SVHN"],
        f"labels, gamma {_GAMMA:g}": printed["noisy_label_accuracy_eps_0.05"]["SVHN"],
    }
    return [
        Cell(row="SVHN", figure=figure, unit="percent", printed=points(value), ours=None, why=NO_VOTES)
        for figure, value in figures.items()
    ]


def _figure_4(row: dict[str, Any], task: Task) -> Sequence[Cell]:
    where, epsilon, why = _row(row), None, NO_VOTES
    if row["dataset"] == "MNIST":
        asked, why = _asked(row, task), _THE_100 if row["queries"] == _PUBLISHED else _THE_FIRST
        epsilon = _epsilon(published_counts(task, "MNIST")[asked], delta=row["delta"])
    worst = worst_case(LNMax(gamma=_GAMMA), classes=10, queries=row["queries"], delta=row["delta"])
    return (
        Cell(row=where, figure="epsilon", unit="epsilon", printed=row["eps"], ours=epsilon, means=DATA_DEPENDENT_MEANS,
             why=why),
        Cell(row=where, figure="epsilon, worst case", unit="epsilon", printed=None, ours=worst, means=WORST_CASE_MEANS),
    )  # fmt: skip


def _student(row: dict[str, Any], task: Task) -> Sequence[Cell]:
    """The labels are those that the authors published, where they did; otherwise each seed draws its noise. Each draws
    the unlabelled and the test images."""
    cell = partial(Cell, row=_row(row), figure="student", unit="percent", printed=points(row["student"]))
    if row["dataset"] != "MNIST":
        return [cell(ours=None, why=NO_VOTES)]
    counts, asked = published_counts(task, "MNIST"), _asked(row, task)
    accuracies = []
    for seed in task.seeds:
        drawn = (
            published_array(task, _LABELS)
            if row["queries"] == _PUBLISHED
            else released(LNMax(gamma=_GAMMA), counts, seed=seed)
        )
        dataset = _mnist(task, asked_first(asked), seed)
        accuracies.append(student_accuracy(task, dataset, drawn[asked], kind=_STUDENT, seed=seed))
    return [cell(means=_STUDENT_MEANS, why="another kind of student", **over_seeds(accuracies))]


def _asked(row: dict[str, Any], task: Task) -> Int64[ndarray, " asked"]:
    """The positions in the pool of the queries of a row on MNIST."""
    if row["queries"] == _PUBLISHED:
        return published_array(task, _USED).astype(np.int64)
    return np.arange(row["queries"])


def _readmissions(request: DatasetRequest) -> Dataset:
    """Rows as `diabetes130`, label 1 for a patient who came back within 30 days; as many rows, drawn from the seed, of
    those who did not, as both classes are equally frequent in the paper. The public and test sizes must be given.
    """
    about = published("diabetes130", task="diabetes130 readmissions")
    table = encounters(about, request.data_dir)
    back = (table["readmitted"] == "<30").to_numpy()
    others = np.random.default_rng([request.seed, *b"diabetes130 others"]).choice(
        np.flatnonzero(~back), size=int(back.sum()), replace=False
    )
    kept = np.sort(np.concatenate([np.flatnonzero(back), others]))
    assert request.public_size is not None  # by whoever calls this
    assert request.test_size is not None
    sizes = (request.public_size, request.test_size)
    chosen = table.iloc[kept].reset_index(drop=True)
    return by_patient(request, about, chosen, back[kept].astype(np.int64), sizes=sizes)


def _forests(
    printed: dict[str, Any], load: Callable[..., Dataset], task: Task, *, row: str, why: str = "", other: str = ""
) -> list[Cell]:
    """250 random forests, the labels of all public queries, a student, and a forest of all records; each seed draws
    the data anew."""
    mechanism, delta = LNMax(gamma=_GAMMA), printed["delta"]
    epsilons, labelled, students, pooled = [], [], [], []
    sizes = {"public_size": printed["queries"], "test_size": printed["test"]}
    for seed in task.seeds:
        dataset = load(DatasetRequest(seed=seed, data_dir=task.host.data_dir, **sizes))
        votes = ensemble_votes(task, dataset, teachers=250, kind="random_forest", seed=seed)
        counts = counts_of(votes, classes=dataset.classes)
        labels = released(mechanism, counts, seed=seed)
        epsilons.append(_epsilon(counts, delta=delta))
        labelled.append(_percent(labels == dataset.public_labels))
        students.append(student_accuracy(task, dataset, labels, kind="random_forest", seed=seed))
        pooled.append(without_privacy(task, dataset, kind="random_forest", seed=seed))
    worst = worst_case(mechanism, classes=dataset.classes, queries=len(counts), delta=delta)
    forest = "a random forest"
    cell = partial(Cell, row=row, other=other)
    return [
        cell(figure="epsilon", unit="epsilon", printed=printed["eps"], means=DATA_DEPENDENT_MEANS, why=why,
             **over_seeds(epsilons)),
        cell(figure="epsilon, worst case", unit="epsilon", printed=None, ours=worst, means=WORST_CASE_MEANS),
        cell(figure="labels", unit="percent", printed=None, **over_seeds(labelled)),
        cell(figure="student", unit="percent", printed=points(printed["student"]), means=forest, why=why,
             **over_seeds(students)),
        cell(figure="without privacy", unit="percent", printed=points(printed["nonprivate"]), means=forest, why=why,
             **over_seeds(pooled)),
    ]  # fmt: skip


def _epsilon(counts: Float64[ndarray, "queries classes"], *, delta: float) -> float:
    """By the moments accountant, as the published program converts."""
    total = total_log_moments(counts, _MOMENTS, gamma=_GAMMA, sensitivity=np.ones(1)).for_research()[0]
    return float(((total - np.log(delta)) / _MOMENTS).min())


def _percent(right: ndarray) -> float:
    return 100 * float(right.mean())
