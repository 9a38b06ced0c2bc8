"""What a study with given noise is expected to release: answers, accuracy, and what they are worth.

Every prediction is for a real Study, made as in a run, so what it affords is exact: worst case, with the same weights,
orders, caps and filters. Votes enter only through a public assumption (planned_votes.py). Queries are assumed
independent, so the number answered of n asked is binomial.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import scipy
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.budgets.filter import BudgetFilter
from protocols.errors import InvalidInput
from protocols.study.study import Study
from simulations.planning.objectives import Objective
from simulations.planning.planned_votes import PlannedHistograms, PlannedVotes, weighted_counts
from simulations.setup.budgets import Budgets
from simulations.setup.experiment import Experiment, experiment_budgets, make_study
from simulations.stages.stored_votes import TeacherVotes

# Planned queries, fewer where there are many voters.
BANK, _LEAST_BANK, _BANK_VOTES = 2000, 200, 2_000_000
# The budgets outlast the pool with at most this probability.
_POOL_RISK = 0.001


@dataclass(frozen=True, kw_only=True)
class Noise:
    """The chosen settings, in votes, with three digits."""

    sigma: float
    sigma_threshold: float
    threshold: float

    @classmethod
    def rounded(cls, sigma: float, sigma_threshold: float, threshold: float) -> Noise:
        """The nearest values with three digits; a threshold is rounded down, so as not to exceed the total weight."""
        scale = 10.0 ** (np.floor(np.log10(max(abs(threshold), 1e-3))) - 2)
        return cls(
            sigma=float(f"{sigma:.3g}"),
            sigma_threshold=float(f"{sigma_threshold:.3g}"),
            threshold=float(f"{np.floor(threshold / scale + 1e-9) * scale:.6g}"),
        )


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What a study with this noise is expected to release from a pool of `queries`.

    answer_rate: the expected share of asked queries that are answered, for `--answer-rate`; accuracy: expected, of the
    released labels; value: of the objective; queries: the size of the pool.
    """

    noise: Noise
    answer_rate: float
    queries: int
    asked: float
    answered: float
    accuracy: float
    value: float


