"""A grid of the parameters of a mechanism, and what each cell is expected to release."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import scipy
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.budgets.accountant import accountant
from protocols.errors import BudgetExceeded, InvalidInput
from protocols.mechanisms import Sensitivity, check_view
from protocols.study.study import Study
from protocols.study.votes import votes_per_unit
from simulations.planning.objectives import Objective
from simulations.planning.predictions import Noise, Planner, planned_parameters

# The grid, as shares of all votes; sigmas from a third of what one unit moves. A threshold far below zero answers
# everything and makes the test nearly free; above all votes, noise lifts a few plurality votes over it.
_SIGMAS, _TEST_SIGMAS = (0.005, 2.5, 24), (0.02, 8.0, 22)
_LEAST_NOISE = 1 / 3
_THRESHOLDS, _FINE_THRESHOLDS = (
    np.concatenate([[-32.0, -8.0, -2.0, -0.5, 0.0], np.linspace(0.1, 1.0, count), above])
    for count, above in ((37, [1.05, 1.1, 1.2, 1.4, 1.8]), (91, np.linspace(1.02, 2.0, 50)))
)
# Predictions are interpolated between two sigmas at one point less than this: the best sigma for a minimum accuracy
# lies
# where that accuracy is met, between two sigmas of the grid.
_BETWEEN = 10
# Of many distinct budgets, the grid only considers those that would end a study with that sigma.
_TIGHTEST = 16
# Answers, expected, below which a cell is taken to release none.
_NOTHING = 1e-9


@dataclass(frozen=True)
class Axes:
    """Values of each parameter that is planned (`planned_parameters`), each ascending, in votes: the label noise, other
    noise, the threshold.
    """

    values: tuple[Float64[ndarray, " values"], ...]

    @classmethod
    def wide(cls, planner: Planner) -> Axes:
        """The first grid."""
        total = planner.total
        moved = votes_per_unit(planner.settings.unit, teachers=planner.settings.teachers_per_party)
        least = _LEAST_NOISE * moved
        made: list[Float64[ndarray, " values"]] = []
        for each in planned_parameters(planner.kind).values():
            if each.role == "threshold":
                # Without a third axis there is time for more values.
                made.append((_THRESHOLDS if len(made) > 1 else _FINE_THRESHOLDS) * total)
                continue
            low, high, count = _TEST_SIGMAS if made else _SIGMAS
            made.append(np.geomspace(max(low * total, least), max(high * total, 2 * least), count))
        return cls(tuple(made))

    @property
    def sigma(self) -> Float64[ndarray, " sigmas"]:
        """Values of the label noise."""
        return self.values[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells along each axis."""
        return tuple(len(axis) for axis in self.values)

    def cell(self, at: int) -> tuple[float, ...]:
        """The settings of a flat cell number."""
        place = np.unravel_index(at, self.shape)
        return tuple(float(axis[i]) for axis, i in zip(self.values, place, strict=True))

    def around(self, at: int, *, points: int) -> Axes:
        """Finer axes between the neighbours of a cell; for sigma, between values that were predicted, not
        interpolated.
        """
        first, *rest = (int(i) for i in np.unravel_index(at, self.shape))

        def ends(axis: Float64[ndarray, " values"], position: int) -> tuple[float, float]:
            return float(axis[max(position - 1, 0)]), float(axis[min(position + 1, len(axis) - 1)])

        places = list(zip(self.values[1:], rest, strict=True))
        noise = [np.geomspace(*ends(self.sigma[::_BETWEEN], round(first / _BETWEEN)), points)]
        noise += [np.geomspace(*ends(*place), points) for place in places[:-1]]
        return Axes((*noise, np.linspace(*ends(*places[-1]), points)))


@dataclass(frozen=True)
class Grid:
    """Predictions for every cell of the axes, flattened, if the whole pool may be asked."""

    axes: Axes
    answered: Float64[ndarray, " cells"]
    accuracy: Float64[ndarray, " cells"]

    def best(self, planner: Planner, objective: Objective, min_accuracy: float) -> int:
        """The cell with the largest objective among those that are accurate enough.

        Raises InvalidInput if none is, BudgetExceeded if the budgets release nothing at all.
        """
        releases = self.answered >= 0.5
        enough = releases & (self.accuracy >= min_accuracy)
        if not enough.any():
            best = f"at best {self.accuracy[releases].max():.3f}" if releases.any() else "no label at all"
            refusal = InvalidInput if releases.any() else BudgetExceeded
            raise refusal(
                f"budgets {planner.settings.budgets!r} cannot give labels of accuracy {min_accuracy:.6g} "
                f"({best}); allowed: a lower --min-accuracy, larger budgets or more parties"
            )
        value = objective.value(self.answered, self.accuracy, classes=planner.votes.classes)
        return int(np.where(enough, value, -np.inf).argmax())


