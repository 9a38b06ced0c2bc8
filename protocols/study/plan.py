"""Plan: what a set of budgets affords, before anything is trained."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from math import ceil
from typing import Any  # the values of a JSON object

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from protocols.budgets.accountant import LabelOnly, accountant
from protocols.errors import BudgetExceeded
from protocols.plural import at_most
from protocols.study.study import ADJACENCY, Study

# Quotients that are whole numbers but for rounding.
_DUST = 1e-9


@dataclass(frozen=True, kw_only=True)
class GroupPlan:
    """What one distinct budget affords. Spend is in the accountant's unit (RDP at `order`, or mu squared).

    answers_all: queries when every one is answered (the worst case that batches reserve); answers_half: answers
    when every other query is; answers_renyi: answers_all of the Renyi filter, where the number of queries is planned;
    epsilon_per_answer: epsilon_guaranteed / answers_all, the mean price of a label.
    """

    budget: float
    delta: float
    parties: int
    weight: float
    order: float | None
    cap: float
    epsilon_guaranteed: float
    spend_per_query: float
    spend_per_answer: float
    answers_all: int
    answers_half: int
    answers_renyi: int | None
    epsilon_per_answer: float | None


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """What a study affords; with `first-exhausted`, the group whose budget runs out first decides."""

    study: Study
    groups: list[GroupPlan]

    @property
    def answers_all(self) -> int:
        """The number of labels if every query is answered and the first exhausted budget ends the study."""
        return min(group.answers_all for group in self.groups)

    @property
    def answers_half(self) -> int:
        """The number of labels if every other query is answered."""
        return min(group.answers_half for group in self.groups)

    @property
    def batches(self) -> int:
        """In how many batches they are asked if every query is answered, as long as the first budget lasts."""
        return ceil(min(self.answers_all, self.study.query_limit) / self.study.batch_limit)

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON values, with what each epsilon means."""
        study = self.study
        return {
            "accounting": accountant(study.accountant_name).statement,
            "accountant": study.accountant_name,
            "unit": study.unit,
            "view": study.view,
            "adjacency": ADJACENCY,
            "mechanism": study.mechanism.name,
            **study.mechanism.values,
            "participation": study.votes.participation_name,
            "confidentiality": study.confidentiality.name,
            "units": study.confidentiality.units,
            "parties": len(study.roster),
            "answers_if_all_answered": self.answers_all,
            "answers_if_half_answered": self.answers_half,
            "questions": study.votes.questions,
            "batch_limit": study.batch_limit,
            "batches_if_all_answered": self.batches,
            "groups": [asdict(group) for group in self.groups],
        }


def make_plan(study: Study) -> StudyPlan:
    """The plan of a study: one row per distinct (epsilon, delta, weight)."""
    filters = study.budgets
    terms = np.array([(seat.epsilon, seat.delta, seat.weight) for seat in study.roster]).T
    distinct, first, member = np.unique(terms, axis=1, return_index=True, return_inverse=True)
    sizes = np.bincount(member)
    cap = filters.spend(filters.cap)[first]
    ask, answer = filters.ask[first], filters.answer[first]
    everything = np.floor(cap / (ask + answer) + _DUST).astype(int)
    half = np.floor(cap / (2 * ask + answer) + _DUST).astype(int)
    guaranteed = filters.epsilon_guaranteed[first]
    renyi = None if filters.planned is None else _renyi_answers(study)[first]
    groups = [
        GroupPlan(
            budget=float(distinct[0, g]),
            delta=float(distinct[1, g]),
            parties=int(sizes[g]),
            weight=float(distinct[2, g]),
            order=float(filters.order[first[g]]) if np.isfinite(filters.order[first[g]]) else None,
            cap=float(cap[g]),
            epsilon_guaranteed=float(guaranteed[g]),
            spend_per_query=float(ask[g]),
            spend_per_answer=float(answer[g]),
            answers_all=int(everything[g]),
            answers_half=int(half[g]),
            answers_renyi=None if renyi is None else int(renyi[g]),
            epsilon_per_answer=float(guaranteed[g] / everything[g]) if everything[g] else None,
        )
        for g in range(len(sizes))
    ]
    return StudyPlan(study=study, groups=groups)


def _renyi_answers(study: Study) -> Int64[ndarray, " parties"]:
    """The queries that the Renyi filter of the same bound would afford each party."""
    converted = replace(study, accountant_name=LabelOnly.name).budgets
    return converted.affordable(np.zeros_like(converted.cap), limit=study.query_limit)


def must_afford(plan: StudyPlan) -> None:
    """Raises BudgetExceeded, before anything is trained, when no label can be released."""
    answers = [group.answers_all for group in plan.groups]
    if (min(answers) if plan.study.votes.stop == "first-exhausted" else max(answers)) < 1:
        poorest = min(plan.groups, key=lambda group: group.answers_all)
        raise BudgetExceeded(
            f"epsilon {at_most(poorest.budget)} at delta {at_most(poorest.delta)} affords no query at "
            f"{plan.study.mechanism.noise_words}; allowed: a larger budget, more parties or "
            f"{plan.study.mechanism.more_noise_words}; a plan says what each budget affords"
        )
