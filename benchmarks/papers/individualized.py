"""What the tables of Individualized PATE share: settings, ensembles that stand in, budgets of two groups, and cells.

Individualized PATE on MNIST with votes that are calibrated to printed numbers of labels, one for each set of cells.

Teachers that see fewer components agree less. Where votes must agree more without being right more often, a share of
them follows one model (benchmarks/papers/stand_ins.py). All other cells of a set then follow.

The figures of Individualized PATE on MNIST: what groups spend label by label, and labels over budgets.

What is drawn is known from the published program's notebooks and plans of experiments. It prints no figure of them.

Individualized PATE: Tables 1 and 5 to 11, labels and students under budgets of several groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import (
    Any,  # Any: the values of a JSON object
    Final,
)

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from benchmarks.papers import stand_ins
from benchmarks.papers.paper import Cell, Paper, PaperTable, Part, Task, over_seeds, printed_figures
from benchmarks.papers.stand_ins import Following, Forest, KernelRidge, Teacher
from benchmarks.papers.students import Ensemble, Labelled, Terms, label_until_spent, proportional_weights, spent_after
from benchmarks.papers.votes import DATA_DEPENDENT_MEANS
from simulations.datasets.sources import published

NAME: Final = "individualized"
NEEDS: Final = {"MNIST": (published("mnist").source,), "Adult": (published("adult").source,)}
# On MNIST single teachers are right on 97 % of the pool with all components, and on 90 %, as the paper prints, with a
# part of them.
STRONG: Final = KernelRidge(1.0)
WEIGHT: Final[dict[str, Teacher]] = {"MNIST": STRONG, "Adult": Forest()}
UPSAMPLE: Final[dict[str, Teacher]] = {"MNIST": KernelRidge(0.6), "Adult": Forest()}
LOW: Final = float(np.log(2))
HIGHER: Final = {f"log {times}": float(np.log(times)) for times in (4, 8, 16)}
LABELS: Final = f"labels until the first budget is spent, {DATA_DEPENDENT_MEANS}"
ASSIGNED: Final = (
    "a group's weight is multiplied by its share, and the smallest weight charged to the smallest budget, as the "
    "published program does: groups are charged for the weight of others, and budgets are passed"
)
STAND_INS: Final = "the teachers are stand-ins, which agree more or less often than the paper's"


@cache
def figures() -> dict[str, Any]:
    """What the paper printed."""
    return printed_figures(NAME)


def ensemble(dataset: str, task: Task, *, following: Following | None = None) -> Ensemble:
    """The paper's pool and terms of "MNIST" or "Adult"."""
    setting = figures()["setting"][dataset]
    sizes = {part: setting[part] for part in ("private", "public", "test")}
    pool = stand_ins.mnist(task.host) if dataset == "MNIST" else stand_ins.adult(task.host, **sizes)
    return Ensemble(task, pool, Terms.of(setting), following)


def labels_cell(
    row: str,
    figure: str,
    printed: float | None,
    found: Sequence[Labelled],
    *,
    means: str = LABELS,
    why: str = STAND_INS,
    other: str = "",
) -> Cell:
    """How many labels there are, over seeds."""
    labels = over_seeds([len(each.labels) for each in found])
    return Cell(row=row, figure=figure, unit="count", printed=printed, means=means, why=why, other=other, **labels)


def percent_cell(
    row: str, figure: str, printed: float, values: Sequence[float], *, why: str = STAND_INS, other: str = ""
) -> Cell:
    """A mean percentage over seeds; printed: a share of 1."""
    return Cell(
        row=row, figure=figure, unit="percent", printed=100 * printed, why=why, other=other, **over_seeds(values)
    )


@dataclass(frozen=True)
class TwoGroups:
    """A setting of two groups: a share has the higher of two budgets. place: of Upsample in the printed rows."""

    higher: str
    share: float
    place: int

    @property
    def name(self) -> str:
        """The row's name."""
        return f"{self.higher}, {100 * self.share:.0f} %"

    @property
    def epsilon(self) -> Float64[ndarray, "2"]:
        """Of those of the lower budget, and of the others."""
        return np.array([LOW, HIGHER[self.higher]])

    @property
    def shares(self) -> Float64[ndarray, "2"]:
        """Of the records, in the order of `epsilon`."""
        return np.array([1 - self.share, self.share])

    def printed(self, dataset: str, figure: str) -> tuple[float, float]:
        """What is printed for Upsample and for Weight."""
        upsample, weight = figures()[dataset.lower()][figure][self.higher][self.place : self.place + 2]
        return upsample, weight

    def labelled(self, here: Ensemble, dataset: str) -> tuple[list[Labelled], list[Labelled]]:
        """The labels by Upsample and by Weight."""
        return (
            here.upsampled(UPSAMPLE[dataset], self.epsilon, here.members(self.shares)),
            here.weighted(WEIGHT[dataset], self.epsilon, self.shares, as_published=False),
        )


