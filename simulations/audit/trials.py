"""Running the real release many times on one side of a pair, and the statistic of each trial."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from protocols.budgets.participation import coins
from protocols.crypto.randomness import RandomSource
from protocols.noise import StandardNormal
from protocols.votes import ABSTAIN
from simulations.audit.breaks import Break
from simulations.audit.neighbours import Neighbours, outcome_log_laws
from simulations.audit.seen_histogram import histogram_log_ratio
from simulations.audit.target import Target

# Noisy counts that are held at a time.
_CHUNK = 150_000
# Rounds sums of the same ratios in another order to one value.
_DECIMALS = 9

Statistic = Float64[ndarray, " trials"]


def log_ratios(
    target: Target,
    neighbours: Neighbours,
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
