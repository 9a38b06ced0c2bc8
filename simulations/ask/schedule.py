"""Who asks when: rounds in which every querying party asks the same number of queries, under one cap per party.

The public rule. A round gives each querying party, in the order of the roster, one turn of the same size: as many
queries as the settings say, or fewer if the worst case of the whole round (every query of every turn answered) would
not fit what is left of some budget. A round that does not fit even with one query per turn is not begun, so no querying
party gets a turn more than another. After each turn its answers are settled: refused queries cost less, and the
difference pays for further rounds. Sizes, and who takes part, depend on public ledgers only.

Every answering party has one ledger over all turns of all querying parties, because they might collude. A querying
party does not answer itself, so its own turns cost it nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int64, Integer
from numpy import ndarray

from protocols.budgets.filter import BudgetFilter
from protocols.labelling.schedule import Stop
from protocols.noise import Noise
from protocols.study.study import Study
from protocols.votes import ABSTAIN, NOT_ASKED, count_votes


@dataclass(frozen=True)
class Turn:
    """One querying party's batch: its round, and how many queries it asked and got answered."""

    number: int
    querier: int
    asked: int
    answered: int


@dataclass(frozen=True, eq=False)
class AskedLabels:
    """What all querying parties learned, and what that cost.

    labels: class ids, ABSTAIN or NOT_ASKED, one row per querying party; spent_after: nano-units in every ledger after
    each turn.
    """

    labels: Int64[ndarray, "queriers records"]
    turns: tuple[Turn, ...]
    spent_after: Int64[ndarray, "turns parties"]
    spent: Int64[ndarray, " parties"]
    stop: Stop


@dataclass(frozen=True)
class Round:
    """Every querying party asks `size` queries (>= 1) of the parties that are `active`."""

    size: int
    active: Bool[ndarray, " parties"]


def ask_all(
    study: Study,
    votes: Integer[ndarray, "parties queriers records"],
    queriers: Int64[ndarray, " queriers"],
    *,
    noise: Noise,
) -> AskedLabels:
    """Asks until a budget is exhausted or every record was asked about; returns the labels and their cost.

    votes: every party's on each querying party's records; queriers: positions in the roster, ascending. The study's
    batch_limit is the largest turn.
    """
    _, count, records = votes.shape
    budgets = study.budgets
    labels = np.full((count, records), NOT_ASKED, dtype=np.int64)
    spent = np.zeros(len(study.roster), dtype=np.int64)
    turns: list[Turn] = []
    history: list[Int64[ndarray, " parties"]] = []
    asked, number = 0, 0
    while isinstance(step := next_round(study, spent, queriers=queriers, left=records - asked), Round):
        batch = slice(asked, asked + step.size)
        for place, querier in enumerate(queriers.tolist()):
            voting = step.active.copy()
            voting[querier] = False
            counts = count_votes(votes[:, place, None, batch], study.weights * voting, classes=study.classes)
            released = study.release(counts, noise, predictions=None)
            labels[place, batch] = released
            answered = int((released != ABSTAIN).sum())
            spent = spent + np.where(voting, budgets.amount(step.size, answered), 0)
            turns.append(Turn(number, place, step.size, answered))
            history.append(spent)
        asked += step.size
        number += 1
    rows = np.array(history, dtype=np.int64).reshape(len(history), len(spent))
    return AskedLabels(labels, tuple(turns), rows, spent, step)


def next_round(
    study: Study, spent: Int64[ndarray, " parties"], *, queriers: Int64[ndarray, " queriers"], left: int
) -> Round | Stop:
    """The next round, or the reason to stop; left: records that each querying party has not asked about yet."""
    if left == 0:
        return Stop("pool_exhausted", np.zeros(len(spent), dtype=bool))
    fits = _turns_that_fit(study.budgets, spent, queriers, limit=min(left, study.batch_limit))
    active = fits >= 1
    if study.stop == "first-exhausted" and not active.all():
        return Stop("budget_exhausted", ~active)
    if not active.any():
        return Stop("all_budgets_exhausted", ~active)
    # The querying party of a turn is not among those that answer it.
    if active.sum() - int(active[queriers].any()) < study.quorum:
        return Stop("quorum_lost", ~active)
    return Round(int(fits[active].min()), active)


def _turns_that_fit(
    budgets: BudgetFilter, spent: Int64[ndarray, " parties"], queriers: Int64[ndarray, " queriers"], *, limit: int
) -> Int64[ndarray, " parties"]:
    """The largest turn, at most `limit`, whose round fits each party's cap; each turn rounds its own cost up."""
    answers = np.full(len(spent), len(queriers))
    answers[queriers] -= 1
    paying = answers > 0
    most = np.maximum(answers, 1)
    left = budgets.cap - spent
    size = np.minimum(budgets.affordable(spent, limit=limit * len(queriers)) // most, limit)
    # One charge per turn, each rounded up, may be a few nano-units more than one charge for all of them.
    while (over := paying & (size > 0) & (most * budgets.amount(size, size) > left)).any():
        size = size - over
    return np.where(paying, size, limit)
