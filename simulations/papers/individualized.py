"""Individualized PATE: Tables 1 and 5 to 11, labels and students under budgets of several groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final  # Any: the values of a JSON object

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from simulations.datasets import adult as adult_data
from simulations.datasets import mnist as mnist_data
from simulations.papers import ensembles
from simulations.papers.grouped import Ensemble
from simulations.papers.paper import Cell, Paper, PaperTable, Part, Task, over_seeds, printed_figures
from simulations.papers.stand_ins import Forest, KernelRidge, Teacher
from simulations.papers.until_spent import Labelled, Terms, proportional_weights
from simulations.papers.votes import DATA_DEPENDENT_MEANS

NAME: Final = "individualized"
_NEEDS: Final = {"MNIST": (mnist_data.SOURCE,), "Adult": (adult_data.SOURCE,)}
# On MNIST single teachers are right on 97 % of the pool with all components, and on 90 %, as the paper prints, with a
# part of them.
_STRONG: Final = KernelRidge(1.0)
_WEIGHT: Final[dict[str, Teacher]] = {"MNIST": _STRONG, "Adult": Forest()}
_UPSAMPLE: Final[dict[str, Teacher]] = {"MNIST": KernelRidge(0.6), "Adult": Forest()}
_LOW: Final = float(np.log(2))
_HIGHER: Final = {f"log {times}": float(np.log(times)) for times in (4, 8, 16)}
_LABELS: Final = f"labels until the first budget is spent, {DATA_DEPENDENT_MEANS}"
_ASSIGNED: Final = (
    "a group's weight is multiplied by its share, and the smallest weight charged to the smallest budget, as the "
    "published program does: groups are charged for the weight of others, and budgets are passed"
)
_ALSO_ASSIGNED: Final = "what is printed is nearer to what the published program's assignment gives"
_CHOSEN: Final = "the part of the components that a teacher sees was chosen for the printed accuracy, 90.2 %"
_MOST: Final = (
    "were all teachers to agree on every query, so that labels cost nothing: what the threshold tests leave, whatever "
    "the votes"
)
_NO_SVHN: Final = "SVHN cannot be had, nor the votes"
_STAND_INS: Final = "the teachers are stand-ins, which agree more or less often than the paper's"
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
            "right on 97 %; Upsample in Tables 5 to 8 is of teachers that are right on 90 %, as printed. No single "
            "ensemble comes near all columns.",
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
        ),
    )


@cache
def _printed() -> dict[str, Any]:
    return printed_figures(NAME)


def _ensemble(dataset: str, task: Task) -> Ensemble:
    setting = _printed()["setting"][dataset]
    sizes = {part: setting[part] for part in ("private", "public", "test")}
    pool = ensembles.mnist(task.host) if dataset == "MNIST" else ensembles.adult(task.host, **sizes)
    return Ensemble(task, pool, Terms.of(setting))


def _count(
    row: str,
    figure: str,
    printed: float | None,
    found: Sequence[Labelled],
    *,
    means: str = _LABELS,
    why: str = _STAND_INS,
) -> Cell:
    labels = over_seeds([len(each.labels) for each in found])
    return Cell(row=row, figure=figure, unit="count", printed=printed, means=means, why=why, **labels)


def _most(row: str, figure: str, most: float) -> Cell:
    return Cell(row=row, figure=figure, unit="count", printed=None, ours=most, means=_MOST)


def _percent(row: str, figure: str, printed: float, values: Sequence[float], *, why: str = _STAND_INS) -> Cell:
    return Cell(row=row, figure=figure, unit="percent", printed=100 * printed, why=why, **over_seeds(values))


def _table_1_part(row: dict[str, Any]) -> Part:
    dataset, shares = row["dataset"], "-".join(f"{100 * share:.0f}" for share in row["groups"])
    name = f"{dataset} {shares} %"
    return Part(name, partial(_table_1 if dataset in _NEEDS else _not_had, name, row), _NEEDS.get(dataset, ()))


def _not_had(name: str, row: dict[str, Any], task: Task) -> Sequence[Cell]:
    cells = []
    for column, labels, right in zip(_printed()["table_1"]["columns"], row["labels"], row["accuracy"], strict=True):
        none: dict[str, Any] = {"row": name, "ours": None, "why": _NO_SVHN}
        cells.append(Cell(figure=f"labels, {column}", unit="count", printed=labels, **none))
        cells.append(Cell(figure=f"right, {column}", unit="percent", printed=100 * right, **none))
    return cells


def _table_1(name: str, row: dict[str, Any], task: Task) -> Sequence[Cell]:
    here = _ensemble("MNIST", task)
    epsilon, shares = np.array(row["eps"], dtype=np.float64), np.array(row["groups"])
    found = {
        "PATE": here.plain(_STRONG, float(epsilon.min())),
        "Upsample": here.upsampled(_STRONG, epsilon, here.members(shares)),
        "Weight": here.weighted(_STRONG, epsilon, shares, as_published=False),
    }
    cells = []
    for column, labels, right in zip(_printed()["table_1"]["columns"], row["labels"], row["accuracy"], strict=True):
        why = f"{_STAND_INS}; and {_ALSO_ASSIGNED}" if column == "Weight" else _STAND_INS
        cells.append(_count(name, f"labels, {column}", labels, found[column], why=why))
        cells.append(_percent(name, f"right, {column}", right, here.right(found[column])))
    published = here.weighted(_STRONG, epsilon, shares, as_published=True)
    return [*cells, _count(name, "labels, Weight as published", None, published, means=_ASSIGNED)]


@dataclass(frozen=True)
class _Two:
    """A setting of two groups: a share has the higher of two budgets. place: of Upsample in the printed rows."""

    higher: str
    share: float
    place: int

    @property
    def name(self) -> str:
        return f"{self.higher}, {100 * self.share:.0f} %"

    @property
    def epsilon(self) -> Float64[ndarray, "2"]:
        return np.array([_LOW, _HIGHER[self.higher]])

    @property
    def shares(self) -> Float64[ndarray, "2"]:
        return np.array([1 - self.share, self.share])

    def printed(self, dataset: str, figure: str) -> tuple[float, float]:
        """What is printed for Upsample and for Weight."""
        upsample, weight = _printed()[dataset.lower()][figure][self.higher][self.place : self.place + 2]
        return upsample, weight

    def labelled(self, here: Ensemble, dataset: str) -> tuple[list[Labelled], list[Labelled]]:
        """The labels by Upsample and by Weight."""
        return (
            here.upsampled(_UPSAMPLE[dataset], self.epsilon, here.members(self.shares)),
            here.weighted(_WEIGHT[dataset], self.epsilon, self.shares, as_published=False),
        )


_TWO_GROUPS: Final = tuple(
    _Two(higher, share, 2 * place) for higher in _HIGHER for place, share in enumerate((0.25, 0.5, 0.75))
)


def _labels_parts(dataset: str) -> tuple[Part, ...]:
    needs = _NEEDS[dataset]
    settings = (Part(two.name, partial(_labels, dataset, two), needs) for two in _TWO_GROUPS)
    return (Part("log 2", partial(_one_budget, dataset), needs), *settings)


def _one_budget(dataset: str, task: Task) -> Sequence[Cell]:
    here, printed = _ensemble(dataset, task), _printed()[dataset.lower()]
    found = here.plain(_WEIGHT[dataset], _LOW)
    cells = [
        _count("log 2", "labels, PATE", printed["baseline_labels"], found),
        _most("log 2", "labels, PATE, at most", here.most(np.array([_LOW]), np.ones(1))),
    ]
    if dataset == "Adult":
        return [*cells, _percent("log 2", "teachers", printed["teacher_accuracy"], [here.teachers(Forest())])]
    cells.append(_percent("log 2", "right, PATE", printed["label_accuracy"], here.right(found)))
    cells.extend(
        Cell(
            row="log 2",
            figure=f"teachers, {column}",
            unit="percent",
            printed=None,
            ours=here.teachers(fit),
            means=means,
        )
        for column, fit, means in (("PATE and Weight", _STRONG, ""), ("Upsample", _UPSAMPLE[dataset], _CHOSEN))
    )
    return cells


def _labels(dataset: str, two: _Two, task: Task) -> Sequence[Cell]:
    here = _ensemble(dataset, task)
    upsample, weight = two.labelled(here, dataset)
    printed = two.printed(dataset, "labels")
    cells = [
        _count(two.name, "labels, Upsample", printed[0], upsample),
        _count(two.name, "labels, Weight", printed[1], weight),
        _most(
            two.name,
            "labels, Weight, at most",
            here.most(two.epsilon, proportional_weights(two.epsilon, two.shares).charged),
        ),
    ]
    if two.share == 0.5:  # equal shares: the same weights
        return cells
    published = here.weighted(_WEIGHT[dataset], two.epsilon, two.shares, as_published=True)
    return [*cells, _count(two.name, "labels, Weight as published", None, published, means=_ASSIGNED)]


def _student_parts(dataset: str) -> tuple[Part, ...]:
    needs = _NEEDS[dataset]
    settings = (Part(two.name, partial(_students, dataset, two), needs) for two in _TWO_GROUPS)
    return (Part("log 2", partial(_plain_students, dataset), needs), *settings)


def _plain_students(dataset: str, task: Task) -> Sequence[Cell]:
    here = _ensemble(dataset, task)
    right = here.students(here.plain(_WEIGHT[dataset], _LOW)).mean(axis=1)
    return [_percent("log 2", "PATE", _printed()[dataset.lower()]["baseline_student"], right, why=_OTHER_STUDENT)]


def _students(dataset: str, two: _Two, task: Task) -> Sequence[Cell]:
    here = _ensemble(dataset, task)
    return [
        _percent(two.name, column, printed, here.students(found).mean(axis=1), why=_OTHER_STUDENT)
        for column, printed, found in zip(
            ("Upsample", "Weight"), two.printed(dataset, "student"), two.labelled(here, dataset), strict=True
        )
    ]


def _unbalanced_parts() -> tuple[Part, ...]:
    settings = (
        Part(f"{higher}, {share} %", partial(_unbalanced, higher, share, place), _NEEDS["Adult"])
        for higher in _HIGHER
        for place, share in enumerate((25, 50, 75, 100))
    )
    return (Part("log 2", partial(_unbalanced, "", 0, 0), _NEEDS["Adult"]), *settings)


def _unbalanced(higher: str, share: int, place: int, task: Task) -> Sequence[Cell]:
    """Upsampling where a share (percent) of one class has the higher budget; PATE where that is nobody."""
    here, printed = _ensemble("Adult", task), _printed()["adult_unbalanced"]
    name, labels, student = "log 2", printed["baseline_labels"], printed["baseline"]
    if higher:
        name, labels = f"{higher}, {share} %", printed["labels"][higher][place]
        student = printed["student"][higher][place]
        member = here.members_of_class(1, share / 100)
        found = here.upsampled(Forest(), np.array([_LOW, _HIGHER[higher]]), member)
    else:
        found = here.plain(Forest(), _LOW)
    right, truth = here.students(found), here.pool.test_labels
    by_class = [right[:, truth == label].mean(axis=1) for label in (0, 1)]
    return [
        _count(name, "labels", labels, found),
        _percent(name, "student, low income", student[0], by_class[0], why=_OTHER_STUDENT),
        _percent(name, "student, high income", student[1], by_class[1], why=_OTHER_STUDENT),
    ]
