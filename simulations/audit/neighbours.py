"""Neighbouring votes: one unit's vote moves from class 0 to class 1, at the counts where that is most visible.

Two pairs are audited. "worst" maximises the exact epsilon of the whole composition over the counts (and, where there is
a threshold, over how far the tested maximum lies from it). "tied" has both classes at the same count without the unit's
vote, so that the vote decides, which reveals noise that cancels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from protocols.mechanisms.winner_law import mixed
from simulations.audit.composition import composed_epsilon
from simulations.audit.target import Target

# Public levels, in multiples of the noise, far enough from zero and from each other that no count is negative and that
# the unit's class alone carries the tested maximum in round two.
THRESHOLD_NOISES, BASE_NOISES = 40.0, 120.0
# The search: points of the coarse grid along each of one, two or three dimensions, up to _REACH noise scales; then, in
# each round, the number of best points kept, around which the step shrinks.
_REACH, _LIMIT = 4.5, 7.0
_GRID_POINTS = {1: 46, 2: 13, 3: 7}
_KEPT, _ROUNDS, _SHRINK = 3, 14, 0.65
# Once there are many queries, the worst counts hardly depend on their number; the cost of enumeration does.
_SEARCH_QUERIES = 24


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Counts without the unit's vote, one per level (Target.multiplicity); its vote is on level 0 before, on 1 after.

    predictions: the student's probability for one class of each level, for round two; total_weight: nominal, votes.
    """

    name: str
    levels: Float64[ndarray, " levels"]
    predictions: Float64[ndarray, " levels"] | None
    total_weight: float

    def votes(self, weight: float, *, moved: bool) -> Float64[ndarray, " levels"]:
        """What the unit adds to the counts: its weight on class 0, or on class 1 once it has moved."""
        added = np.zeros(len(self.levels))
        added[1 if moved else 0] = weight
        return added


def audited_pairs(target: Target, *, delta: float) -> list[Neighbours]:
    """The pairs "worst" and "tied" of a target. Under the view "histogram" counts do not matter: only "tied"."""
    start = np.zeros(_dimensions(target))
    if target.classes > 2:
        # The other classes lie some noise scales below the two leaders.
        start[:2] = 3.0
    if target.threshold is not None:
        # The threshold is mostly passed.
        start[-1] = 2.0
    tied = pair_at("tied", target, start)
    if target.view == "histogram":
        return [tied]

    def exposed(positions: Float64[ndarray, "pairs dimensions"]) -> Float64[ndarray, " pairs"]:
        before, after = _log_laws(target, *_votes_at(target, positions))
        return composed_epsilon(before, after, queries=min(target.queries, _SEARCH_QUERIES), delta=delta)

    return [pair_at("worst", target, _maximise(exposed, start)), tied]


def pair_at(name: str, target: Target, position: Float64[ndarray, " dimensions"]) -> Neighbours:
    """The pair at gaps of classes 0 and 1 to the others (one gap if there are none), in noise scales.

    If a threshold is tested, the last coordinate is how far the tested maximum lies above it.
    """
    levels, predictions, total = _votes_at(target, position[None])
    return Neighbours(name, levels[0], None if predictions is None else predictions[0], float(total[0]))


def outcome_log_laws(
    target: Target, pair: Neighbours
) -> tuple[Float64[ndarray, " outcomes"], Float64[ndarray, " outcomes"]]:
    """ln of the exact law of one query's outcome before and after the vote moved, view "label"."""
    predictions = None if pair.predictions is None else pair.predictions[None]
    before, after = _log_laws(target, pair.levels[None], predictions, np.array([pair.total_weight]))
    return before[0], after[0]


Votes = tuple[
    Float64[ndarray, "pairs levels"], Float64[ndarray, "pairs levels"] | None, Float64[ndarray, " pairs"]
]  # levels, predictions and total weights of several pairs


def _log_laws(
    target: Target,
    levels: Float64[ndarray, "pairs levels"],
    predictions: Float64[ndarray, "pairs levels"] | None,
    total: Float64[ndarray, " pairs"],
) -> tuple[Float64[ndarray, "pairs outcomes"], Float64[ndarray, "pairs outcomes"]]:
    vote = target.weight * np.eye(levels.shape[1])
    before, after = (_log_law(target, levels + vote[moved], predictions, total) for moved in (0, 1))
    if target.rate == 1:
        return before, after
    without = _log_law(target, levels, predictions, total)
    return mixed(without, before, rate=target.rate), mixed(without, after, rate=target.rate)


def _log_law(
    target: Target,
    levels: Float64[ndarray, "pairs levels"],
    predictions: Float64[ndarray, "pairs levels"] | None,
    total: Float64[ndarray, " pairs"],
) -> Float64[ndarray, "pairs outcomes"]:
    offsets = None if predictions is None else total[:, None] * predictions
    return target.mechanism.outcome_log_law(levels, target.multiplicity, offsets=offsets)


def _dimensions(target: Target) -> int:
    return (1 if target.classes == 2 else 2) + (target.threshold is not None)


def _votes_at(target: Target, positions: Float64[ndarray, "pairs dimensions"]) -> Votes:
    unit, threshold = target.scale, target.threshold
    last = np.zeros((len(positions), 1))
    gaps = unit * np.concatenate([positions[:, : 1 if target.classes == 2 else 2], last], axis=1)
    if threshold is None:
        levels = BASE_NOISES * unit + gaps
        return levels, None, _total(target, levels)
    margin = threshold.noise * positions[:, -1]
    if not target.mechanism.interactive:
        levels = threshold.votes + margin[:, None] + gaps - gaps.max(axis=1, keepdims=True)
        return levels, None, _total(target, levels)
    # Round two: the student gives class 0 so little that class 0 alone carries the maximum, at the threshold + margin.
    levels = BASE_NOISES * (unit + threshold.noise) + gaps
    total = _total(target, levels)
    first = (levels[:, 0] - threshold.votes - margin) / total
    rest = np.repeat(((1 - first) / (target.classes - 1))[:, None], levels.shape[1] - 1, axis=1)
    return levels, np.concatenate([first[:, None], rest], axis=1), total


def _total(target: Target, levels: Float64[ndarray, "pairs levels"]) -> Float64[ndarray, " pairs"]:
    return levels @ target.multiplicity + target.weight


def _maximise(
    value: Callable[[Float64[ndarray, "points dimensions"]], Float64[ndarray, " points"]],
    start: Float64[ndarray, " dimensions"],
) -> Float64[ndarray, " dimensions"]:
    """The best point found by a grid that is refined around its best few points; any point is a valid pair."""
    axis = np.linspace(-_REACH, _REACH, _GRID_POINTS[len(start)])
    points = np.concatenate([start[None], _lattice(axis, len(start))])
    values = value(points)
    step = axis[1] - axis[0]
    around = _lattice(np.array([-1.0, 0.0, 1.0]), len(start))
    for _ in range(_ROUNDS):
        step *= _SHRINK
        kept = np.argsort(-values, kind="stable")[:_KEPT]
        near = np.clip(points[kept][:, None] + step * around, -_LIMIT, _LIMIT).reshape(-1, len(start))
        points, values = np.concatenate([points[kept], near]), np.concatenate([values[kept], value(near)])
    best: Float64[ndarray, " dimensions"] = points[int(values.argmax())]
    return best


def _lattice(axis: Float64[ndarray, " places"], dimensions: int) -> Float64[ndarray, "points dimensions"]:
    return np.stack(np.meshgrid(*[axis] * dimensions, indexing="ij"), axis=-1).reshape(-1, dimensions)
