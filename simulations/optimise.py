"""Optimise: the noise, threshold, pool and batch size of Confident-GNMax that release the most useful labels.

The search goes over a grid of (sigma, sigma_threshold, threshold), vectorised and with the weights of one study a
sigma, then over finer grids around its best cell, and last over exact predictions (predictions.py) of neighbours on
values of three digits, until none is better. All of it is worst case and public: no private vote is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from jaxtyping import Bool, Float64, Int64
from numpy import ndarray
from scipy.special import expit, logit

from protocols.accounting.accountant import accountant
from protocols.errors import InvalidInput
from protocols.mechanisms import Sensitivity, check_view
from protocols.mechanisms.confident_gnmax import ConfidentGNMax
from protocols.study import Study
from simulations.experiment import SHARES
from simulations.predictions import OBJECTIVES, Noise, Objective, Planner, Prediction, asked_more_than

# The grid, as shares of all votes. A threshold far below zero answers everything and makes the test nearly free.
_SIGMAS = np.geomspace(0.005, 2.5, 32)
_TEST_SIGMAS = np.geomspace(0.02, 8.0, 22)
_THRESHOLDS = np.concatenate([[-32.0, -8.0, -2.0, -0.5, 0.0], np.linspace(0.1, 1.0, 37)])
# Relative steps of the last search.
_STEPS = (0.03, 0.01)
# Of many distinct budgets, the grid looks at those that a study of that sigma ends with.
_TIGHTEST = 16
# Levels of accuracy on the frontier, and the share of the chosen setting's answers at which it ends.
_LEVELS, _FEW = 12, 0.02
_BATCHES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
# The share of labels that batches of a fixed size may leave unasked.
BATCH_LOSS = 0.01


@dataclass(frozen=True, kw_only=True)
class BatchCost:
    """What a batch size costs, in expectation.

    stranded: labels lost if every batch but the pool's last has just this size, because the last that would not fit
    the budgets is not asked; batches: how many are then asked; batches_shrinking: how many if the last ones shrink to
    what fits, as a run's do, which strands nothing.
    """

    size: int
    stranded: float
    batches: float
    batches_shrinking: int


@dataclass(frozen=True, kw_only=True)
class Optimum:
    """The best settings, what is expected of them, and what else could be had.

    chosen: with the pool that is asked for; common: the simulator's default noise (Papernot et al. 2018, Table 1, per
    vote) under the same budgets, None where it affords nothing; frontier: nondominated in (answered, accuracy), by
    accuracy, from the whole pool.
    """

    study: Study
    chosen: Prediction
    common: Prediction
    frontier: tuple[Prediction, ...]
    batch_size: int
    batches: tuple[BatchCost, ...]


def optimise(planner: Planner, *, min_accuracy: float) -> Optimum:
    """The settings of the largest objective among those whose labels are expected to be this accurate.

    Raises InvalidInput where no setting releases a label, or none so accurate a one.
    """
    total = planner.total
    grid = predict_grid(planner, Axes(_SIGMAS * total, _TEST_SIGMAS * total, _THRESHOLDS * total))
    start = _zoomed(planner, grid, planner.objective, min_accuracy, points=7, zooms=2)
    noise = climb(planner, start, min_accuracy=min_accuracy)
    whole = planner.predict(noise)
    chosen = planner.predict(noise, queries=planner.enough(noise))
    if chosen.answered < 1:
        raise InvalidInput(
            f"budgets {planner.settings.budgets!r} are expected to release {whole.answered:.2g} labels of accuracy "
            f"{min_accuracy:.3g}; allowed: budgets, parties and a --min-accuracy that give at least 1"
        )
    study = planner.study(noise, queries=chosen.queries)
    batches = tuple(batch_costs(study, chosen))
    return Optimum(
        study=study,
        chosen=chosen,
        common=planner.predict(Noise.rounded(*(SHARES[name] * total for name in _COMMON))),
        frontier=frontier(planner, grid, whole),
        batch_size=max(cost.size for cost in batches if cost.stranded <= BATCH_LOSS * chosen.answered),
        batches=batches,
    )


def _zoomed(
    planner: Planner, grid: Grid, objective: Objective, min_accuracy: float, *, points: int, zooms: int
) -> Noise:
    """The best cell of grids that are finer and finer around the best cell."""
    for _ in range(zooms):
        around = grid.best(planner, objective, min_accuracy)
        grid = predict_grid(planner, grid.axes.around(around, points=points))
    return Noise.rounded(*grid.axes.cell(grid.best(planner, objective, min_accuracy)))


_COMMON = ("sigma", "sigma_threshold", "threshold")


def climb(planner: Planner, start: Noise, *, min_accuracy: float) -> Noise:
    """The noise that no neighbour beats, a last step away in any of the three or in several at once."""

    def rank(noise: Noise) -> tuple[float, float]:
        predicted = planner.predict(noise)
        # Short of the accuracy, more of it comes first.
        return min(predicted.accuracy - min_accuracy, 0.0), predicted.value

    best = start
    for step in _STEPS:
        while (better := max(neighbours(planner, best, step=step), key=rank)) != best and rank(better) > rank(best):
            best = better
    return best


def neighbours(planner: Planner, noise: Noise, *, step: float) -> Iterator[Noise]:
    """The 26 settings around these, a relative step up or down in each; the threshold's is of max(votes, sigma1)."""
    scale = max(planner.total, noise.sigma_threshold)
    for up_sigma, up_test, up_threshold in product((-1, 0, 1), repeat=3):
        if up_sigma or up_test or up_threshold:
            yield Noise.rounded(
                noise.sigma * (1 + step) ** up_sigma,
                noise.sigma_threshold * (1 + step) ** up_test,
                min(noise.threshold + up_threshold * step * scale, planner.total),
            )


