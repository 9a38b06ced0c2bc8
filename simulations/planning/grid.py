"""Optimise: the noise, threshold and pool of a mechanism that release the most useful labels.

The search covers a grid of the mechanism's noise and threshold, vectorised and with the weights of one study per sigma,
then finer grids around its best cell, and last exact predictions (predict.py) for neighbouring values with three
digits, until none is better. All of it is worst case and public: no private vote is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import scipy
from jaxtyping import Bool, Float64, Int64
from numpy import ndarray

from protocols.budgets.accountant import accountant
from protocols.errors import BudgetExceeded, InvalidInput
from protocols.mechanisms import MECHANISMS, Sensitivity, check_view
from protocols.mechanisms.parameter import Parameter
from protocols.study.study import Study
from protocols.study.units import votes_per_unit
from simulations.planning.objective import OBJECTIVES, Objective
from simulations.planning.predict import PlannedNoise, Planner, Prediction, planned_parameters

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
        PlannedNoise.of(**dict(zip(names, middle, strict=True))), queries=planner.pool, answer_rate=0.5, guide=True
    )
    filters, view, seen = study.budgets, check_view(study.view), planner.histograms(study.weights)
    account, tight = accountant(study.accountant_name), _tightest(study)
    caps = np.maximum(account.affords(filters.epsilon[tight], filters.delta[tight]), 0.0)
    units = Sensitivity.always(study.votes_per_unit * study.weights[tight], delta_squared=study.votes.delta_squared)
    answered, accuracy = [], []
    for others in product(*axes.values[1:-1]):
        given = dict(zip(names, (sigma, *others, 0.0), strict=True))
        mechanism = planner.kind.build(view=view, given=given)
        cost = account.query_cost(mechanism, units, view=view, classes=study.classes)
        passes, right = seen.outcomes(planner.decision(PlannedNoise.of(**given)), thresholds)
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


def batches_asked(study: Study, *, rate: float, pool: int, limit: int) -> int:
    """How many batches a run asks if exactly the expected share of each is answered."""
    filters = study.budgets
    spent, asked, count = np.zeros(len(filters.cap), dtype=np.int64), 0.0, 0
    while asked < pool and (size := int(filters.affordable(spent, limit=min(limit, pool)).min())) >= 1:
        size = min(size, int(np.ceil(pool - asked)))
        per_unit = filters.spend(np.ones_like(spent))
        spent = spent + np.ceil(size * (filters.ask + rate * filters.answer) / per_unit).astype(np.int64)
        asked, count = asked + size, count + 1
    return count


# Finer grids around the best cell: points along each axis, and how often.
_POINTS, _ZOOMS = 7, 1
# Relative steps of the last search.
_STEPS = (0.03, 0.01)
# The frontier: the number of levels of accuracy, and the share of the chosen setting's answers at which it ends.
_LEVELS, _FEW = 14, 0.02
# The least relative gain for which the last search takes a step: near the optimum, trading one noise for another gains
# almost nothing.
GAIN = 2e-4


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
    start = PlannedNoise.rounded(planner.kind, fine.axes.cell(fine.best(planner, planner.objective, min_accuracy)))
    noise = climb(planner, start, min_accuracy=min_accuracy)
    whole = planner.predict(noise)
    chosen = planner.predict(noise, queries=planner.enough(noise))
    if chosen.answered < 1:
        raise BudgetExceeded(
            f"budgets {planner.settings.budgets!r} are expected to release {whole.answered:.2g} labels of accuracy "
            f"{min_accuracy:.3g}; allowed: budgets, parties and a --min-accuracy that give at least 1"
        )
    return Optimum(
        mechanism=planner.kind.name,
        study=planner.study(noise, queries=chosen.queries),
        chosen=chosen,
        common=planner.predict(planner.usual_noise()),
        frontier=frontier(planner, grid, whole),
    )


def planned_mechanisms() -> dict[str, dict[str, Parameter]]:
    """The mechanisms that can be planned, by name, with the parameters that are chosen."""
    known = {name: planned_parameters(kind) for name, kind in MECHANISMS.loadable().items() if not kind.names_sets}
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


def climb(planner: Planner, start: PlannedNoise, *, min_accuracy: float) -> PlannedNoise:
    """The noise that no neighbour, one final step away in one or more of the three values, improves by more than
    GAIN.
    """

    def rank(noise: PlannedNoise) -> tuple[float, float]:
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


def neighbours(planner: Planner, noise: PlannedNoise, *, step: float) -> Iterator[PlannedNoise]:
    """The settings around `noise`, a relative step up or down in each parameter; the threshold's is relative to the
    larger of all votes and the noise that it is tested with.
    """
    *scales, threshold = (value for _, value in noise.values)
    reach = max(planner.total, scales[-1])
    for *up, up_threshold in product((-1, 0, 1), repeat=len(noise.values)):
        if any(up) or up_threshold:
            wider = [scale * (1 + step) ** each for scale, each in zip(scales, up, strict=True)]
            yield PlannedNoise.rounded(planner.kind, (*wider, threshold + up_threshold * step * reach))


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
    noises = {chosen.noise, *(PlannedNoise.rounded(planner.kind, cell) for cell in cells)}
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


def frontier_figure(optima: Sequence[Optimum], *, min_accuracy: float) -> Figure:
    """Expected accuracy of the released labels over their expected number: a line for each mechanism, the first one's
    with the chosen and its default noise.

    Raises InvalidInput for an empty frontier.
    """
    from simulations.plots.style import COLOURS, light_grid, new_figure, percent_axis, style  # Matplotlib

    if not optima or not all(each.frontier for each in optima):
        raise InvalidInput("the frontier has 0 points; allowed: at least 1")
    chosen, common = optima[0].chosen, optima[0].common
    with style():
        figure = new_figure(height=3.6)
        axes = figure.subplots()
        for each, colour, marker in zip(optima, ("blue", "green", "purple", "orange"), "os^v", strict=False):
            line = sorted(each.frontier, key=lambda point: point.answered)
            axes.plot(
                [p.answered for p in line],
                [p.accuracy for p in line],
                color=COLOURS[colour],
                marker=marker,
                markersize=5,
                label=each.mechanism,
            )
        if common.answered >= 1:
            axes.plot(common.answered, common.accuracy, "s", color=COLOURS["grey"], markersize=8, label="default noise")
        axes.plot(chosen.answered, chosen.accuracy, "D", color=COLOURS["vermillion"], markersize=9, label="chosen")
        axes.axhline(min_accuracy, color=COLOURS["muted"], linestyle=":", linewidth=1.2, label="minimum accuracy")
        at_the_end = chosen.answered > 0.6 * max(p.answered for each in optima for p in each.frontier)
        axes.annotate(
            chosen.noise.words,
            (chosen.answered, chosen.accuracy),
            xytext=(-10, -14) if at_the_end else (9, 7),
            ha="right" if at_the_end else "left",
            textcoords="offset points",
            color=COLOURS["ink"],
        )
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.4g}")
        axes.xaxis.set_minor_formatter(lambda value, _: "")
        axes.set_xlabel("labels released, expected")
        axes.set_ylabel("their accuracy, expected")
        percent_axis(axes.yaxis)
        light_grid(axes, "y")
        axes.set_title("What the budgets can buy")
        axes.legend(loc="lower left")
    return figure
