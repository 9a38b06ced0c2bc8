"""A grid of (sigma, sigma_threshold, threshold), and what each cell is expected to release."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.budgets.accountant import accountant
from protocols.errors import BudgetExceeded, InvalidInput
from protocols.mechanisms import Sensitivity, check_view
from protocols.mechanisms.confident_gnmax import ConfidentGNMax
from protocols.study.study import Study, votes_per_unit
from simulations.planning.objectives import Objective
from simulations.planning.predictions import Noise, Planner

# The grid, as shares of all votes; sigmas from a third of what one unit moves. A threshold far below zero answers
# everything and makes the test nearly free.
_SIGMAS, _TEST_SIGMAS = (0.005, 2.5, 24), (0.02, 8.0, 22)
_LEAST_NOISE = 1 / 3
_THRESHOLDS = np.concatenate([[-32.0, -8.0, -2.0, -0.5, 0.0], np.linspace(0.1, 1.0, 37)])
# Predictions are interpolated between two sigmas at one point less than this: the best sigma for a minimum accuracy
# lies
# where that accuracy is met, between two sigmas of the grid.
_BETWEEN = 10
# Of many distinct budgets, the grid only considers those that would end a study with that sigma.
_TIGHTEST = 16


@dataclass(frozen=True)
class Axes:
    """Values of the three settings, each ascending, in votes."""

    sigma: Float64[ndarray, " sigmas"]
    sigma_threshold: Float64[ndarray, " tests"]
    threshold: Float64[ndarray, " thresholds"]

    @classmethod
    def wide(cls, planner: Planner) -> Axes:
        """The first grid."""
        total, moved = (
            planner.total,
            votes_per_unit(planner.settings.unit, teachers=planner.settings.teachers_per_party),
        )
        low, high, count = _SIGMAS
        low_test, high_test, count_test = _TEST_SIGMAS
        least = _LEAST_NOISE * moved
        return cls(
            np.geomspace(max(low * total, least), max(high * total, 2 * least), count),
            np.geomspace(max(low_test * total, least), max(high_test * total, 2 * least), count_test),
            _THRESHOLDS * total,
        )

    @property
    def shape(self) -> tuple[int, int, int]:
        """Cells along each axis."""
        return len(self.sigma), len(self.sigma_threshold), len(self.threshold)

    def cell(self, at: int) -> tuple[float, float, float]:
        """The settings of a flat cell number."""
        i, j, k = np.unravel_index(at, self.shape)
        return float(self.sigma[i]), float(self.sigma_threshold[j]), float(self.threshold[k])

    def around(self, at: int, *, points: int) -> Axes:
        """Finer axes between the neighbours of a cell; for sigma, between values that were predicted, not
        interpolated.
        """
        i, j, k = np.unravel_index(at, self.shape)

        def ends(axis: Float64[ndarray, " values"], position: int) -> tuple[float, float]:
            return float(axis[max(position - 1, 0)]), float(axis[min(position + 1, len(axis) - 1)])

        return Axes(
            np.geomspace(*ends(self.sigma[::_BETWEEN], round(int(i) / _BETWEEN)), points),
            np.geomspace(*ends(self.sigma_threshold, int(j)), points),
            np.linspace(*ends(self.threshold, int(k)), points),
        )


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
    return Grid(replace(axes, sigma=np.exp(fine)), between[0].ravel(), between[1].ravel())


def _slice(
    planner: Planner, axes: Axes, sigma: float
) -> tuple[Float64[ndarray, "tests thresholds"], Float64[ndarray, "tests thresholds"]]:
    """Expected answers and accuracy at one sigma."""
    middle = Noise(sigma=sigma, sigma_threshold=0.6 * planner.total, threshold=0.0)
    study = planner.study(middle, queries=planner.pool, answer_rate=0.5)
    filters, view, seen = study.budgets, check_view(study.view), planner.histograms(study.weights)
    account, tight = accountant(study.accountant_name), _tightest(study)
    caps = np.maximum(account.affords(filters.epsilon[tight], filters.delta[tight]), 0.0)
    units = Sensitivity.always(study.votes_per_unit * study.weights[tight])
    correct = planner.correct(study.weights, sigma)
    answered, accuracy = np.empty(axes.shape[1:]), np.empty(axes.shape[1:])
    for j, test in enumerate(axes.sigma_threshold.tolist()):
        mechanism = ConfidentGNMax(sigma=sigma, sigma_threshold=test, threshold=0.0)
        cost = account.query_cost(mechanism, units, view=view, classes=study.classes)
        passes = seen.passes(threshold=axes.threshold, sigma=test)
        rate = passes.mean(axis=1)
        # As filter.affordable_queries, for every rate at once: each party at its best order, then the poorest party.
        fits = (caps / (cost.ask + rate[:, None, None] * cost.answer)).max(axis=2).min(axis=1)
        answered[j] = rate * np.minimum(fits, planner.pool)
        accuracy[j] = np.minimum(passes @ correct / np.maximum(passes.sum(axis=1), 1e-300), 1.0)
    return answered, accuracy


def _tightest(study: Study) -> Int64[ndarray, " few"]:
    """One party of each of the distinct budgets that end the study first."""
    filters = study.budgets
    order = np.argsort(filters.cap / (filters.ask + 0.5 * filters.answer), kind="stable")
    alike = np.stack([filters.epsilon, filters.delta, study.weights])[:, order]
    _, first = np.unique(alike, axis=1, return_index=True)
    return order[np.sort(first)[:_TIGHTEST]]
