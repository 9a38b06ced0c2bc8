"""Releasing the cells of a worst case many times, and telling its two sides apart by statistics of the cells.

With Gaussian noise of any covariance the likelihood ratio is linear in the cells (Fisher 1936), so no other test is
more powerful. Its coefficients are learned from trials of their own, as an attacker who knows nothing of a fault would
learn them: they show correlated noise and cells without noise, too. Where noise is not what it should be, other
statistics show more: the remainders of the cells modulo 8, and where between the quantiles of all trials a cell lies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.noise import Noise
from protocols.study.study import Study
from protocols.study.votes import unit_sums
from simulations.audit.distinguishing import Samples
from simulations.audit.record_votes.breaks import RecordBreak, broken_noise
from simulations.audit.record_votes.worst_cases import WorstCase

# At most so many trials of either side are for learning the coefficients, beside those that give the bound.
_MOST_LEARNED = 10_000
# Cells that are held at a time.
_CHUNK = 400_000
# Between these quantiles of all trials a cell's range lies.
_RANGES = np.linspace(0.0, 1.0, 17)[1:-1]
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
) -> list[Samples]:
    """Three statistics in `trials` releases of either side: linear in the cells, of their low bits, of their ranges.

    noise(study, moved): a fresh stream of one side; progress(trials done).
    """
    run, cells = broken.run(study), len(sides.before)
    of_units = unit_sums(run)
    sources = [broken_noise(noise(run, moved), broken, cells=cells) for moved in (False, True)]

    def released(moved: bool, size: int) -> Float64[ndarray, "trials cells"]:
        """The cells that so many trials release, in lattice units."""
        total = sides.after if moved else sides.before
        counts = np.tile((total / run.units).reshape(-1, run.classes), (size, 1))
        shown = [of_units.released(run, counts, sources[moved], predictions=None)[1] for _ in range(broken.releases)]
        progress(size)
        return np.mean(shown, axis=0).reshape(size, cells)

    known = [released(moved, learned(trials)) for moved in (False, True)]
    weights, quantiles = _discriminant(*known), np.quantile(np.concatenate(known), _RANGES, axis=0)

    def linear(seen: Float64[ndarray, "trials cells"]) -> Float64[ndarray, " trials"]:
        return seen @ weights

    def ranges(seen: Float64[ndarray, "trials cells"]) -> Codes:
        return (seen[:, None, :] > quantiles).sum(axis=1)

    statistics = [linear, *(_code_ratio(code_of, *map(code_of, known)) for code_of in (_low_bits, ranges))]
    step = max(1, _CHUNK // cells)
    sizes = [min(step, trials - start) for start in range(0, trials, step)]
    found = []
    for moved in (False, True):
        each = [[one(seen) for one in statistics] for seen in (released(moved, size) for size in sizes)]
        found.append([np.concatenate(one) for one in zip(*each, strict=True)])
    return [Samples(before, after) for before, after in zip(*found, strict=True)]


Codes = Int64[ndarray, "trials cells"]


def _low_bits(seen: Float64[ndarray, "trials cells"]) -> Codes:
    return np.floor(seen).astype(np.int64) % 8


def _code_ratio(
    code_of: Callable[[Float64[ndarray, "trials cells"]], Codes], before: Codes, after: Codes
) -> Callable[[Float64[ndarray, "trials cells"]], Float64[ndarray, " trials"]]:
    """The log-likelihood ratio of codes, as if cells were independent, from how often either side showed each."""
    shares = [
        np.stack([np.bincount(column, minlength=len(_RANGES) + 1) + 0.5 for column in codes.T])
        for codes in (before, after)
    ]
    ratio = np.log(shares[0]) - np.log(shares[1])
    return lambda seen: ratio[np.arange(seen.shape[1]), code_of(seen)].sum(axis=1)


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