TWO_GROUPS: Final = tuple(
    TwoGroups(higher, share, 2 * place) for higher in HIGHER for place, share in enumerate((0.25, 0.5, 0.75))
)


_CALIBRATED_TEACHER: Final = UPSAMPLE["MNIST"]
# Chosen over ten seeds: 362 labels at epsilon 1, of which 97.4 % are right (printed: 365, and 97.4 %).
_TABLE_1: Final = Following(records=200, share=0.57)
# Chosen over six seeds for log 4, 50 %: Upsample 243 labels, Weight 490 (printed: 237, 492).
_LESS: Final = KernelRidge(35 / 64)
_WEIGHT: Final = Following(records=300, share=0.72)
_ALL: Final = Following(records=400, share=1.0)
_OTHER_1: Final = "votes of which 57 % follow one model, as calibrated to what Table 1 prints of PATE"
_OTHER_UPSAMPLE: Final = "teachers that are right on 89 %, as calibrated to the labels printed at log 4, 50 %"
_OTHER_WEIGHT: Final = "votes of which 72 % follow one model, as calibrated to the labels printed at log 4, 50 %"
_OTHER_ALL: Final = "votes that all follow one model, which gives the most labels that 250 teachers can give on average"
_WHY: Final = "one calibration does not fit all cells; those of Weight fit one assignment of weights or the other"


def calibrated() -> PaperTable:
    """The tables on MNIST again; none of their cells counts in the verdict."""
    rows = [row for row in figures()["table_1"]["rows"] if row["dataset"] == "MNIST"]
    return PaperTable(
        "calibrated",
        "Table 1, and the labels of Tables 5 to 8, with votes that are calibrated to some of what is printed",
        (
            *(Part(_row_1(row), partial(_calibrated_table_1, row), NEEDS["MNIST"]) for row in rows),
            Part("log 2", _calibrated_budget, NEEDS["MNIST"]),
            *(Part(two.name, partial(_two_budgets, two), NEEDS["MNIST"]) for two in TWO_GROUPS),
        ),
    )


def _row_1(row: dict[str, Any]) -> str:
    return "Table 1, " + "-".join(f"{100 * share:.0f}" for share in row["groups"]) + " %"


def _calibrated_table_1(row: dict[str, Any], task: Task) -> Sequence[Cell]:
    here = ensemble("MNIST", task, following=_TABLE_1)
    epsilon, shares = np.array(row["eps"], dtype=np.float64), np.array(row["groups"])
    found = (
        here.plain(_CALIBRATED_TEACHER, float(epsilon.min())),
        here.upsampled(_CALIBRATED_TEACHER, epsilon, here.members(shares)),
        here.weighted(_CALIBRATED_TEACHER, epsilon, shares, as_published=False),
    )
    cells = []
    for column, labels, right, ours in zip(
        figures()["table_1"]["columns"], row["labels"], row["accuracy"], found, strict=True
    ):
        cells.append(labels_cell(_row_1(row), f"labels, {column}", labels, ours, other=_OTHER_1, why=_WHY))
        cells.append(percent_cell(_row_1(row), f"right, {column}", right, here.right(ours), other=_OTHER_1, why=_WHY))
    return cells


def _calibrated_budget(task: Task) -> Sequence[Cell]:
    here, printed = ensemble("MNIST", task, following=_ALL), figures()["mnist"]
    found = here.plain(_CALIBRATED_TEACHER, LOW)
    return [
        labels_cell("log 2", "labels, PATE", printed["baseline_labels"], found, other=_OTHER_ALL, why=_WHY),
        percent_cell("log 2", "right, PATE", printed["label_accuracy"], here.right(found), other=_OTHER_ALL, why=_WHY),
    ]


def _two_budgets(two: TwoGroups, task: Task) -> Sequence[Cell]:
    printed = two.printed("MNIST", "labels")
    less, more = ensemble("MNIST", task), ensemble("MNIST", task, following=_WEIGHT)
    upsample = less.upsampled(_LESS, two.epsilon, less.members(two.shares))
    weight = more.weighted(_CALIBRATED_TEACHER, two.epsilon, two.shares, as_published=False)
    cells = [
        labels_cell(two.name, "labels, Upsample", printed[0], upsample, other=_OTHER_UPSAMPLE, why=_WHY),
        labels_cell(two.name, "labels, Weight", printed[1], weight, other=_OTHER_WEIGHT, why=_WHY),
    ]
    if two.share == 0.5:  # equal shares: the same weights
        return cells
    published = more.weighted(_CALIBRATED_TEACHER, two.epsilon, two.shares, as_published=True)
    figure = "labels, Weight as published"
    return [*cells, labels_cell(two.name, figure, printed[1], published, means=ASSIGNED, other=_OTHER_WEIGHT, why=_WHY)]