@dataclass(frozen=True)
class Axes:
    """Values of the three settings, each ascending, in votes."""

    sigma: Float64[ndarray, " sigmas"]
    sigma_threshold: Float64[ndarray, " tests"]
    threshold: Float64[ndarray, " thresholds"]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Cells along each axis."""
        return len(self.sigma), len(self.sigma_threshold), len(self.threshold)

    def cell(self, at: int) -> tuple[float, float, float]:
        """The settings of a flat cell number."""
        i, j, k = np.unravel_index(at, self.shape)
        return float(self.sigma[i]), float(self.sigma_threshold[j]), float(self.threshold[k])

    def around(self, at: int, *, points: int) -> Axes:
        """Finer axes between the neighbours of a cell."""
        i, j, k = np.unravel_index(at, self.shape)

        def ends(axis: Float64[ndarray, " values"], position: int) -> tuple[float, float]:
            return float(axis[max(position - 1, 0)]), float(axis[min(position + 1, len(axis) - 1)])

        return Axes(
            np.geomspace(*ends(self.sigma, int(i)), points),
            np.geomspace(*ends(self.sigma_threshold, int(j)), points),
            np.linspace(*ends(self.threshold, int(k)), points),
        )


@dataclass(frozen=True)
class Grid:
    """Predictions of every cell of the axes, flattened; the whole pool."""

    axes: Axes
    answered: Float64[ndarray, " cells"]
    accuracy: Float64[ndarray, " cells"]

    def best(self, planner: Planner, objective: Objective, min_accuracy: float) -> int:
        """The cell of the largest objective that is accurate enough. Raises InvalidInput where there is none."""
        releases = self.answered >= 0.5
        enough = releases & (self.accuracy >= min_accuracy)
        if not enough.any():
            best = f"at best {self.accuracy[releases].max():.3f}" if releases.any() else "no label at all"
            raise InvalidInput(
                f"labels of accuracy {min_accuracy:.3g} cannot be had from budgets {planner.settings.budgets!r} "
                f"({best}); allowed: a lower --min-accuracy, larger budgets or more parties"
            )
        value = objective.value(self.answered, self.accuracy, classes=planner.votes.classes)
        return int(np.where(enough, value, -np.inf).argmax())


def predict_grid(planner: Planner, axes: Axes) -> Grid:
    """Expected answers and accuracy of every cell: exact costs, with the weights of one study a sigma."""
    answered, accuracy = np.empty(axes.shape), np.empty(axes.shape)
    for i, sigma in enumerate(axes.sigma.tolist()):
        middle = Noise(sigma=sigma, sigma_threshold=0.6 * planner.total, threshold=0.0)
        study = planner.study(middle, queries=planner.pool, answer_rate=0.5)
        filters, view, seen = study.budgets, check_view(study.view), planner.histograms(study.weights)
        account = accountant(study.accountant_name)
        tight = _tightest(study)
        caps = np.maximum(account.affords(filters.epsilon[tight], filters.delta[tight]), 0.0)
        units = Sensitivity.always(study.votes_per_unit * study.weights[tight])
        correct = seen.correct(sigma)
        for j, test in enumerate(axes.sigma_threshold.tolist()):
            mechanism = ConfidentGNMax(sigma=sigma, sigma_threshold=test, threshold=0.0)
            cost = account.query_cost(mechanism, units, view=view, classes=study.classes)
            passes = seen.passes(threshold=axes.threshold, sigma=test)
            rate = passes.mean(axis=1)
            # As filter.affordable_queries, for every rate at once: each party's best order, the poorest party.
            fits = (caps / (cost.ask + rate[:, None, None] * cost.answer)).max(axis=2).min(axis=1)
            answered[i, j] = rate * np.minimum(fits, planner.pool)
            accuracy[i, j] = np.minimum(passes @ correct / np.maximum(passes.sum(axis=1), 1e-300), 1.0)
    return Grid(axes, answered.ravel(), accuracy.ravel())


def _tightest(study: Study) -> Int64[ndarray, " few"]:
    """One party of each of the distinct budgets that end the study first."""
    filters = study.budgets
    order = np.argsort(filters.cap / (filters.ask + 0.5 * filters.answer), kind="stable")
    alike = np.stack([filters.epsilon, filters.delta, study.weights])[:, order]
    _, first = np.unique(alike, axis=1, return_index=True)
    return order[np.sort(first)[:_TIGHTEST]]


def frontier(planner: Planner, grid: Grid, chosen: Prediction) -> tuple[Prediction, ...]:
    """Nondominated predictions by falling accuracy: most answers at levels of accuracy, and the chosen.

    The levels are evenly spaced in log-odds, from where more answers carry no more information to where few are left.
    """
    bits = OBJECTIVES["information"]
    lowest = grid.accuracy[grid.best(planner, bits, 0.0)]
    highest = grid.accuracy[grid.answered >= max(1.0, _FEW * chosen.answered)].max()
    odds = np.linspace(logit(lowest), logit(min(highest, 0.998)), _LEVELS)
    noises = {chosen.noise}
    for level in expit(odds).tolist():
        noises.add(_zoomed(planner, grid, OBJECTIVES["labels"], level, points=5, zooms=1))
    points = [planner.predict(noise) for noise in sorted(noises, key=str)]
    kept = nondominated(np.array([p.answered for p in points]), np.array([p.accuracy for p in points]))
    shown = [point for point, keep in zip(points, kept, strict=True) if keep or point.noise == chosen.noise]
    return tuple(sorted(shown, key=lambda point: -point.accuracy))


def nondominated(answered: Float64[ndarray, " cells"], accuracy: Float64[ndarray, " cells"]) -> Bool[ndarray, " cells"]:
    """Which cells no other has more answers than at the same accuracy or better (of equal ones, the first)."""
    order = np.lexsort((-accuracy, -answered))
    best = np.maximum.accumulate(np.concatenate([[-np.inf], accuracy[order]]))[:-1]
    kept = np.zeros(len(answered), dtype=bool)
    kept[order] = accuracy[order] > best
    return kept


def batch_costs(study: Study, predicted: Prediction) -> Iterator[BatchCost]:
    """What batch sizes up to the pool cost."""
    rate = predicted.answered / predicted.asked
    pool = predicted.queries
    for size in sorted({min(size, pool) for size in (*_BATCHES, pool)}):
        more = asked_more_than(study.budgets, rate=rate, pool=pool, batch=size)
        sizes = np.minimum(np.arange(0, pool, size) + size, pool) - np.arange(0, pool, size)
        yield BatchCost(
            size=size,
            stranded=max(0.0, predicted.answered - rate * float(more @ sizes)),
            batches=float(more.sum()),
            batches_shrinking=_shrinking(study, rate=rate, pool=pool, limit=size),
        )


def _shrinking(study: Study, *, rate: float, pool: int, limit: int) -> int:
    """How many batches a run asks if just the expected share of each is answered."""
    filters = study.budgets
    spent, asked, count = np.zeros(len(filters.cap), dtype=np.int64), 0.0, 0
    while asked < pool and (size := int(filters.affordable(spent, limit=min(limit, pool)).min())) >= 1:
        size = min(size, int(np.ceil(pool - asked)))
        spent = spent + np.ceil(size * (filters.ask + rate * filters.answer) * 1e9).astype(np.int64)
        asked, count = asked + size, count + 1
    return count
