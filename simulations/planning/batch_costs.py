"""Batch sizes: what a larger batch costs in labels, and how many batches it saves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from protocols.study.study import Study
from simulations.planning.predictions import Prediction, asked_more_than

_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)


@dataclass(frozen=True, kw_only=True)
class BatchCost:
    """What a batch size costs, in expectation.

    stranded: labels lost if every batch but the pool's last has exactly this size, because a last batch that does not
    fit the budgets is not asked; batches: how many are asked in that case; batches_shrinking: how many if the last ones
    shrink to what fits, as in a run, which loses none.
    """

    size: int
    stranded: float
    batches: float
    batches_shrinking: int


def batch_costs(study: Study, predicted: Prediction) -> Iterator[BatchCost]:
    """The costs of batch sizes up to the pool's."""
    rate = predicted.answered / predicted.asked
    pool = predicted.queries
    for size in sorted({min(size, pool) for size in (*_SIZES, pool)}):
        more = asked_more_than(study.budgets, rate=rate, pool=pool, batch=size)
        sizes = np.minimum(np.arange(0, pool, size) + size, pool) - np.arange(0, pool, size)
        yield BatchCost(
            size=size,
            stranded=max(0.0, predicted.answered - rate * float(more @ sizes)),
            batches=float(more.sum()),
            batches_shrinking=batches_asked(study, rate=rate, pool=pool, limit=size),
        )


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
