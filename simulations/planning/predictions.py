"""What a study with given noise is expected to release: answers, accuracy, and what they are worth.

Every prediction is for a real Study, made as in a run, so what it affords is exact: worst case, with the same weights,
orders, caps and filters. Votes enter only through a public assumption (planned_votes.py). Queries are assumed
independent, so the number answered of n asked is binomial.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import scipy
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.budgets.accountant import ExactComposition, LabelOnly
from protocols.budgets.filter import BudgetFilter
from protocols.errors import InvalidInput
from protocols.mechanisms import MECHANISMS, GaussianMechanism, Mechanism
from protocols.mechanisms.decision import Decision
from protocols.mechanisms.parameter import Parameter
from protocols.study.study import Study
from simulations.planning.objectives import Objective
from simulations.planning.planned_votes import PlannedHistograms, PlannedVotes, weighted_counts
from simulations.setup.budgets import Budgets
from simulations.setup.experiment import Experiment, experiment_budgets, make_study
from simulations.setup.usual_noise import scaled_mechanism
from simulations.stages.stored_votes import CastVotes

# Planned queries, fewer where there are many voters.
BANK, _LEAST_BANK, _BANK_VOTES = 2000, 200, 2_000_000
# The budgets outlast the pool with at most this probability.
_POOL_RISK = 0.001
# Weighted histograms that are kept.
_KEPT = 32


@dataclass(frozen=True)
class Noise:
    """The chosen value of every parameter that is planned, by name, in votes; in the order of `planned_parameters`."""

    values: tuple[tuple[str, float], ...]

    @classmethod
    def of(cls, **values: float) -> Noise:
        """Exactly these values."""
        return cls(tuple(values.items()))

    @classmethod
    def rounded(cls, kind: type[Mechanism], values: Iterable[float]) -> Noise:
        """The nearest values with three digits; a threshold is rounded down: what is reached stays reached."""
        given = zip(planned_parameters(kind).items(), values, strict=True)
        return cls(tuple((name, _floor(v) if each.role == "threshold" else float(f"{v:.3g}"))
                         for (name, each), v in given))  # fmt: skip

    @property
    def words(self) -> str:
        """The values in a few words: `sigma 52.5, threshold 150`."""
        return ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in self.values)


def _floor(threshold: float) -> float:
    scale = 10.0 ** (np.floor(np.log10(max(abs(threshold), 1e-3))) - 2)
    return float(f"{np.floor(threshold / scale + 1e-9) * scale:.6g}")


def planned_parameters(kind: type[Mechanism]) -> dict[str, Parameter]:
    """The parameters that a plan chooses: the label noise, further noise, and the threshold, in this order.

    Empty for a mechanism that is not planned: one that is not Gaussian, or has two rounds, no threshold, or other
    parameters.
    """
    told = kind.parameters(view="label")
    noise = [name for name, each in told.items() if each.role == "noise" and each.unit == "votes"]
    threshold = [name for name, each in told.items() if each.role == "threshold"]
    fits = issubclass(kind, GaussianMechanism) and len(threshold) == 1 and len(noise) + 1 == len(told)
    return {name: told[name] for name in (*noise, *threshold)} if fits else {}


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
    stored: CastVotes
    truth: Int64[ndarray, " queries"]
    _known: dict[tuple[Noise, int, bool], Prediction] = field(default_factory=dict, repr=False)
    _seen: dict[bytes, PlannedHistograms] = field(default_factory=dict, repr=False)

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

    @property
    def kind(self) -> type[Mechanism]:
        """The mechanism whose parameters are planned."""
        return MECHANISMS[self.settings.mechanism]

    def with_mechanism(self, name: str) -> Planner:
        """The same federation with another mechanism."""
        settings = self.settings.model_copy(update={"mechanism": name})
        return replace(self, settings=settings, _known={}, _seen=self._seen)

    @cached_property
    def total(self) -> float:
        """The number of votes cast on a query."""
        return float(len(self.budgets.names) * self.settings.teachers_per_party)

    def histograms(self, weights: Float64[ndarray, " parties"]) -> PlannedHistograms:
        """The planned histograms if parties have these weights per vote."""
        key = weights.tobytes()
        if key not in self._seen:
            while len(self._seen) >= _KEPT:
                del self._seen[next(iter(self._seen))]
            self._seen[key] = PlannedHistograms.of(weighted_counts(self.stored, weights), self.truth)
        return self._seen[key]

    def usual_noise(self) -> Noise:
        """The noise and threshold of a run that is given none; where no budget affords them, as if they were."""
        try:
            made = make_study(self.settings, self.budgets, classes=self.votes.classes, queries=self.pool).mechanism
        except InvalidInput:
            made = scaled_mechanism(
                self.settings.mechanism, {}, view="label", classes=self.votes.classes, votes=self.total
            )
        return Noise.rounded(self.kind, (made.values[name] for name in planned_parameters(self.kind)))

    def decision(self, noise: Noise) -> Decision:
        """How a query is decided with this noise."""
        made = self.kind.build(view="label", given=dict(noise.values))
        if not isinstance(made, GaussianMechanism):
            raise InvalidInput(f"{made.name} is not planned; allowed: a mechanism with Gaussian noise and a threshold")
        return made.decision(second_round=False)

    def study(self, noise: Noise, *, queries: int, answer_rate: float | None = None, guide: bool = False) -> Study:
        """The study that a run with these settings makes; answer_rate None: as predicted for this noise.

        guide: with Renyi DP in place of exact composition, which takes a second for each noise and affords about a
        seventh more at any.
        """
        if "answer_rate" in self.settings.model_fields_set:
            answer_rate = self.settings.answer_rate
        elif answer_rate is None:
            even, decision = self.histograms(np.ones(len(self.budgets.names))), self.decision(noise)
            passes, _ = even.outcomes(decision, _threshold(decision))
            answer_rate = max(0.01, round(float(passes.mean()), 2))
        settings = self.settings.model_copy(update={**dict(noise.values), "answer_rate": answer_rate})
        if guide and settings.accountant in (None, ExactComposition.name):
            settings = settings.model_copy(update={"accountant": LabelOnly.name})
        return make_study(settings, self.budgets, classes=self.votes.classes, queries=queries)

    def predict(self, noise: Noise, *, queries: int | None = None, guide: bool = False) -> Prediction:
        """What a study with this noise is expected to release; queries: the size of the pool, None for the largest;
        guide: see `study`.

        Nothing, if no study can be made with this noise because no budget affords it.
        """
        pool = self.pool if queries is None else queries
        key = (noise, pool, guide)
        if key not in self._known:
            try:
                self._known[key] = self._predicted(noise, pool, guide=guide)
            except InvalidInput:
                self._known[key] = Prediction(
                    noise=noise, answer_rate=0.0, queries=pool, asked=0.0, answered=0.0, accuracy=0.0, value=0.0
                )
        return self._known[key]

    def _predicted(self, noise: Noise, pool: int, *, guide: bool) -> Prediction:
        study = self.study(noise, queries=pool, guide=guide)
        filters, seen, decision = (
            study.budgets,
            self.histograms(study.weights),
            study.gaussian.decision(second_round=False),
        )
        passes, right = seen.outcomes(decision, _threshold(decision))
        rate = float(passes.mean())
        accuracy = min(1.0, float(right.sum() / max(passes.sum(), 1e-300)))
        asked = float(asked_more_than(filters, rate=rate, pool=pool, batch=1).sum())
        value = self.objective.value(np.array([rate * asked]), np.array([accuracy]), classes=study.classes)[0]
        return Prediction(
            noise=noise,
            answer_rate=study.votes.answer_rate,
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


def _threshold(decision: Decision) -> Float64[ndarray, "1"]:
    """The decision's own threshold, as `outcomes` takes thresholds; a mechanism without one passes every query."""
    return np.array([-np.inf if decision.threshold is None else decision.threshold])