_FIGURES_TEACHER: Final = UPSAMPLE["MNIST"]
_STEPS: Final = (50, 100, 150, 200, 300, 400, 600)
_HALF: Final = np.array([0.5, 0.5])
_BUDGETS: Final = {"log 2": LOW, "log 8": HIGHER["log 8"]}
_SPENT: Final = f"spent once so many labels are out, whatever the budget; {DATA_DEPENDENT_MEANS}"
_ALONE: Final = f"labels until this group's budget is spent, were there no other; {DATA_DEPENDENT_MEANS}"
_RATIOS: Final = (2, 3, 4)
_SHARES: Final = (25, 50, 75)


def figure_2() -> PaperTable:
    """Epsilon over the number of labels, of PATE and of both groups of Upsample."""
    return PaperTable(
        "figure-2",
        "Figure 2: epsilon spent over labels; half of the records have a budget of log 2, half of log 8; Upsample",
        (Part("MNIST", _spent, NEEDS["MNIST"]),),
    )


def labels_over_budgets() -> PaperTable:
    """Labels over the higher of two budgets, for three shares of the records."""
    return PaperTable(
        "labels-over-budgets",
        "The figure of labels over budgets: a share of the records has the higher budget, the others have 1",
        tuple(
            Part(f"{share} %, budget {ratio}", partial(_over_budgets, share, ratio), NEEDS["MNIST"])
            for share in _SHARES
            for ratio in _RATIOS
        ),
    )


def _spent(task: Task) -> Sequence[Cell]:
    here, epsilon = ensemble("MNIST", task), np.array(list(_BUDGETS.values()))
    plain = here.plain_counts(_FIGURES_TEACHER)
    counts, charged = here.upsampled_counts(_FIGURES_TEACHER, epsilon, here.members(_HALF))

    def after(votes: Float64[ndarray, "queries classes"], sensitivity: Float64[ndarray, " groups"]) -> ndarray:
        return np.array(
            [spent_after(votes, here.terms, labels=_STEPS, sensitivity=sensitivity, seed=seed) for seed in task.seeds]
        )

    def cells(figure: str, spent: Float64[ndarray, "seeds labels"]) -> list[Cell]:
        return [
            Cell(row=f"{step} labels", figure=figure, unit="epsilon", printed=None, means=_SPENT, **over_seeds(values))
            for step, values in zip(_STEPS, spent.T.tolist(), strict=True)
        ]

    groups = after(counts, charged)
    curves = [cells("epsilon, PATE", after(plain, np.ones(1))[:, :, 0])]
    curves += [cells(f"epsilon, budget {name}", groups[:, :, group]) for group, name in enumerate(_BUDGETS)]
    ends = []
    for group, name in enumerate(_BUDGETS):
        alone = np.where(np.arange(len(epsilon)) == group, epsilon, np.inf)
        found = [
            label_until_spent(counts, here.terms, epsilon=alone, sensitivity=charged, seed=seed) for seed in task.seeds
        ]
        ends.append(labels_cell("Upsample", f"labels, budget {name} alone", None, found, means=_ALONE))
    stops = [
        labels_cell("PATE", "labels", None, here.plain(_FIGURES_TEACHER, LOW)),
        labels_cell("Upsample", "labels", None, here.labelled(counts, epsilon, charged)),
    ]
    by_step = [cell for step in zip(*curves, strict=True) for cell in step]
    return [*by_step, *stops, *ends]


def _over_budgets(share: int, ratio: int, task: Task) -> Sequence[Cell]:
    here, epsilon = ensemble("MNIST", task), np.array([1.0, float(ratio)])
    shares = np.array([1 - share / 100, share / 100])
    row = f"{share} %, budget {ratio}"
    found = {
        "Upsample": here.upsampled(_FIGURES_TEACHER, epsilon, here.members(shares)),
        "Weight": here.weighted(_FIGURES_TEACHER, epsilon, shares, as_published=False),
    }
    mean = f"{LABELS}; of teachers that are right on 90 %"
    return [labels_cell(row, f"labels, {name}", None, labels, means=mean) for name, labels in found.items()]


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
            "Stand-ins vote on the paper's data, as its votes are not published: kernel ridge regressions on MNIST, "
            "random forests on Adult. There is one ensemble for all seeds, as in the paper; a seed draws the order of "
            "the queries, the noise and the student.",
            "Weight: proportional to epsilon; where the published program's weights give something else, that stands "
            "beside it. Upsample: a record of a larger budget is learned by more teachers.",
            "On MNIST two ensembles stand in, chosen by what is printed, so that cells of MNIST say less than those of "
            "Adult (docs/how-to/reproduce-a-paper.md).",
            "Figures: the paper's text could not be had; settings are those of the published program's notebooks.",
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
