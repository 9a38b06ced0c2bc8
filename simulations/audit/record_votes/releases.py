"""Releasing the cells of a worst case many times, and telling its two sides apart by a statistic linear in the cells.

With Gaussian noise of any covariance the likelihood ratio is linear in the cells (Fisher 1936), so no other test is
more powerful. Its coefficients are learned from trials of their own, as an attacker who knows nothing of a fault would
learn them: they show correlated noise and cells without noise, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.noise import Noise
from protocols.study.study import Study
from simulations.audit.distinguishing import Samples
from simulations.audit.record_votes.breaks import RecordBreak, broken_noise
from simulations.audit.record_votes.worst_cases import WorstCase

# At most so many trials of either side are for learning the coefficients, beside those that give the bound.
_MOST_LEARNED = 10_000
# Cells that are held at a time.
_CHUNK = 400_000
# Directions of less variance, as a share of the largest, count as having this much: they are all but free of noise.
_NOISELESS = 1e-12


@dataclass(frozen=True, eq=False)
class Sides:
    """What the parties send together, before and after, in lattice units."""

    before: Int64[ndarray, " cells"]
    after: Int64[ndarray, " cells"]

    @property
    def squared_move(self) -> int:
        """The squared L2 distance, exactly."""
        return sum(int(each) ** 2 for each in self.after - self.before)


def sides_of(study: Study, case: WorstCase, broken: RecordBreak) -> Sides:
    """Both sums, made by the code that a party runs, or by a broken one."""
    totals = [
        np.sum(broken.contribute(study, case.queries, case.holdings(moved=moved)), axis=0).ravel()
        for moved in (False, True)
    ]
    return Sides(totals[0], totals[1])


def told_apart(
    study: Study,
    sides: Sides,
    broken: RecordBreak,
    *,
    trials: int,
    noise: Callable[[Study, bool], Noise],
    progress: Callable[[int], None],
) -> Samples:
    """The statistic in `trials` releases of either side.

    noise(study, moved): a fresh stream of one side; progress(trials done).
    """
    run, cells = broken.run(study), len(sides.before)
    sources = [broken_noise(noise(run, moved), broken, cells=cells) for moved in (False, True)]

    def released(moved: bool, size: int) -> Float64[ndarray, "trials cells"]:
        """The cells that so many trials release, in votes."""
        total = sides.after if moved else sides.before
        counts = np.tile((total / run.units).reshape(-1, run.classes), (size, 1))
        shown = [run.noisy_cells(counts, sources[moved]) for _ in range(broken.releases)]
        progress(size)
        return np.mean(shown, axis=0).reshape(size, cells) / run.units

    weights = _discriminant(*(released(moved, learned(trials)) for moved in (False, True)))
    step = max(1, _CHUNK // cells)
    sizes = [min(step, trials - start) for start in range(0, trials, step)]
    before, after = (np.concatenate([released(moved, size) @ weights for size in sizes]) for moved in (False, True))
    return Samples(before, after)


def learned(trials: int) -> int:
    """How many more trials of either side are for learning the coefficients."""
    return min(trials, _MOST_LEARNED)


def _discriminant(
    before: Float64[ndarray, "trials cells"], after: Float64[ndarray, "trials cells"]
) -> Float64[ndarray, " cells"]:
    """Fisher's linear discriminant: the difference of the means over the covariance."""
    covariance = (np.cov(before, rowvar=False) + np.cov(after, rowvar=False)) / 2
    variance, directions = np.linalg.eigh(covariance)
    apart = directions.T @ (before.mean(axis=0) - after.mean(axis=0))
    # A direction without noise in which the means do not differ at all says nothing.
    apart = np.where(np.abs(apart) > 1e-9 * np.abs(apart).max(), apart, 0.0)
    weights: Float64[ndarray, " cells"] = directions @ (apart / np.maximum(variance, _NOISELESS * variance.max()))
    return weights / np.abs(weights).max()
