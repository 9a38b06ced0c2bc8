"""What a study with given noise is expected to release, for votes that teachers might cast.

Every prediction is for a real Study, made as in a run, so what it affords is exact: worst case, with the same weights,
orders, caps and filters. Queries are assumed independent, so the number answered of n asked is binomial. Votes enter
only through a public assumption: an assumed accuracy, or public pilot votes.

Queries differ in how hard they are. Given a query, teachers vote independently, right with probability p; p varies over
queries as Beta(k m, k (1 - m)), so that right votes are beta-binomial: m is the teachers' mean accuracy, and the
concentration k says how similar queries are in difficulty (k -> 0: all teachers are right or all are wrong; k ->
infinity: binomial). Wrong votes go to the other classes in shares drawn for each query from a Dirichlet distribution
whose parameters add up to RIVALRY for any number of classes: a hard query mostly has one rival. All teachers are
assumed equally good, so votes are assigned to parties at random. k is the weak point of any plan
(docs/how-to/choose-noise.md); public pilot votes do not need it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import scipy
from jaxtyping import Float64, Int64, Integer
from numpy import ndarray

from protocols.budgets.accountant import ExactComposition, LabelOnly
from protocols.budgets.filter import BudgetFilter
from protocols.budgets.planned import Budgets
from protocols.crypto.randomness import simulation_rng
from protocols.errors import InvalidInput
from protocols.labelling.stored_votes import CastVotes, StoredVotes, VoteCounts
from protocols.mechanisms import MECHANISMS, GaussianMechanism, Mechanism
from protocols.mechanisms.decision import Decision
from protocols.mechanisms.parameter import Parameter
from protocols.study.study import Study
from protocols.study.usual_noise import scaled_mechanism
from protocols.votes import ABSTAIN, count_votes, plurality
from simulations.planning.objective import Objective
from simulations.setup.experiment import Experiment, experiment_budgets, make_study

RIVALRY = 1.0

# The seed of planned votes is public and fixed: a plan depends only on its arguments.
_SEED = 0
# Trapezoids over the noise of the true class, in standard deviations; the neglected tails have mass 1e-16. The rule
# converges geometrically on such smooth integrands: with a step of 0.35 the error is below 1e-6.
_NODES = np.arange(-24, 25) * 0.35
_MASS = np.exp(-(_NODES**2) / 2) * (0.35 / np.sqrt(2 * np.pi))
# Where only noise above some value counts: finer, as the integrals' ends lie anywhere between two nodes.
_STEP = 0.15
_FINE = np.arange(-57, 58) * _STEP
_CHUNK = 2_000_000


@dataclass(frozen=True, kw_only=True)
class AssumedVotes:
    """Votes of teachers with an assumed mean accuracy; see the module's docstring.

    accuracy: above 1/classes, at most 1, the mean over teachers and queries; concentration: in [0.01, 1e6].
    Raises InvalidInput.
    """

    classes: int
    accuracy: float
    concentration: float

    def __post_init__(self) -> None:
        if self.classes < 2:
            raise InvalidInput(f"classes is {self.classes}; allowed: at least 2")
        if not 1 / self.classes < self.accuracy <= 1:
            raise InvalidInput(f"accuracy is {self.accuracy:g}; allowed: above chance, 1/{self.classes}, and at most 1")
        if not 0.01 <= self.concentration <= 1e6:
            raise InvalidInput(f"concentration is {self.concentration:g}; allowed: from 0.01 to 1e6")

    @property
    def statement(self) -> str:
        """Where the votes come from, in words."""
        return f"assumed teacher accuracy {self.accuracy:g}, concentration {self.concentration:g}"

    def shares(self, queries: int) -> Float64[ndarray, "queries classes"]:
        """For each query the probability that a vote is for each class; the true class is 0. Stratified by
        difficulty.
        """
        middle = (np.arange(queries) + 0.5) / queries
        a, b = self.concentration * self.accuracy, self.concentration * (1 - self.accuracy)
        right = np.ones(queries) if self.accuracy == 1 else scipy.special.betaincinv(a, b, middle)
        rng = simulation_rng(_SEED, "planned shares")
        wrong = rng.dirichlet(np.full(self.classes - 1, RIVALRY / (self.classes - 1)), size=queries)
        shares = np.column_stack([right, (1 - right)[:, None] * wrong])
        return shares / shares.sum(axis=1, keepdims=True)

    def cast(self, *, parties: int, teachers: int, queries: int) -> tuple[CastVotes, Int64[ndarray, " queries"]]:
        """Votes of `parties`, `teachers` each, on `queries` queries in random order, and the true classes, all 0."""
        rng = simulation_rng(_SEED, "planned votes")
        shares = rng.permutation(self.shares(queries))
        counts = rng.multinomial(parties * teachers, shares)
        return _dealt(counts, parties=parties, teachers=teachers, rng=rng), np.zeros(queries, dtype=np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class PilotVotes:
    """Votes of teachers trained on public data, on public queries: no privacy is at stake, so they may guide the noise.

    counts: unweighted votes per class; voters: how many could vote, the others abstained. truth None: the plurality of
    the votes is taken as the truth, and accuracies mean agreement with it. Raises InvalidInput.
    """

    counts: Int64[ndarray, "queries classes"]
    voters: int
    truth: Int64[ndarray, " labels"] | None

    @classmethod
    def of(cls, stored: StoredVotes, truth: Int64[ndarray, " labels"] | None) -> PilotVotes:
        """Pilot votes from stored ones: class ids or counts."""
        counts = stored.histogram().astype(np.int64)
        if isinstance(stored, VoteCounts):
            voters = int(counts.sum(axis=1).max())
        else:
            voters = stored.votes.shape[0] * stored.votes.shape[1]
        return cls(counts=counts, voters=voters, truth=truth)

    def __post_init__(self) -> None:
        if not (self.counts.sum(axis=1) >= 1).all():
            row = int((self.counts.sum(axis=1) < 1).argmax())
            raise InvalidInput(f"pilot query {row} has no vote; allowed: at least one vote per query")
        if self.truth is not None and len(self.truth) != len(self.counts):
            raise InvalidInput(f"{len(self.truth)} labels for {len(self.counts)} pilot queries; allowed: one each")

    @property
    def classes(self) -> int:
        """The number of classes voted on."""
        return self.counts.shape[1]

    @property
    def labels(self) -> Int64[ndarray, " queries"]:
        """The class that counts as right for each query."""
        return plurality(self.counts.astype(np.float64)) if self.truth is None else self.truth

    @property
    def _leads(self) -> Int64[ndarray, " queries"]:
        """By how many votes the true class leads the strongest other class."""
        row = np.arange(len(self.counts))
        others = self.counts.copy()
        others[row, self.labels] = -1
        return self.counts[row, self.labels] - others.max(axis=1)

    @property
    def accuracy(self) -> float:
        """The share of all votes that are right: the mean accuracy of the teachers."""
        right = self.counts[np.arange(len(self.counts)), self.labels]
        return float(right.sum() / self.counts.sum())

    @property
    def statement(self) -> str:
        """Where the votes come from, in words."""
        against = "the plurality of these votes" if self.truth is None else "their true labels"
        return (
            f"{len(self.counts)} public pilot queries of {self.voters} voters, "
            f"mean accuracy {self.accuracy:.3g} against {against}"
        )

    def cast(self, *, parties: int, teachers: int, queries: int) -> tuple[CastVotes, Int64[ndarray, " queries"]]:
        """Votes of `parties`, `teachers` each, on at most `queries` of the pilot's queries, and the true classes.

        For at most as many voters as the pilot has, a random choice of its votes. For more, votes drawn from its
        shares, which makes queries look more different than they are, by the pilot's own sampling error.
        """
        rng = simulation_rng(_SEED, "planned votes")
        size = min(queries, len(self.counts))
        # Evenly spaced in the order of the leads, so that a few represent all.
        every = np.argsort(self._leads, kind="stable")[((np.arange(size) + 0.5) * len(self.counts) / size).astype(int)]
        chosen = rng.permutation(every)
        counts, voters = self.counts[chosen], parties * teachers
        if voters > self.voters:
            silent = self.voters - counts.sum(axis=1, keepdims=True)
            shares = np.column_stack([counts, silent]) / self.voters
            counts = rng.multinomial(voters, shares)[:, :-1]
        elif voters < self.voters:
            drawn = _dealt(counts, parties=self.voters, teachers=1, rng=rng).votes
            counts = count_votes(drawn[:voters], np.ones(voters), classes=self.classes).astype(np.int64)
        return _dealt(counts, parties=parties, teachers=teachers, rng=rng), self.labels[chosen]


PlannedVotes = AssumedVotes | PilotVotes


@dataclass(frozen=True, eq=False)
class PlannedHistograms:
    """Weighted histograms of planned queries, reduced to what the mechanism's law depends on. All in votes.

    top: the largest count; right: the true class's; others: positive counts of the other classes, padded with -inf;
    empty: how many other classes have no vote.
    """

    top: Float64[ndarray, " queries"]
    right: Float64[ndarray, " queries"]
    others: Float64[ndarray, "queries rivals"]
    empty: Int64[ndarray, " queries"]
    _known: dict[float, Float64[ndarray, " queries"]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, counts: Float64[ndarray, "queries classes"], truth: Int64[ndarray, " queries"]) -> PlannedHistograms:
        """The histograms of weighted counts, given the true classes."""
        row = np.arange(len(truth))
        rest = counts.copy()
        rest[row, truth] = 0.0
        filled = (rest > 0).sum(axis=1)
        rest = np.sort(rest, axis=1)[:, ::-1][:, : max(1, int(filled.max()))]
        padded = np.where(rest > 0, rest, -np.inf)
        return cls(counts.max(axis=1), counts[row, truth], padded, counts.shape[1] - 1 - filled)

    def outcomes(
        self, decision: Decision, thresholds: Float64[ndarray, " thresholds"]
    ) -> tuple[Float64[ndarray, "thresholds queries"], Float64[ndarray, "thresholds queries"]]:
        """P(an answer) and P(the true class is the answer) for every threshold in the place of the decision's."""
        if decision.one_draw:
            return self._reach(decision.sigma, thresholds), self._right_and_reaches(decision.sigma, thresholds)
        passes = np.ones((len(thresholds), len(self.top)))
        if decision.sigma_threshold is not None:
            # P(max(n) + N(0, sigma1^2) >= T) = Phi((max(n) - T)/sigma1) (Papernot et al. 2018, Algorithm 1).
            passes = scipy.special.ndtr((self.top - thresholds[:, None]) / decision.sigma_threshold)
        return passes, passes * self.correct(decision.sigma)

    def correct(self, sigma: float) -> Float64[ndarray, " queries"]:
        """P(argmax(n + N(0, sigma^2 I)) is the true class), by quadrature over the true class's noise z:

        the integral of phi(z) prod_j Phi(z + (n_true - n_j)/sigma) dz.
        """
        if sigma not in self._known:
            found = [_MASS @ won for won in self._won(sigma, _NODES)]
            self._known[sigma] = np.minimum(np.concatenate(found), 1.0)
        return self._known[sigma]

    def _reach(
        self, sigma: float, thresholds: Float64[ndarray, " thresholds"]
    ) -> Float64[ndarray, "thresholds queries"]:
        """P(max(n + N(0, sigma^2 I)) >= T) = 1 - prod_c Phi((T - n_c)/sigma)."""
        missed = np.empty((len(thresholds), len(self.right)))
        counts, place = self._rivals
        for row, needed in zip(missed, thresholds.tolist(), strict=True):
            rivals = scipy.special.log_ndtr((needed - counts) / sigma)[place].sum(axis=1)
            row[:] = rivals + scipy.special.log_ndtr((needed - self.right) / sigma)
            row += self.empty * scipy.special.log_ndtr(needed / sigma)
        return -np.expm1(missed)

    def _right_and_reaches(
        self, sigma: float, thresholds: Float64[ndarray, " thresholds"]
    ) -> Float64[ndarray, "thresholds queries"]:
        """P(the true class has the largest noisy count, and it is >= T): the integral of `correct` over
        z >= (T - n_true)/sigma.

        Tails at the nodes by the trapezoid rule with its end correction (Euler-Maclaurin), and between them by cubic
        Hermite interpolation, as their derivative is known: the error is below 1e-5.
        """
        found, start = np.empty((len(thresholds), len(self.right))), 0
        for won in self._won(sigma, _FINE):
            part = slice(start, start + won.shape[1])
            start += won.shape[1]
            density = np.pad(won * (np.exp(-(_FINE**2) / 2) / np.sqrt(2 * np.pi))[:, None], ((2, 2), (0, 0)))
            slope = (8 * (density[3:-1] - density[1:-3]) - (density[4:] - density[:-4])) / (12 * _STEP)
            density = density[2:-2]
            tail = _STEP * (density[::-1].cumsum(axis=0)[::-1] - density / 2) + _STEP**2 / 12 * slope
            place = np.clip(((thresholds[:, None] - self.right[part]) / sigma - _FINE[0]) / _STEP, 0, len(_FINE) - 1)
            node = np.minimum(place.astype(np.int64), len(_FINE) - 2)
            u, query = place - node, np.arange(won.shape[1])
            found[:, part] = (1 + 2 * u) * (1 - u) ** 2 * tail[node, query] + u**2 * (3 - 2 * u) * tail[node + 1, query]
            found[:, part] -= _STEP * u * (1 - u) * ((1 - u) * density[node, query] - u * density[node + 1, query])
        return np.clip(found, 0.0, 1.0)

    def _won(self, sigma: float, nodes: Float64[ndarray, " nodes"]) -> Iterator[Float64[ndarray, "nodes some"]]:
        """P(all others lie below) given the true class's noise, at each node; queries in chunks."""
        leads, place = self._leads
        step = max(1, _CHUNK // (len(nodes) * (self.others.shape[1] + 1)))
        beaten = None
        if len(leads) * len(nodes) <= _CHUNK:
            beaten = scipy.special.ndtr((leads / sigma)[:, None] + nodes)
        for start in range(0, len(self.right), step):
            part = slice(start, start + step)
            if beaten is None:
                ahead = (self.right[part, None] - self.others[part]) / sigma
                beats = np.prod(scipy.special.ndtr(nodes[:, None, None] + ahead), axis=2)
            else:
                first, *rest = place[part].T
                beats = beaten[first].T
                for rival in rest:
                    beats *= beaten[rival].T
            alone = scipy.special.ndtr(nodes[:, None] + self.right[part] / sigma)
            yield beats * alone ** self.empty[part]

    # Counts are sums of few distinct weights, so few values recur in all queries, and each is looked up once.

    @cached_property
    def _rivals(self) -> tuple[Float64[ndarray, " distinct"], Int64[ndarray, "queries rivals"]]:
        """The distinct counts of other classes, and the place of each."""
        return _distinct(self.others)

    @cached_property
    def _leads(self) -> tuple[Float64[ndarray, " distinct"], Int64[ndarray, "queries rivals"]]:
        """The distinct leads of the true class over another, and the place of each."""
        return _distinct(self.right[:, None] - self.others)


def _distinct(
    values: Float64[ndarray, "queries rivals"],
) -> tuple[Float64[ndarray, " distinct"], Int64[ndarray, "queries rivals"]]:
    found, place = np.unique(values, return_inverse=True)
    return found, place.reshape(values.shape)


def weighted_counts(stored: CastVotes, weights: Float64[ndarray, " parties"]) -> Float64[ndarray, "queries classes"]:
    """Histograms of stored votes, with these weights per vote of each party.

    Counts of parties of equal weight are kept, so that other weights of the same groups cost little.
    """
    distinct, member = np.unique(weights, return_inverse=True)
    groups = stored.group_counts(member, len(distinct))
    if groups is not None:
        return (distinct @ groups).reshape(stored.queries, stored.classes)
    return count_votes(stored.votes, weights, classes=stored.classes)


def _dealt(
    counts: Integer[ndarray, "queries classes"], *, parties: int, teachers: int, rng: np.random.Generator
) -> CastVotes:
    """Votes as class ids, in random order of the voters for each query; ABSTAIN where there are too few."""
    queries, classes = counts.shape
    voters = parties * teachers
    ids = np.full((queries, voters), ABSTAIN, dtype=np.int16)
    filled = np.arange(voters) < counts.sum(axis=1)[:, None]
    ids[filled] = np.repeat(np.tile(np.arange(classes, dtype=np.int16), queries), counts.ravel())
    return CastVotes(classes, rng.permuted(ids, axis=1).T.reshape(parties, teachers, queries))


# Planned queries, fewer where there are many voters.
BANK, _LEAST_BANK, _BANK_VOTES = 2000, 200, 2_000_000
# The budgets outlast the pool with at most this probability.
_POOL_RISK = 0.001
# Weighted histograms that are kept.
_KEPT = 32


@dataclass(frozen=True)
class PlannedNoise:
    """The chosen value of every parameter that is planned, by name, in votes; in the order of `planned_parameters`."""

    values: tuple[tuple[str, float], ...]

    @classmethod
    def of(cls, **values: float) -> PlannedNoise:
        """Exactly these values."""
        return cls(tuple(values.items()))

    @classmethod
    def rounded(cls, kind: type[Mechanism], values: Iterable[float]) -> PlannedNoise:
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

    noise: PlannedNoise
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
    _known: dict[tuple[PlannedNoise, int, bool], Prediction] = field(default_factory=dict, repr=False)
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
        settings = self.settings.changed(mechanism=name)
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

    def usual_noise(self) -> PlannedNoise:
        """The noise and threshold of a run that is given none; where no budget affords them, as if they were."""
        try:
            made = make_study(self.settings, self.budgets, classes=self.votes.classes, queries=self.pool).mechanism
        except InvalidInput:
            made = scaled_mechanism(
                self.settings.mechanism, {}, view="label", classes=self.votes.classes, votes=self.total
            )
        return PlannedNoise.rounded(self.kind, (made.values[name] for name in planned_parameters(self.kind)))

    def decision(self, noise: PlannedNoise) -> Decision:
        """How a query is decided with this noise."""
        made = self.kind.build(view="label", given=dict(noise.values))
        if not isinstance(made, GaussianMechanism):
            raise InvalidInput(f"{made.name} is not planned; allowed: a mechanism with Gaussian noise and a threshold")
        return made.decision(second_round=False)

    def study(
        self, noise: PlannedNoise, *, queries: int, answer_rate: float | None = None, guide: bool = False
    ) -> Study:
        """The study that a run with these settings makes; answer_rate None: as predicted for this noise.

        guide: with Renyi DP in place of exact composition, which takes a second for each noise and affords about a
        seventh more at any.
        """
        if "answer_rate" in self.settings.given:
            answer_rate = self.settings.answer_rate
        elif answer_rate is None:
            even, decision = self.histograms(np.ones(len(self.budgets.names))), self.decision(noise)
            passes, _ = even.outcomes(decision, _threshold(decision))
            answer_rate = max(0.01, round(float(passes.mean()), 2))
        settings = self.settings.changed(**{**dict(noise.values), "answer_rate": answer_rate})
        if guide and settings.accountant in (None, ExactComposition.name):
            settings = settings.changed(accountant=LabelOnly.name)
        return make_study(settings, self.budgets, classes=self.votes.classes, queries=queries)

    def predict(self, noise: PlannedNoise, *, queries: int | None = None, guide: bool = False) -> Prediction:
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

    def _predicted(self, noise: PlannedNoise, pool: int, *, guide: bool) -> Prediction:
        study = self.study(noise, queries=pool, guide=guide)
        filters, seen, decision = (
            study.budgets,
            self.histograms(study.weights),
            study.gaussian.decision(second_round=False),
        )
        passes, right = seen.outcomes(decision, _threshold(decision))
        rate = float(passes.mean())
        accuracy = min(1.0, float(right.sum() / max(passes.sum(), 1e-300)))
        asked = float(asked_more_than(filters, rate=rate, pool=pool).sum())
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

    def enough(self, noise: PlannedNoise) -> int:
        """The smallest pool that is exhausted before the budgets with probability at most 1 %; the largest pool if none
        is.
        """
        answered = self.predict(noise)
        if answered.asked <= 0:
            return 1
        rate = answered.answered / answered.asked
        more = asked_more_than(self.study(noise, queries=self.pool).budgets, rate=rate, pool=self.pool)
        return max(1, int((more > _POOL_RISK).sum()))


def _threshold(decision: Decision) -> Float64[ndarray, "1"]:
    """The decision's own threshold, as `outcomes` takes thresholds; a mechanism without one passes every query."""
    return np.array([-np.inf if decision.threshold is None else decision.threshold])


def asked_more_than(filters: BudgetFilter, *, rate: float, pool: int) -> Float64[ndarray, " queries"]:
    """P(more than n queries are asked), n = 0, 1, 2, ... below the pool, when each is answered at `rate`.

    One more is asked if its worst case, answered, still fits every budget. With k of n answered so far, it fits if
    k + 1 <= room(n + 1), where room(n) is the minimum over parties of floor((cap - n ask)/answer). As room falls and k
    does not, one that fits implies that all earlier ones did: the probability follows from k ~ Binomial(n, rate) alone,
    without approximation. Batches of any size shrink to what fits (schedule.next_batch), so their law is the same.
    Where an answer costs nothing more than asking, how many are asked is certain.
    """
    start = np.arange(pool)
    cap, ask, answer = np.unique(np.stack([filters.spend(filters.cap), filters.ask, filters.answer]), axis=1)
    room = np.full(pool, np.inf)
    for one_cap, one_ask, one_answer in zip(cap, ask, answer, strict=True):
        left = one_cap - (start + 1) * one_ask
        # Where an answer costs nothing, what is left only has to be there.
        room = np.minimum(
            room, left / one_answer if one_answer > 0 else np.where(left >= -1e-9 * one_ask, np.inf, -np.inf)
        )
    most = np.floor(room) - 1
    fits = scipy.special.bdtr(np.clip(most, 0, start), start, rate)
    return np.where(most < 0, 0.0, np.where(most >= start, 1.0, fits))