@dataclass(frozen=True, eq=False)
class Planner:
    """Predicts what studies of one federation release, for any noise. Deterministic in its arguments.

    pool: the most queries that there are.
    """

    settings: Experiment
    pool: int
    votes: PlannedVotes
    objective: Objective
    budgets: Budgets
    stored: TeacherVotes
    truth: Int64[ndarray, " queries"]
    _known: dict[tuple[Noise, int], Prediction] = field(default_factory=dict, repr=False)
    _correct: dict[tuple[float, bytes], Float64[ndarray, " queries"]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls, settings: Experiment, votes: PlannedVotes, objective: Objective, *, pool: int, bank: int = BANK
    ) -> Planner:
        """A planner for pools of at most so many queries; bank: the most queries for which votes are planned.

        Raises InvalidInput for settings that it cannot plan.
        """
        budgets = experiment_budgets(settings)
        seats, teachers = len(budgets.names), settings.teachers_per_party
        voters = max(seats * teachers, votes.classes)
        size = min(bank, max(_LEAST_BANK, _BANK_VOTES // voters))
        stored, truth = votes.cast(parties=seats, teachers=teachers, queries=size)
        return cls(settings, pool, votes, objective, budgets, stored, truth)

    @cached_property
    def total(self) -> float:
        """The number of votes cast on a query."""
        return float(len(self.budgets.names) * self.settings.teachers_per_party)

    @cached_property
    def _even(self) -> PlannedHistograms:
        """The planned histograms if each vote counts one."""
        return self.histograms(np.ones(len(self.budgets.names)))

    def histograms(self, weights: Float64[ndarray, " parties"]) -> PlannedHistograms:
        """The planned histograms if parties have these weights per vote."""
        return PlannedHistograms.of(weighted_counts(self.stored, weights), self.truth)

    def correct(self, weights: Float64[ndarray, " parties"], sigma: float) -> Float64[ndarray, " queries"]:
        """For each query, the probability that its label is right if it is answered."""
        key = (sigma, weights.tobytes())
        if key not in self._correct:
            self._correct[key] = self.histograms(weights).correct(sigma)
        return self._correct[key]

    def study(self, noise: Noise, *, queries: int, answer_rate: float | None = None) -> Study:
        """The study that a run with these settings makes; answer_rate None: as predicted for this noise."""
        if "answer_rate" in self.settings.model_fields_set:
            answer_rate = self.settings.answer_rate
        elif answer_rate is None:
            passes = self._even.passes(threshold=np.array([noise.threshold]), sigma=noise.sigma_threshold)
            answer_rate = max(0.01, round(float(passes.mean()), 2))
        given = {
            "sigma": noise.sigma,
            "sigma_threshold": noise.sigma_threshold,
            "threshold": noise.threshold,
            "answer_rate": answer_rate,
        }
        settings = self.settings.model_copy(update=given)
        return make_study(settings, self.budgets, classes=self.votes.classes, queries=queries)

    def predict(self, noise: Noise, *, queries: int | None = None) -> Prediction:
        """What a study with this noise is expected to release; queries: the size of the pool, None for the largest.

        Nothing, if no study can be made with this noise because no budget affords it.
        """
        pool = self.pool if queries is None else queries
        if (noise, pool) not in self._known:
            try:
                self._known[noise, pool] = self._predicted(noise, pool)
            except InvalidInput:
                self._known[noise, pool] = Prediction(
                    noise=noise, answer_rate=0.0, queries=pool, asked=0.0, answered=0.0, accuracy=0.0, value=0.0
                )
        return self._known[noise, pool]

    def _predicted(self, noise: Noise, pool: int) -> Prediction:
        study = self.study(noise, queries=pool)
        filters, seen = study.budgets, self.histograms(study.weights)
        needed = study.mechanism.needed(second_round=False)
        passes = seen.passes(threshold=np.array([needed]), sigma=noise.sigma_threshold)[0]
        rate = float(passes.mean())
        accuracy = min(1.0, float(passes @ self.correct(study.weights, noise.sigma) / max(passes.sum(), 1e-300)))
        asked = float(asked_more_than(filters, rate=rate, pool=pool, batch=1).sum())
        value = self.objective.value(np.array([rate * asked]), np.array([accuracy]), classes=study.classes)[0]
        return Prediction(
            noise=noise,
            answer_rate=study.answer_rate,
            queries=pool,
            asked=asked,
            answered=rate * asked,
            accuracy=accuracy,
            value=float(value),
        )

    def enough(self, noise: Noise) -> int:
        """The smallest pool that is exhausted before the budgets with probability at most 1 %; the largest pool if none
        is.
        """
        answered = self.predict(noise)
        if answered.asked <= 0:
            return 1
        rate = answered.answered / answered.asked
        more = asked_more_than(self.study(noise, queries=self.pool).budgets, rate=rate, pool=self.pool, batch=1)
        return max(1, int((more > _POOL_RISK).sum()))


def asked_more_than(filters: BudgetFilter, *, rate: float, pool: int, batch: int) -> Float64[ndarray, " batches"]:
    """P(more than n queries are asked), n = 0, batch, 2 batch, ... below the pool, when each is answered at `rate`.

    A batch is asked if its worst case, all answered, still fits every budget; the first that does not fit ends the
    study. With k of n answered so far, it fits if k + batch <= room(n + batch), where room(n) is the minimum over
    parties of floor((cap - n ask)/answer). As room falls and k does not, a batch that fits implies that all earlier
    ones did: the probability follows from k ~ Binomial(n, rate) alone, without approximation. A run shrinks its batches
    to what fits, which equals batch = 1 for any batch limit (schedule.next_batch).
    """
    start = np.arange(0, pool, batch)
    end = np.minimum(start + batch, pool)
    cap, ask, answer = np.unique(np.stack([filters.spend(filters.cap), filters.ask, filters.answer]), axis=1)
    room = np.full(len(start), np.inf)
    for one_cap, one_ask, one_answer in zip(cap, ask, answer, strict=True):
        room = np.minimum(room, (one_cap - end * one_ask) / one_answer)
    most = np.floor(room) - (end - start)
    fits = scipy.special.bdtr(np.clip(most, 0, start), start, rate)
    return np.where(most < 0, 0.0, np.where(most >= start, 1.0, fits))
