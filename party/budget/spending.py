"""What a seat has spent of its budget, as people read it: answers left, epsilon used, and the cap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from protocols.study.deployed import DeployedStudy


@dataclass(frozen=True)
class Spending:
    """answers_left: queries that the rest of the cap affords if all are answered; epsilon_used: for monitoring, not a
    guarantee; epsilon_cap: guaranteed, for the unit, at delta."""

    answers_left: int
    epsilon_used: float
    epsilon_cap: float
    delta: float


def spending(study: DeployedStudy, seat: str, spent: int) -> Spending:
    """What a seat has spent. spent: nano-units of its cap, settled and reserved."""
    at = study.seats[seat]
    used = np.zeros(len(study.roster), np.int64)
    used[at] = spent
    return Spending(
        answers_left=int(study.budgets.affordable(used, limit=study.query_limit)[at]),
        epsilon_used=float(study.budgets.epsilon_of(used)[at]),
        epsilon_cap=float(study.budgets.epsilon_guaranteed[at]),
        delta=study.roster[at].delta,
    )
