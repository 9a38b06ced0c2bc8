"""What is audited of a mechanism: its accountant's claim, and neighbouring votes where a moved vote is most visible.

One unit's vote moves from class 0 to class 1. Two pairs are audited. "worst" maximises the exact epsilon of the whole
composition over the counts (and, where there is a threshold, over how far the tested maximum lies from it). "tied" has
both classes at the same count without the unit's vote, so that the vote decides, which reveals noise that cancels. The
statistic of a trial is the log-likelihood ratio of all that it releases.

Under the view "histogram" a moved vote changes two counts. Let z be each noisy count minus the count without the unit's
vote, in noise scales, and d = s/scale. The ratio is l(z_0) - l(z_1), with l(z) = ln(1 - g + g f(z - d)/f(z)) and f the
density of the noise (derived in protocols/bounds/secret_sampling.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.bounds.gaussian import gdp_epsilon
from protocols.budgets.accountant import Accountant, GaussianDp
from protocols.budgets.filter import budget_filters, noise_reserve
from protocols.budgets.participation import coins
from protocols.crypto.randomness import RandomSource
from protocols.errors import InvalidInput
from protocols.mechanisms import Mechanism, Sensitivity, View
from protocols.mechanisms.winner_law import mixed
from protocols.noise import StandardNormal
from protocols.plural import at_most
from protocols.votes import ABSTAIN
from simulations.audit.bounds import RatioLaw, composed_epsilon, composed_epsilon_of_ratios
from simulations.audit.breaks import Break
from simulations.audit.settings import UnitClaim


@dataclass(frozen=True)
class NoisyThreshold:
    """A threshold and the scale of the noise on what is held against it, both in votes."""

    votes: float
    noise: float


@dataclass(frozen=True, kw_only=True)
class Target:
    """One line of the audit.

    weight: the unit's total vote weight, in votes, > 0; rate: the probability with which its vote enters a query by a
    secret coin (1: always); classes >= 2; queries: their number, all on the same votes, all planned to be answered.
    """

    mechanism: Mechanism
    accountant: Accountant
    view: View
    weight: float
    rate: float
    classes: int
    queries: int

    @property
    def name(self) -> str:
        return self.mechanism.name + (", secret coins" if self.rate < 1 else "")

    @property
    def gaussian_dp(self) -> bool:
        """Whether the claim is Gaussian differential privacy, which also says mu."""
        return isinstance(self.accountant, GaussianDp)

    @property
    def scale(self) -> float:
        """The scale of the label noise, in votes: sigma, or 1/gamma."""
        return self.mechanism.noise_scale

    @property
    def threshold(self) -> NoisyThreshold | None:
        """What the tested maximum is compared with in the last round; None if no threshold is tested."""
        noise = self.mechanism.tested_scale if self.view == "label" else None
        votes = self.mechanism.needed(second_round=self.mechanism.interactive)
        return None if noise is None or votes is None else NoisyThreshold(votes, noise)

    @property
    def multiplicity(self) -> Int64[ndarray, " levels"]:
        """The number of classes at each level of counts: the vote's class before, its class after, and all others."""
        return np.array([1, 1] if self.classes == 2 else [1, 1, self.classes - 2])


