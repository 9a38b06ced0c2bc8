"""When to ask and when to stop: batches whose worst case fits what is left of every budget.

Batch sizes, and who takes part, depend on public ledgers only, never on votes; a live study and its replay follow
the same schedule because both call `next_batch`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from jaxtyping import Bool, Int64
from numpy import ndarray

from protocols.budgets.filter import BudgetFilter
from protocols.budgets.participation import Participation
from protocols.study.study import Study
from protocols.study.votes import StopRule

StopReason = Literal[
    "pool_exhausted", "budget_exhausted", "all_budgets_exhausted", "quorum_lost", "guardian_lost", "missed", "failed"
]
# What people are told, by every program.
STOP_MEANINGS: Final[Mapping[StopReason, str]] = {
    "pool_exhausted": "every query of the pool was asked",
    "budget_exhausted": "a budget cannot pay for one more query",
    "all_budgets_exhausted": "no budget can pay for one more query",
    "quorum_lost": "too few parties are left to answer",
    "guardian_lost": "the guardian is gone",
    "missed": "a party was late for so many batches that the operator decides",
    "failed": "the labelling failed before its end, for a reason that its operator knows",
}


@dataclass(frozen=True)
class Stop:
    """The study ends: why, and which parties' budgets do not fit one more query."""

    reason: StopReason
    exhausted: Bool[ndarray, " parties"]


@dataclass(frozen=True)
class Batch:
    """Ask the next `size` queries (>= 1) of the parties that are `active`."""

    size: int
    active: Bool[ndarray, " parties"]


def next_of(
    study: Study, spent: Int64[ndarray, " parties"], *, asked: int, queries: int,
    without: Bool[ndarray, " parties"] | None = None,
) -> Batch | Stop:  # fmt: skip
    """`next_batch` of a study, of whose pool of so many queries the first `asked` were asked."""
    return next_batch(
        study.budgets, spent, participation=study.participation, asked=asked,
        left=study.round_end(asked, queries) - asked, batch_limit=study.batch_limit, stop=study.votes.stop,
        quorum=study.quorum, without=without,
    )  # fmt: skip


def next_batch(
    budgets: BudgetFilter,
    spent: Int64[ndarray, " parties"],
    *,
    participation: Participation,
    asked: int,
    left: int,
    batch_limit: int,
    stop: StopRule,
    quorum: int,
    without: Bool[ndarray, " parties"] | None = None,
) -> Batch | Stop:
    """The next batch, sized so that its worst case fits every active party's remaining cap; or the end.

    spent: nano-units settled so far (reservations that were never settled included); asked, left: numbers of queries
    of the pool that were asked and that were not; participation: who takes part in which query, as far as it is public;
    quorum: parties needed; without: those of which nothing is asked any more. Noise and threshold do not change when
    parties leave.
    """
    if left == 0:
        return Stop("pool_exhausted", np.zeros(len(spent), dtype=bool))
    limit = min(left, batch_limit)
    fits = participation.reach(asked, budgets.affordable(spent, limit=limit), limit=limit)
    exhausted = fits < 1
    active = ~exhausted if without is None else ~exhausted & ~without
    if stop == "first-exhausted" and exhausted.any():
        return Stop("budget_exhausted", exhausted)
    if not active.any():
        return Stop("all_budgets_exhausted", exhausted)
    if active.sum() < quorum:
        return Stop("quorum_lost", exhausted)
    return Batch(int(fits[active].min()), active)