def predict_grid(planner: Planner, axes: Axes) -> Grid:
    """Expected answers and accuracy of every cell, and of cells between its sigmas, by monotone interpolation.

    Costs are exact, with the weights of one study per sigma. A sigma at which no study can be made releases nothing.
    Raises InvalidInput if there is no study at any sigma.
    """
    answered, accuracy = np.zeros(axes.shape), np.zeros(axes.shape)
    refused: list[InvalidInput] = []
    for i, sigma in enumerate(axes.sigma.tolist()):
        try:
            answered[i], accuracy[i] = _slice(planner, axes, sigma)
        except InvalidInput as error:
            refused.append(error)
    if len(refused) == len(axes.sigma):
        raise refused[-1]
    fine = np.interp(
        np.arange((len(axes.sigma) - 1) * _BETWEEN + 1) / _BETWEEN, range(len(axes.sigma)), np.log(axes.sigma)
    )
    between = [
        scipy.interpolate.PchipInterpolator(np.log(axes.sigma), table, axis=0)(fine) for table in (answered, accuracy)
    ]
    return Grid(Axes((np.exp(fine), *axes.values[1:])), between[0].ravel(), between[1].ravel())


def _slice(
    planner: Planner, axes: Axes, sigma: float
) -> tuple[Float64[ndarray, "*others thresholds"], Float64[ndarray, "*others thresholds"]]:
    """Expected answers and accuracy at one sigma."""
    names, thresholds = tuple(planned_parameters(planner.kind)), axes.values[-1]
    middle = (sigma, *(0.6 * planner.total for _ in names[2:]), 0.0)
    study = planner.study(
        Noise.of(**dict(zip(names, middle, strict=True))), queries=planner.pool, answer_rate=0.5, guide=True
    )
    filters, view, seen = study.budgets, check_view(study.view), planner.histograms(study.weights)
    account, tight = accountant(study.accountant_name), _tightest(study)
    caps = np.maximum(account.affords(filters.epsilon[tight], filters.delta[tight]), 0.0)
    units = Sensitivity.always(study.votes_per_unit * study.weights[tight])
    answered, accuracy = [], []
    for others in product(*axes.values[1:-1]):
        given = dict(zip(names, (sigma, *others, 0.0), strict=True))
        mechanism = planner.kind.build(view=view, given=given)
        cost = account.query_cost(mechanism, units, view=view, classes=study.classes)
        passes, right = seen.outcomes(planner.decision(Noise.of(**given)), thresholds)
        rate = passes.mean(axis=1)
        # As filter.affordable_queries, for every rate at once: each party at its best order, then the poorest party.
        fits = (caps / (cost.ask + rate[:, None, None] * cost.answer)).max(axis=2).min(axis=1)
        answered.append(rate * np.minimum(fits, planner.pool))
        accuracy.append(np.minimum(right.sum(axis=1) / np.maximum(passes.sum(axis=1), 1e-300), 1.0))
    # What is hardly ever answered counts as nothing: its ratios would overflow where cells are interpolated.
    some = np.reshape(answered, axes.shape[1:]) > _NOTHING
    shown = [np.where(some, np.reshape(table, some.shape), 0.0) for table in (answered, accuracy)]
    return shown[0], shown[1]


def _tightest(study: Study) -> Int64[ndarray, " few"]:
    """One party of each of the distinct budgets that end the study first."""
    filters = study.budgets
    order = np.argsort(filters.spend(filters.cap) / (filters.ask + 0.5 * filters.answer), kind="stable")
    alike = np.stack([filters.epsilon, filters.delta, study.weights])[:, order]
    _, first = np.unique(alike, axis=1, return_index=True)
    return order[np.sort(first)[:_TIGHTEST]]