def claim_of(target: Target, *, delta: float, total_weight: float) -> UnitClaim:
    """The guarantee that a budget filter publishes when it affords exactly these queries, by the code that charges
    budgets.

    Raises InvalidInput if no filter affords them at this delta.
    """
    moved = target.mechanism.squared_move(target.classes)
    sensitivity = Sensitivity(np.array([target.weight]), np.array([target.rate]), delta_squared=moved)
    cost = target.accountant.query_cost(target.mechanism, sensitivity, view=target.view, classes=target.classes)
    spend = target.queries * (cost.ask + cost.answer)[0]
    orders, epsilon, reserve = target.accountant.orders, 0.0, 0.0
    for _ in range(4):
        kept = np.full(len(orders), max(delta - reserve, delta / 2))
        epsilon = float(target.accountant.to_epsilon(spend, orders, kept).min())
        reserve = float(
            noise_reserve(
                target.mechanism,
                epsilon=np.array([epsilon]),
                view=target.view,
                classes=target.classes,
                query_limit=target.queries,
                total_weight=total_weight,
            )[0]
        )
    # The least budget is exact up to the filter's rounding; a budget of zero is not allowed.
    for slack in (1e-9, 1e-6, 1e-3):
        budget = max(epsilon * (1 + slack), 1e-6)
        filters = budget_filters(
            accountant=target.accountant,
            mechanism=target.mechanism,
            sensitivity=sensitivity,
            epsilon=np.array([budget]),
            delta=np.array([delta]),
            view=target.view,
            classes=target.classes,
            query_limit=target.queries,
            total_weight=total_weight,
            answer_rate=1.0,
        )
        if filters.affordable(np.zeros(1, dtype=np.int64), limit=target.queries)[0] == target.queries:
            mu = float(np.sqrt(spend[0])) if target.gaussian_dp else None
            return UnitClaim(float(filters.epsilon_guaranteed[0]), delta, float(filters.order[0]), mu)
    raise InvalidInput(f"no filter affords {target.queries} queries at delta {at_most(delta)}; allowed: fewer queries")


def noise_scales(mechanism: Mechanism) -> str:
    """The mechanism's noise in words, for tables."""
    noise = [name for name, each in mechanism.parameters().items() if each.role == "noise"]
    return ", ".join(f"{name} {mechanism.values[name]:g}" for name in noise if name in mechanism.values)


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
class NeighbouringCounts:
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


def audited_pairs(target: Target, *, delta: float) -> list[NeighbouringCounts]:
    """The pairs "worst" and "tied" of a target. Under the view "histogram" counts do not matter: only "tied"."""
    start = np.zeros((1 if target.classes == 2 else 2) + (target.threshold is not None))
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


def pair_at(name: str, target: Target, position: Float64[ndarray, " dimensions"]) -> NeighbouringCounts:
    """The pair at gaps of classes 0 and 1 to the others (one gap if there are none), in noise scales.

    If a threshold is tested, the last coordinate is how far the tested maximum lies above it.
    """
    levels, predictions, total = _votes_at(target, position[None])
    return NeighbouringCounts(name, levels[0], None if predictions is None else predictions[0], float(total[0]))


def outcome_log_laws(
    target: Target, pair: NeighbouringCounts
) -> tuple[Float64[ndarray, " outcomes"], Float64[ndarray, " outcomes"]]:
    """ln of the exact law of one query's outcome before and after the vote moved, view "label"."""
    predictions = None if pair.predictions is None else pair.predictions[None]
    before, after = _log_laws(target, pair.levels[None], predictions, np.array([pair.total_weight]))
    return before[0], after[0]


