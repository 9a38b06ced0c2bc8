"""What the tables of Individualized PATE share: settings, ensembles that stand in, budgets of two groups, and cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final  # Any: the values of a JSON object

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from simulations.datasets import adult as adult_data
from simulations.datasets import mnist as mnist_data
from simulations.papers import ensembles
from simulations.papers.following import Following
from simulations.papers.grouped import Ensemble
from simulations.papers.paper import Cell, Task, over_seeds, printed_figures
from simulations.papers.stand_ins import Forest, KernelRidge, Teacher
from simulations.papers.until_spent import Labelled, Terms
from simulations.papers.votes import DATA_DEPENDENT_MEANS

NAME: Final = "individualized"
NEEDS: Final = {"MNIST": (mnist_data.SOURCE,), "Adult": (adult_data.SOURCE,)}
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
    pool = ensembles.mnist(task.host) if dataset == "MNIST" else ensembles.adult(task.host, **sizes)
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
