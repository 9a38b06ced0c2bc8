"""Which features a study of graded votes has, chosen from public figures alone: the pool, units, noise and classes.

Candidates are principal components of the pool, few or many, as they are or with the smaller ones raised; beside them
cells of a large pool. Each is rated by how much of a function of the records the released sum is expected to explain,
if the function is drawn from a Gaussian process over the pool (half linear, half a kernel of median width): few
components where noise is high, more where it is low. No private record, label or accuracy is in reach.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray

from protocols.errors import InvalidInput
from protocols.features.feature_map import FeatureMap
from protocols.features.stage import EXACT, MOST_STEPS, STEPS
from protocols.sums.blocks import NORM_STEPS, OVERALL_SHARE, Block, Blocks, Constant, Linear, Nearest

# Components that are tried; and how much smaller ones are raised: each is scaled by its variance to the minus power.
COMPONENTS: Final = (4, 8, 15, 30, 60, 120)
POWERS: Final = (0.0, 0.25)
# Shares of phi's squared length.
_CONSTANT, _LINEAR, _CELLS = 4, 96, 96
# Cells of a pool: so many records in each; and how much more must be explained with them.
_FEWEST_CELLS, _MOST_CELLS, _PER_CELL, _CLEARLY = 50, 400, 20, 1.003
# Records of the pool that candidates are rated on.
_LOOKED_AT: Final = 600
# Of what is rated: the constant part of the function, how much of a class it tells, and how unlike the pool is.
_CONSTANT_PART, _TOLD, _UNLIKE = 0.07, 0.5, 0.4


@dataclass(frozen=True, eq=False)
class _Pool:
    """What is public: the pool's features as a block sees them, in steps, and their principal axes."""

    steps: Float64[ndarray, "pool width"] = field(repr=False)
    scales: Float64[ndarray, " width"] = field(repr=False)
    centre: Int64[ndarray, " width"] = field(repr=False)
    axes: Float64[ndarray, "width components"] = field(repr=False)
    variances: Float64[ndarray, " components"] = field(repr=False)

    @classmethod
    def of(cls, features: Float32[ndarray, "pool width"]) -> _Pool:
        largest = float(np.abs(features).max(initial=0.0))
        # A power of two, so that steps are as fine as they can be and no value of the pool is cut off.
        room = np.floor(np.log2(MOST_STEPS / STEPS / 4 / largest)) if largest > 0 else 0.0
        scales = np.full(features.shape[1], 2.0 ** np.clip(room, -60, 60))
        steps = features.astype(np.float64) * scales * STEPS
        centre = np.rint(steps.mean(axis=0))
        moved = steps - centre
        values, vectors = np.linalg.eigh(moved.T @ moved / len(moved))
        kept = values > 1e-9 * max(values[-1], 1.0)
        return cls(steps, scales, centre.astype(np.int64), vectors[:, kept][:, ::-1], values[kept][::-1])

    def linear(self, components: int, power: float) -> Linear:
        """The block of so many components."""
        raised = self.axes[:, :components] * (self.variances[:components] / self.variances[0]) ** -power
        most = np.abs(raised).sum(axis=0).max() * 2 * MOST_STEPS
        units = 2.0 ** min(30.0, np.floor(np.log2(EXACT / 4 / most)))
        return Linear(
            share=_LINEAR,
            columns=np.arange(len(self.scales)),
            scales=self.scales,
            centre=self.centre,
            matrix=np.rint(raised.T * units).astype(np.int64),
        )