_Votes = tuple[
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


def _votes_at(target: Target, positions: Float64[ndarray, "pairs dimensions"]) -> _Votes:
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


# The trapezoid over one coordinate's noise.
_NODES = 200_001
# The noise is integrated as far out as its log-density is above this.
_NEGLIGIBLE = -42.0
_REACHES = np.arange(1.0, 1001.0, 0.5)


def histogram_log_ratio(
    target: Target, noisy: Float64[ndarray, "queries classes"], levels: Float64[ndarray, " levels"]
) -> Float64[ndarray, " queries"]:
    """ln of the density before the vote moved over that after, of each query's noisy histogram."""
    z = (noisy[:, :2] - levels[:2]) / target.scale
    each = _log_ratio(target, z)
    return each[:, 0] - each[:, 1]


def exact_epsilon(target: Target, pair: NeighbouringCounts, *, delta: float) -> float:
    """The exact epsilon of the composition on this pair."""
    if target.view == "histogram":
        return histogram_epsilon(target, delta=delta)
    before, after = outcome_log_laws(target, pair)
    return float(composed_epsilon(before[None], after[None], queries=target.queries, delta=delta)[0])


def histogram_epsilon(target: Target, *, delta: float) -> float:
    """The exact epsilon of the composition, equal in both directions: in closed form, or on a grid to about 1e-4."""
    d = target.weight / target.scale
    if target.gaussian_dp:
        return float(gdp_epsilon(np.array([d * np.sqrt(2 * target.queries)]), np.array([delta]))[0])
    without, weights = _noise_law(target, d)
    # The vote is on class 0 with probability g, and not on class 1.
    ratio = _log_ratio(target, without)
    parts = [RatioLaw(ratio, weights * np.exp(ratio)), RatioLaw(-ratio, weights)]
    return composed_epsilon_of_ratios(parts, copies=target.queries, delta=delta)


def _log_ratio(target: Target, z: Float64[ndarray, "..."]) -> Float64[ndarray, "..."]:
    d = target.weight / target.scale
    density = target.mechanism.noise_log_density
    whole = density(z - d) - density(z)
    if target.rate == 1:
        return whole
    return np.logaddexp(np.log1p(-target.rate), np.log(target.rate) + whole)


def _noise_law(target: Target, d: float) -> tuple[Float64[ndarray, " nodes"], Float64[ndarray, " nodes"]]:
    """Quadrature nodes for one coordinate's noise and their masses, wide enough with or without the vote."""
    reach = _REACHES[np.argmax(target.mechanism.noise_log_density(_REACHES) <= _NEGLIGIBLE)]
    z = np.linspace(-reach, reach + d, _NODES)
    mass = np.exp(target.mechanism.noise_log_density(z))
    return z, mass / mass.sum()


# Noisy counts that are held at a time.
_CHUNK = 150_000
# Rounds sums of the same ratios in another order to one value.
_DECIMALS = 9

Statistic = Float64[ndarray, " trials"]


def log_ratios(
    target: Target,
    neighbours: NeighbouringCounts,
    *,
    moved: bool,
    broken: Break,
    trials: int,
    noise: StandardNormal,
    coins_from: RandomSource,
    progress: Callable[[int], None],
) -> Statistic:
    """The log-likelihood ratio (before over after) of everything that each trial releases: the most powerful statistic.

    The law in the ratio is the honest mechanism's (for the given counts), whatever `broken` does to the release: any
    statistic gives a valid bound. moved: whether the unit's vote is on class 1; noise, coins_from: fresh randomness;
    progress(trials done).
    """
    release, draw = broken.mechanism(target.mechanism), broken.noise(noise)
    without = np.repeat(neighbours.levels, target.multiplicity)
    vote = np.repeat(neighbours.votes(target.weight, moved=moved), target.multiplicity)
    predictions = None
    if neighbours.predictions is not None:
        predictions = np.repeat(neighbours.predictions, target.multiplicity)
    before, after = outcome_log_laws(target, neighbours)
    ratio_of = before - after
    result = np.empty(trials)
    step = max(1, _CHUNK // (target.queries * target.classes))
    for start in range(0, trials, step):
        size = min(step, trials - start)
        rows = size * target.queries
        enters = (
            coins(coins_from, target.rate, teachers=1, queries=rows)[0]
            if target.rate < 1
            else np.ones(rows, dtype=bool)
        )
        counts = broken.counts(without + enters[:, None] * vote)
        if target.view == "histogram":
            shown = release.noisy(counts, draw, view="histogram")
            ratios = histogram_log_ratio(target, shown, broken.counts(neighbours.levels))
        else:
            labels = release.labels(
                counts,
                draw,
                view="label",
                predictions=None if predictions is None else np.broadcast_to(predictions, counts.shape),
                total_weight=None if predictions is None else neighbours.total_weight,
            )
            # Class 0, class 1, any other, no answer: the last outcome of the law.
            ratios = ratio_of[np.where(labels == ABSTAIN, len(ratio_of) - 1, np.minimum(labels, 2))]
        result[start : start + size] = np.round(ratios.reshape(size, target.queries).sum(axis=1), _DECIMALS)
        progress(size)
    return result
