"""Whether the public pool is like the hospitals' records, and weights under which it is.

The released sum tells the mean of phi over the private units (fit.overall). Its difference from the pool's mean has, if
both are drawn from one population, a known spread: the noise of the release, and what so many units and records leave
to chance. Each record is taken for another person's: where patients have several, a pool that is like the records is
said to be unlike, and is weighted, more often than is stated here. Nothing private is read but through that noisy sum,
so the test costs nothing.

Where they differ, the pool is weighted by exponential tilting (Csiszar 1975; as in entropy balancing, Hainmueller 2012)
until its mean of phi is as near to the noisy one as noise lets it be told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy.special
from jaxtyping import Bool, Float64
from numpy import ndarray

# How often a pool that is like the records is said to be unlike, at most.
FALSE_ALARMS = 0.01
# Directions of the pool that the test looks at by themselves, the widest first; and then all together.
_FIRST = 10
# How far the units that speak may be from as many as are said, as a standard deviation of their share: seats drop out,
# weigh more or less, and have records that say nothing. What the constant rows of the sum tell of it counts beside it.
_TURNOUT_SPREAD, _LEAST_TURNOUT = 0.5, 0.1
# A pool is weighted where chance alone leaves such a difference less often than this: more readily than it is said to
# be unlike, as weights cost little where it was not.
WEIGHED = 0.1
# How strongly weights are held back: so many times what noise and chance leave open.
_DOUBTS = 2.0
_STEPS, _HALVINGS, _SMALL = 50, 30, 1e-9
# Deviations of the pool's values from which a column is said to differ, and how many are named.
_TOLD, _MOST_NAMED = 0.1, 5
# Chances below this are not told apart.
_SELDOM = 1e-6


@dataclass(frozen=True, eq=False)
class PoolComparison:
    """The pool beside the hospitals' records.

    statistic: how far their means lie apart, in standard deviations of what chance leaves; p_value: how often chance
    alone leaves so much; weights: of the pool's records, with the sum 1: all alike from a p_value of WEIGHED on.
    """

    statistic: float
    p_value: float
    weights: Float64[ndarray, " pool"] = field(repr=False)

    @property
    def unlike(self) -> bool:
        """Whether the pool is unlike the records; of pools that are not, at most FALSE_ALARMS are said to be."""
        return self.p_value < FALSE_ALARMS

    @property
    def records(self) -> float:
        """How many records of the same weight the weighted pool is worth."""
        return float(1 / (self.weights**2).sum())

    def columns(self, values: Float64[ndarray, "pool columns"]) -> list[tuple[int, float, float]]:
        """The columns of the pool whose weighted mean differs most: by how much, and by how many of their standard
        deviations."""
        spread = values.std(axis=0)
        by = self.weights @ values - values.mean(axis=0)
        moved = by / np.where(spread > 0, spread, np.inf)
        order = np.argsort(-np.abs(moved), kind="stable")[:_MOST_NAMED]
        return [(int(at), float(by[at]), float(moved[at])) for at in order if abs(moved[at]) >= _TOLD]


def unlike_words(p_value: float, differences: Sequence[str]) -> str:
    """What is said of a pool that is unlike the records; "" of one that is not. differences: in words, if any can be
    named."""
    if p_value >= FALSE_ALARMS:
        return ""
    inside = f": in theirs {', '.join(dict.fromkeys(differences))}" if differences else ""
    chance = f"{p_value:.2g}" if p_value >= _SELDOM else f"less than {_SELDOM:g}"
    return (
        f"the pool looks unlike the hospitals' records{inside}; of pools like them {chance} of 1 look so unlike, where "
        "no two records are one patient's"
    )


def compare_pool(
    mean: Float64[ndarray, " rows"],
    pool: Float64[ndarray, "pool rows"],
    *,
    noise: float,
    units: float | int,
    constant: Bool[ndarray, " rows"] | None = None,
) -> PoolComparison:
    """Compares the pool with the noisy mean of phi over the private units.

    mean: that mean; pool: phi of the pool; noise: the variance of the mean's noise in each row; units: how many.
    constant: the rows that are the same for every record: they tell how many units have spoken, and what follows from
    their number alone makes no pool unlike. None: all have.
    """
    records, unsure = len(pool), 0.0
    if constant is not None and constant.any():
        seen = pool[:, constant].mean(axis=0)
        turnout, unsure = spoken(mean[constant], seen, noise=noise, spread=_TURNOUT_SPREAD)
        mean, pool = mean[~constant] / turnout, pool[:, ~constant]
        noise, units, unsure = noise / turnout**2, units * turnout, unsure / turnout**2
    centre = pool.mean(axis=0)
    spread, axes = np.linalg.eigh((pool - centre).T @ (pool - centre) / records)
    spread, axes = np.maximum(spread[::-1], 0.0), axes[:, ::-1]
    variance = noise + spread * (1 / units + 1 / records)
    told = variance > 0
    deviation = np.sqrt(variance[told])
    moved, common = ((each @ axes)[told] / deviation for each in (mean - centre, centre))
    # Each a sum of squares of standard normal numbers, if noise and means are normal.
    ends = sorted({min(_FIRST, len(moved)), len(moved)} - {0})
    sums = [_squared(moved[:end], common[:end], unsure) for end in ends]
    chances = [float(scipy.special.gammaincc(end / 2, each / 2)) for end, each in zip(ends, sums, strict=True)]
    statistic = max(((each - end) / np.sqrt(2 * end) for end, each in zip(ends, sums, strict=True)), default=0.0)
    p_value = min(1.0, len(ends) * min(chances, default=1.0))
    weights = np.full(records, 1 / records)
    if p_value < WEIGHED:
        doubt = noise + 1 / units + 1 / records
        weights = _tilted((pool - centre) @ axes, (mean - centre) @ axes, penalty=_DOUBTS * doubt)
    return PoolComparison(float(statistic), p_value, weights)


def spoken(
    mean: Float64[ndarray, " constants"], pool: Float64[ndarray, " constants"], *, noise: float, spread: float
) -> tuple[float, float]:
    """The share of the units that have spoken, by the rows that are the same for every record, and its variance.

    mean, pool, noise: as in compare_pool, of these rows; spread: above 0, how far that share may be from 1, as a
    standard deviation.
    """
    held, prior = float(pool @ pool), 1 / spread**2
    unsure = noise / (held + noise * prior) if held + noise > 0 else spread**2
    found = 1.0 + (float(mean @ pool) - held) / (held + noise * prior) if held + noise > 0 else 1.0
    return max(found, _LEAST_TURNOUT), unsure


def _squared(moved: Float64[ndarray, " directions"], common: Float64[ndarray, " directions"], unsure: float) -> float:
    """The squared length of what moved, if it is of variance 1 in each direction and `unsure` along what is common."""
    return float(moved @ moved - unsure * (moved @ common) ** 2 / (1 + unsure * (common @ common)))


def _tilted(
    pool: Float64[ndarray, "pool directions"], mean: Float64[ndarray, " directions"], *, penalty: float
) -> Float64[ndarray, " pool"]:
    """Weights exp(pool @ tilt) over their sum, with the tilt that minimises ln sum exp(pool @ tilt) - mean @ tilt +
    penalty |tilt|^2 / 2, which is convex: by Newton's method.
    """

    def loss(tilt: Float64[ndarray, " directions"]) -> float:
        return float(scipy.special.logsumexp(pool @ tilt) - mean @ tilt + penalty * (tilt @ tilt) / 2)

    tilt = np.zeros(len(mean))
    now = loss(tilt)
    for _ in range(_STEPS):
        weights = scipy.special.softmax(pool @ tilt)
        inside = weights @ pool
        slope = inside - mean + penalty * tilt
        curve = (pool * weights[:, None]).T @ pool - np.outer(inside, inside) + penalty * np.eye(len(mean))
        step = np.linalg.solve(curve, slope)
        part = 1.0
        for _ in range(_HALVINGS):
            if loss(tilt - part * step) <= now:
                break
            part /= 2
        tilt = tilt - part * step
        before, now = now, loss(tilt)
        if before - now < _SMALL:
            break
    return np.asarray(scipy.special.softmax(pool @ tilt))
