"""What the sentences of protocols/claims.py depend on, as a study fixes it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from protocols.bounds.label_only import ORDERS
from protocols.bounds.rdp import rdp_to_epsilon
from protocols.claims.protection import Protection
from protocols.mechanisms import Sensitivity
from protocols.study.study import ADJACENCY, Study
from protocols.study.votes import TeacherVotes, UnitSums, Votes


def protection_of(study: Study) -> Protection:
    """Who may see what in a study, and whose data its figures are about."""
    level = study.confidentiality
    return Protection(
        level=level.name,
        unit=study.unit,
        view=study.view,
        adjacency=ADJACENCY,
        asks=level.who_asks("the coordinator"),
        guardian=level.second_server,
        colluders=level.colluding,
        secret=study.secret_coins,
        pooled=study.votes.pooled,
        votes=study.votes.words,
        settles=study.budgets.settles,
        hospitals=study.votes.hospitals_per_patient,
        declared=study.votes.parts > 1,
        judges=study.votes.evaluation is not None,
        residuals=study.votes.residuals,
        counts_epsilon=_COUNTS[type(study.votes)](study) if level.second_server else 0.0,
    )


def counts_epsilon(study: Study) -> float:
    """The largest epsilon of a seat if all queries that its cap affords showed noisy counts, with one server's noise.

    A server that shifts its share of the counts learns at most that: a function of noisy counts
    (docs/explanation/one-draw.md, section 8). The number of queries is public, so the best order may be taken.
    """
    budgets, sensitivity = study.budgets, study.sensitivity
    queries = budgets.affordable(np.zeros_like(budgets.cap), limit=study.query_limit)
    rows = np.stack([sensitivity.votes, sensitivity.rate, queries, budgets.delta])
    votes, rate, asked, delta = np.unique(rows, axis=1)
    moved = Sensitivity(votes, rate, delta_squared=sensitivity.delta_squared)
    cost = study.mechanism.noise_rdp(moved, ORDERS, view="histogram")
    spend = asked[:, None] * (cost.ask + cost.answer)
    epsilon = np.where(spend > 0, rdp_to_epsilon(spend, ORDERS[None, :], delta=delta[:, None]), 0.0)
    return float(epsilon.min(axis=1).max())


# Of sums, both servers see the noisy ones, which are released.
_COUNTS: dict[type[Votes], Callable[[Study], float]] = {TeacherVotes: counts_epsilon, UnitSums: lambda study: 0.0}
