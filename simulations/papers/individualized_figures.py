"""The figures of Individualized PATE on MNIST: what groups spend label by label, and labels over budgets.

What is drawn is known from the published program's notebooks and plans of experiments. It prints no figure of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from simulations.papers.individualized_setting import HIGHER, LABELS, LOW, NEEDS, UPSAMPLE, ensemble, labels_cell
from simulations.papers.paper import Cell, PaperTable, Part, Task, over_seeds
from simulations.papers.until_spent import label_until_spent, spent_after
from simulations.papers.votes import DATA_DEPENDENT_MEANS

_TEACHER: Final = UPSAMPLE["MNIST"]
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
    plain = here.plain_counts(_TEACHER)
    counts, charged = here.upsampled_counts(_TEACHER, epsilon, here.members(_HALF))

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
        labels_cell("PATE", "labels", None, here.plain(_TEACHER, LOW)),
        labels_cell("Upsample", "labels", None, here.labelled(counts, epsilon, charged)),
    ]
    by_step = [cell for step in zip(*curves, strict=True) for cell in step]
    return [*by_step, *stops, *ends]


def _over_budgets(share: int, ratio: int, task: Task) -> Sequence[Cell]:
    here, epsilon = ensemble("MNIST", task), np.array([1.0, float(ratio)])
    shares = np.array([1 - share / 100, share / 100])
    row = f"{share} %, budget {ratio}"
    found = {
        "Upsample": here.upsampled(_TEACHER, epsilon, here.members(shares)),
        "Weight": here.weighted(_TEACHER, epsilon, shares, as_published=False),
    }
    mean = f"{LABELS}; of teachers that are right on 90 %"
    return [labels_cell(row, f"labels, {name}", None, labels, means=mean) for name, labels in found.items()]
