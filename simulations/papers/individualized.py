"""Individualized PATE: Tables 1 and 5 to 11, labels and students under budgets of several groups."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final  # Any: the values of a JSON object

import numpy as np

from simulations.papers.individualized_calibrated import calibrated
from simulations.papers.individualized_figures import figure_2, labels_over_budgets
from simulations.papers.individualized_setting import (
    ASSIGNED,
    HIGHER,
    LOW,
    NAME,
    NEEDS,
    STAND_INS,
    STRONG,
    TWO_GROUPS,
    UPSAMPLE,
    WEIGHT,
    TwoGroups,
    ensemble,
    figures,
    labels_cell,
    percent_cell,
)
from simulations.papers.paper import Cell, Paper, PaperTable, Part, Task, printed_figures
from simulations.papers.stand_ins import Forest
from simulations.papers.until_spent import proportional_weights

_ALSO_ASSIGNED: Final = "what is printed is nearer to what the published program's assignment gives"
_CHOSEN: Final = "the part of the components that a teacher sees was chosen for the printed accuracy, 90.2 %"
_MOST: Final = (
    "were all teachers to agree on every query, so that labels cost nothing: what the threshold tests leave, whatever "
    "the votes"
)
_TOO_MANY: Final = {
    "MNIST": f"{STAND_INS}; votes that all follow one model give fewer labels than are printed (table calibrated)",
    "Adult": STAND_INS,
}
_NO_SVHN: Final = "SVHN cannot be had, nor the votes"
_OTHER_STUDENT: Final = "the paper's student is another network"


def paper() -> Paper:
    """What is computed of the paper."""
    return Paper(
        name=NAME,
        title="Individualized PATE: Differentially Private Machine Learning with Individual Privacy Guarantees",
        citation="Boenisch, Mühl, Rinberg, Ihrig & Dziedzic, PoPETs 2023(1)",
        link="https://arxiv.org/abs/2202.10517",
        about=(
            "The votes of the paper's teachers are not published. Ours are stand-ins on the paper's data: kernel ridge "
            "regressions on MNIST, random forests on Adult. There is one ensemble for all seeds, as in the paper; a "
            "seed draws the order of the queries, the noise and the student.",
            "Weight: proportional to epsilon. The published program assigns weights otherwise; what that gives stands "
            "beside it where it differs, and each printed figure is compared once.",
            "Upsample: a record of a larger budget is learned by more teachers, and teachers, noise and threshold grow "
            "as the data do.",
            "On MNIST two ensembles stand in. Labels of PATE and Weight, and all of Table 1, are of teachers that are "
            "right on 97 %; Upsample in Tables 5 to 8 is of teachers that are right on 90 %, as printed. Which one a "
            "column has was chosen by what is printed, so the cells of MNIST that are near say less than those of "
            "Adult. No single ensemble comes near all columns: Table 1 and Tables 5 to 8 print different numbers of "
            "labels of PATE, of which the second is more than any votes of 250 teachers give on average.",
            "Calibrated: teachers agree as often as gives one printed number of labels of each column. Such cells are "
            "compared, and not counted.",
            "Figures: the text of the paper could not be had. Settings are those of the published program's notebooks, "
            "which plot Figure 2, and labels over budgets; of other figures, and of numbers in any, nothing is known.",
        ),
        tables=(
            PaperTable(
                "table-1",
                "Labels, and how many of them are right; groups of these shares have budgets 1, 2 and 3",
                tuple(_table_1_part(row) for row in printed_figures(NAME)["table_1"]["rows"]),
            ),
            PaperTable("mnist-labels", "Tables 5 to 8: a share has a budget above log 2", _labels_parts("MNIST")),
            PaperTable("mnist-students", "Tables 5 to 8: students on the test records", _student_parts("MNIST")),
            PaperTable("adult-labels", "Tables 7 and 9: a share has a budget above log 2", _labels_parts("Adult")),
            PaperTable("adult-students", "Tables 7 and 9: students on the test records", _student_parts("Adult")),
            PaperTable(
                "adult-unbalanced",
                "Tables 6, 10 and 11: a share of the people of high income has a budget above log 2; Upsample",
                _unbalanced_parts(),
            ),
            calibrated(),
            figure_2(),
            labels_over_budgets(),
        ),
    )


def _table_1_part(row: dict[str, Any]) -> Part:
    dataset, shares = row["dataset"], "-".join(f"{100 * share:.0f}" for share in row["groups"])
    name = f"{dataset} {shares} %"
    return Part(name, partial(_table_1 if dataset in NEEDS else _not_had, name, row), NEEDS.get(dataset, ()))


def _not_had(name: str, row: dict[str, Any], task: Task) -> Sequence[Cell]:
    cells = []
    for column, labels, right in zip(figures()["table_1"]["columns"], row["labels"], row["accuracy"], strict=True):
        none: dict[str, Any] = {"row": name, "ours": None, "why": _NO_SVHN}
        cells.append(Cell(figure=f"labels, {column}", unit="count", printed=labels, **none))
        cells.append(Cell(figure=f"right, {column}", unit="percent", printed=100 * right, **none))
    return cells


def _table_1(name: str, row: dict[str, Any], task: Task) -> Sequence[Cell]:
    here = ensemble("MNIST", task)
    epsilon, shares = np.array(row["eps"], dtype=np.float64), np.array(row["groups"])
    found = {
        "PATE": here.plain(STRONG, float(epsilon.min())),
        "Upsample": here.upsampled(STRONG, epsilon, here.members(shares)),
        "Weight": here.weighted(STRONG, epsilon, shares, as_published=False),
    }
    cells = []
    for column, labels, right in zip(figures()["table_1"]["columns"], row["labels"], row["accuracy"], strict=True):
        why = f"{STAND_INS}; and {_ALSO_ASSIGNED}" if column == "Weight" else STAND_INS
        cells.append(labels_cell(name, f"labels, {column}", labels, found[column], why=why))
        cells.append(percent_cell(name, f"right, {column}", right, here.right(found[column])))
    published = here.weighted(STRONG, epsilon, shares, as_published=True)
    return [*cells, labels_cell(name, "labels, Weight as published", None, published, means=ASSIGNED)]


def _most(row: str, figure: str, most: float) -> Cell:
    return Cell(row=row, figure=figure, unit="count", printed=None, ours=most, means=_MOST)


def _labels_parts(dataset: str) -> tuple[Part, ...]:
    needs = NEEDS[dataset]
    settings = (Part(two.name, partial(_labels, dataset, two), needs) for two in TWO_GROUPS)
    return (Part("log 2", partial(_one_budget, dataset), needs), *settings)


def _one_budget(dataset: str, task: Task) -> Sequence[Cell]:
    here, printed = ensemble(dataset, task), figures()[dataset.lower()]
    found = here.plain(WEIGHT[dataset], LOW)
    cells = [
        labels_cell("log 2", "labels, PATE", printed["baseline_labels"], found, why=_TOO_MANY[dataset]),
        _most("log 2", "labels, PATE, at most", here.most(np.array([LOW]), np.ones(1))),
    ]
    if dataset == "Adult":
        return [*cells, percent_cell("log 2", "teachers", printed["teacher_accuracy"], [here.teachers(Forest())])]
    cells.append(percent_cell("log 2", "right, PATE", printed["label_accuracy"], here.right(found)))
    cells.extend(
        Cell(
            row="log 2",
            figure=f"teachers, {column}",
            unit="percent",
            printed=None,
            ours=here.teachers(fit),
            means=means,
        )
        for column, fit, means in (("PATE and Weight", STRONG, ""), ("Upsample", UPSAMPLE[dataset], _CHOSEN))
    )
    return cells


def _labels(dataset: str, two: TwoGroups, task: Task) -> Sequence[Cell]:
    here = ensemble(dataset, task)
    upsample, weight = two.labelled(here, dataset)
    printed = two.printed(dataset, "labels")
    cells = [
        labels_cell(two.name, "labels, Upsample", printed[0], upsample),
        labels_cell(two.name, "labels, Weight", printed[1], weight),
        _most(
            two.name,
            "labels, Weight, at most",
            here.most(two.epsilon, proportional_weights(two.epsilon, two.shares).charged),
        ),
    ]
    if two.share == 0.5:  # equal shares: the same weights
        return cells
    published = here.weighted(WEIGHT[dataset], two.epsilon, two.shares, as_published=True)
    return [*cells, labels_cell(two.name, "labels, Weight as published", None, published, means=ASSIGNED)]


def _student_parts(dataset: str) -> tuple[Part, ...]:
    needs = NEEDS[dataset]
    settings = (Part(two.name, partial(_students, dataset, two), needs) for two in TWO_GROUPS)
    return (Part("log 2", partial(_plain_students, dataset), needs), *settings)


def _plain_students(dataset: str, task: Task) -> Sequence[Cell]:
    here = ensemble(dataset, task)
    right = here.students(here.plain(WEIGHT[dataset], LOW)).mean(axis=1)
    return [percent_cell("log 2", "PATE", figures()[dataset.lower()]["baseline_student"], right, why=_OTHER_STUDENT)]


def _students(dataset: str, two: TwoGroups, task: Task) -> Sequence[Cell]:
    here = ensemble(dataset, task)
    return [
        percent_cell(two.name, column, printed, here.students(found).mean(axis=1), why=_OTHER_STUDENT)
        for column, printed, found in zip(
            ("Upsample", "Weight"), two.printed(dataset, "student"), two.labelled(here, dataset), strict=True
        )
    ]


def _unbalanced_parts() -> tuple[Part, ...]:
    settings = (
        Part(f"{higher}, {share} %", partial(_unbalanced, higher, share, place), NEEDS["Adult"])
        for higher in HIGHER
        for place, share in enumerate((25, 50, 75, 100))
    )
    return (Part("log 2", partial(_unbalanced, "", 0, 0), NEEDS["Adult"]), *settings)


def _unbalanced(higher: str, share: int, place: int, task: Task) -> Sequence[Cell]:
    """Upsampling where a share (percent) of one class has the higher budget; PATE where that is nobody."""
    here, printed = ensemble("Adult", task), figures()["adult_unbalanced"]
    name, labels, student = "log 2", printed["baseline_labels"], printed["baseline"]
    if higher:
        name, labels = f"{higher}, {share} %", printed["labels"][higher][place]
        student = printed["student"][higher][place]
        member = here.members_of_class(1, share / 100)
        found = here.upsampled(Forest(), np.array([LOW, HIGHER[higher]]), member)
    else:
        found = here.plain(Forest(), LOW)
    right, truth = here.students(found), here.pool.test_labels
    by_class = [right[:, truth == label].mean(axis=1) for label in (0, 1)]
    return [
        labels_cell(name, "labels", labels, found),
        percent_cell(name, "student, low income", student[0], by_class[0], why=_OTHER_STUDENT),
        percent_cell(name, "student, high income", student[1], by_class[1], why=_OTHER_STUDENT),
    ]
