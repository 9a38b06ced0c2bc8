"""Optimise: the noise, threshold, pool and batch size of a mechanism that release the most useful labels.

The search covers a grid of the mechanism's noise and threshold, vectorised and with the weights of one study per sigma,
then finer grids around its best cell, and last exact predictions (predictions.py) for neighbouring values with three
digits, until none is better. All of it is worst case and public: no private vote is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
import scipy
from jaxtyping import Bool, Float64
from numpy import ndarray

from protocols.budgets.accountant import accountant
from protocols.errors import BudgetExceeded, InvalidInput
from protocols.mechanisms import MECHANISMS
from protocols.mechanisms.parameter import Parameter
from protocols.study.study import Study
from simulations.planning.batch_costs import BatchCost, batch_costs
from simulations.planning.noise_grid import Axes, Grid, predict_grid
from simulations.planning.objectives import OBJECTIVES
from simulations.planning.predictions import Noise, Planner, Prediction, planned_parameters

# Finer grids around the best cell: points along each axis, and how often.
_POINTS, _ZOOMS = 7, 1
# Relative steps of the last search.
_STEPS = (0.03, 0.01)
# The frontier: the number of levels of accuracy, and the share of the chosen setting's answers at which it ends.
_LEVELS, _FEW = 14, 0.02
# The least relative gain for which the last search takes a step: near the optimum, trading one noise for another gains
# almost nothing.
GAIN = 2e-4
# The share of labels that batches of a fixed size may leave unasked.
BATCH_LOSS = 0.01


@dataclass(frozen=True, kw_only=True)
class Optimum:
    """The best settings of one mechanism, their expected results, and alternatives.

    mechanism: its name; chosen: with the size of pool to ask for; common: with the noise and threshold of a run
    that is given none, under the same budgets; frontier: nondominated in (answered, accuracy), sorted by
    accuracy, for the whole pool.
    """

    mechanism: str
    study: Study
    chosen: Prediction
    common: Prediction
    frontier: tuple[Prediction, ...]
    batch_size: int
    batches: tuple[BatchCost, ...]


def optimise(planner: Planner, *, min_accuracy: float) -> Optimum:
    """The settings with the largest objective among those whose labels are expected to be at least this accurate.

    Raises BudgetExceeded if no setting releases a label, InvalidInput if none releases labels that accurate, or if the
    accountant does not hold for the mechanism.
    """
    if planner.settings.accountant is not None:
        accountant(planner.settings.accountant).check(planner.kind, "label")
    grid = predict_grid(planner, Axes.wide(planner))
    fine = grid
    for _ in range(_ZOOMS):
        at = fine.best(planner, planner.objective, min_accuracy)
        fine = predict_grid(planner, fine.axes.around(at, points=_POINTS))
    start = Noise.rounded(planner.kind, fine.axes.cell(fine.best(planner, planner.objective, min_accuracy)))
    noise = climb(planner, start, min_accuracy=min_accuracy)
    whole = planner.predict(noise)
    chosen = planner.predict(noise, queries=planner.enough(noise))
    if chosen.answered < 1:
        raise BudgetExceeded(
            f"budgets {planner.settings.budgets!r} are expected to release {whole.answered:.2g} labels of accuracy "
            f"{min_accuracy:.3g}; allowed: budgets, parties and a --min-accuracy that give at least 1"
        )
    study = planner.study(noise, queries=chosen.queries)
    batches = tuple(batch_costs(study, chosen))
    return Optimum(
        mechanism=planner.kind.name,
        study=study,
        chosen=chosen,
        common=planner.predict(planner.usual_noise()),
        frontier=frontier(planner, grid, whole),
        batch_size=max(cost.size for cost in batches if cost.stranded <= BATCH_LOSS * chosen.answered),
        batches=batches,
    )


def planned_mechanisms() -> dict[str, dict[str, Parameter]]:
    """The mechanisms that can be planned, by name, with the parameters that are chosen."""
    known = {name: planned_parameters(kind) for name, kind in MECHANISMS.loadable().items()}
    return {name: parameters for name, parameters in known.items() if parameters}


def optimise_each(
    planner: Planner, *, min_accuracy: float, first: str | None
) -> tuple[tuple[Optimum, ...], dict[str, str]]:
    """The optimum of every mechanism that can be planned under these budgets, the largest objective first; and why
    others have none, by name.

    first: a mechanism that comes first whatever it is worth, None for the best. One that the settings do not allow, or
    that releases no label so accurate, has none. Raises as `optimise` does, for `first`, or if it does for every
    mechanism.
    """
    found: list[Optimum] = []
    refused: dict[str, BudgetExceeded | InvalidInput] = {}
    for name in planned_mechanisms():
        try:
            found.append(optimise(planner.with_mechanism(name), min_accuracy=min_accuracy))
        except (BudgetExceeded, InvalidInput) as error:
            if name == first:
                raise
            refused[name] = error
    if refused and not found:
        raise next(iter(refused.values()))
    ranked = sorted(found, key=lambda each: (each.mechanism != first, -each.chosen.value))
    return tuple(ranked), {name: str(error) for name, error in refused.items()}


def climb(planner: Planner, start: Noise, *, min_accuracy: float) -> Noise:
    """The noise that no neighbour, one final step away in one or more of the three values, improves by more than
    GAIN.
    """

    def rank(noise: Noise) -> tuple[float, float]:
        predicted = planner.predict(noise, guide=True)
        # While the accuracy is too low, a more accurate setting is better.
        return min(predicted.accuracy - min_accuracy, 0.0), predicted.value

    best = start
    for step in _STEPS:
        while True:
            better = max(neighbours(planner, best, step=step), key=rank)
            (short, value), (least, worth) = rank(better), rank(best)
            if (short, value) <= (least, worth * (1 + GAIN)):
                break
            best = better
    return best


def neighbours(planner: Planner, noise: Noise, *, step: float) -> Iterator[Noise]:
    """The settings around `noise`, a relative step up or down in each parameter; the threshold's is relative to the
    larger of all votes and the noise that it is tested with.
    """
    *scales, threshold = (value for _, value in noise.values)
    reach = max(planner.total, scales[-1])
    for *up, up_threshold in product((-1, 0, 1), repeat=len(noise.values)):
        if any(up) or up_threshold:
            wider = [scale * (1 + step) ** each for scale, each in zip(scales, up, strict=True)]
            yield Noise.rounded(planner.kind, (*wider, threshold + up_threshold * step * reach))


def frontier(planner: Planner, grid: Grid, chosen: Prediction) -> tuple[Prediction, ...]:
    """Nondominated predictions by falling accuracy: the most answers at levels of accuracy, and the chosen one.

    The levels are evenly spaced in log-odds, from where more answers carry no more information to where few are left.
    """
    labels, bits = OBJECTIVES["labels"], OBJECTIVES["information"]
    lowest = grid.accuracy[grid.best(planner, bits, 0.0)]
    highest = grid.accuracy[grid.answered >= max(1.0, _FEW * chosen.answered)].max()
    levels = scipy.special.expit(
        np.linspace(scipy.special.logit(min(lowest, highest, 0.998)), scipy.special.logit(min(highest, 0.998)), _LEVELS)
    ).tolist()
    # Rounding may put a level above the best accuracy of the grid.
    cells = [grid.axes.cell(grid.best(planner, labels, level * (1 - 1e-9))) for level in levels]
    noises = {chosen.noise, *(Noise.rounded(planner.kind, cell) for cell in cells)}
    points = [planner.predict(noise, guide=True) for noise in sorted(noises, key=str)]
    kept = nondominated(np.array([p.answered for p in points]), np.array([p.accuracy for p in points]))
    shown = [point for point, keep in zip(points, kept, strict=True) if keep or point.noise == chosen.noise]
    return tuple(sorted(shown, key=lambda point: -point.accuracy))


def nondominated(answered: Float64[ndarray, " cells"], accuracy: Float64[ndarray, " cells"]) -> Bool[ndarray, " cells"]:
    """Which cells are not dominated: no other has more answers at the same or a better accuracy (of equals, the
    first).
    """
    order = np.lexsort((-accuracy, -answered))
    best = np.maximum.accumulate(np.concatenate([[-np.inf], accuracy[order]]))[:-1]
    kept = np.zeros(len(answered), dtype=bool)
    kept[order] = accuracy[order] > best
    return kept