def asked_more_than(filters: BudgetFilter, *, rate: float, pool: int, batch: int) -> Float64[ndarray, " batches"]:
    """P(more than n queries are asked), n = 0, batch, 2 batch, ... below the pool, when each is answered at `rate`.

    A batch is asked if its worst case, all answered, still fits every budget; the first that does not fit ends the
    study. With k of n answered so far, it fits if k + batch <= room(n + batch), where room(n) is the minimum over
    parties of floor((cap - n ask)/answer). As room falls and k does not, a batch that fits implies that all earlier
    ones did: the probability follows from k ~ Binomial(n, rate) alone, without approximation. A run shrinks its batches
    to what fits, which equals batch = 1 for any batch limit (schedule.next_batch). Where an answer costs nothing more
    than asking, how many are asked is certain.
    """
    start = np.arange(0, pool, batch)
    end = np.minimum(start + batch, pool)
    cap, ask, answer = np.unique(np.stack([filters.spend(filters.cap), filters.ask, filters.answer]), axis=1)
    room = np.full(len(start), np.inf)
    for one_cap, one_ask, one_answer in zip(cap, ask, answer, strict=True):
        left = one_cap - end * one_ask
        # Where an answer costs nothing, what is left only has to be there.
        room = np.minimum(
            room, left / one_answer if one_answer > 0 else np.where(left >= -1e-9 * one_ask, np.inf, -np.inf)
        )
    most = np.floor(room) - (end - start)
    fits = scipy.special.bdtr(np.clip(most, 0, start), start, rate)
    return np.where(most < 0, 0.0, np.where(most >= start, 1.0, fits))