def choose(
    pool: Float32[ndarray, "pool width"],
    features: FeatureMap,
    *,
    units: int,
    noise: float,
    classes: int,
    table: bool,
    centres: Float32[ndarray, "centres width"] | None = None,
) -> Blocks:
    """The features phi of a study.

    pool: what `features` gives of the public pool; units: the public number of protected units; noise: the standard
    deviation of an entry of the noisy sum over that number, if two sums differ by 2; table: whether features are
    columns of a table, whose scales mean something; centres: of cells that may stand beside components, if these are
    clearly better (how_many_cells). Raises InvalidInput for a pool of records that are all alike, or not finite.
    """
    if len(pool) < 2 or not np.isfinite(pool).all():
        raise InvalidInput(f"a pool of {len(pool)} records; allowed: at least 2, all finite")
    seen = _Pool.of(pool)
    if not len(seen.variances):
        raise InvalidInput("the pool's records are all alike; allowed: a pool that tells records apart")
    prior = prior_kernel(seen.steps[:_LOOKED_AT] - seen.centre)

    def rated(*blocks: Block) -> tuple[float, Blocks]:
        made = Blocks(features, (Constant(share=_CONSTANT), *blocks))
        phi = made.phi(pool[:_LOOKED_AT]) / NORM_STEPS
        return explained(phi, prior, classes=classes, units=units, noise=noise, pool=len(pool)), made

    def best(*beside: Block) -> tuple[float, Blocks]:
        found = [rated(linear, *beside) for linear in _candidates(seen, table=table)]
        return max(found, key=lambda each: each[0])

    alone, chosen = best()
    if centres is None:
        return chosen
    told, wider = best(Nearest.of(centres, columns=np.arange(pool.shape[1]), share=_CELLS))
    return wider if told > _CLEARLY * alone else chosen


def how_many_cells(pool: int) -> int:
    """How many cells may stand beside components of a pool of so many records; 0: none."""
    cells = min(_MOST_CELLS, pool // _PER_CELL)
    return cells if cells >= _FEWEST_CELLS else 0


def _candidates(pool: _Pool, *, table: bool) -> Iterator[Linear]:
    most = len(pool.variances)
    for components in dict.fromkeys(min(each, most) for each in (*COMPONENTS, most)):
        for power in POWERS[: 1 if table else None]:
            yield pool.linear(components, power)


def prior_kernel(moved: Float64[ndarray, "pool width"]) -> Float64[ndarray, "pool pool"]:
    """What functions of the records are expected to be like: the covariance of one over the pool, of mean trace 1."""
    linear = moved @ moved.T
    squares = np.diag(linear)
    distances = np.maximum(squares[:, None] + squares - 2 * linear, 0.0)
    median = float(np.median(distances[np.triu_indices(len(moved), 1)])) or 1.0
    mean = float(squares.mean()) or 1.0
    return (1 - _CONSTANT_PART) * (linear / mean + np.exp(-distances / median)) / 2 + _CONSTANT_PART


def explained(
    phi: Float64[ndarray, "pool rows"],
    prior: Float64[ndarray, "pool pool"],
    *,
    classes: int,
    units: int,
    noise: float,
    pool: int,
) -> float:
    """The share of a function's variance that the noisy sum is expected to explain. Arguments as choose."""
    rows = phi.shape[1]
    second = phi.T @ phi / len(phi)
    moved = prior @ phi / len(phi)
    # Of a contrast of one-hot labels: its variance in all, and over the noise of a simplex, which is longer.
    of_label = 1 / classes
    variance, longer = _TOLD * of_label, (1 - 1 / classes) / (1 - OVERALL_SHARE[0] / OVERALL_SHARE[1])
    system = (
        variance * (phi.T @ moved) / len(phi)
        + longer * noise**2 * np.eye(rows)
        + ((1 - _UNLIKE) / units + _UNLIKE / pool) * of_label * second
    )
    return float(variance * (moved * np.linalg.solve(system, moved.T).T).sum() / np.trace(prior))


def block_of_rows(blocks: Blocks) -> Int64[ndarray, " rows"]:
    """The number of the prior variance of each row of phi (fit.PublicMoment): one for each block, -1 for constants."""
    others = [not isinstance(each, Constant) for each in blocks.blocks]
    return np.repeat(np.where(others, np.cumsum(others) - 1, -1), [each.rows for each in blocks.blocks])
