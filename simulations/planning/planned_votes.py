"""Votes that teachers might cast, for planning: from an assumed accuracy, or from public pilot votes.

Queries differ in how hard they are. Given a query, teachers vote independently, right with probability p; p varies over
queries as Beta(k m, k (1 - m)), so that right votes are beta-binomial: m is the teachers' mean accuracy, and the
concentration k says how similar queries are in difficulty (k -> 0: all teachers are right or all are wrong; k ->
infinity: binomial). Wrong votes go to the other classes in shares drawn for each query from a Dirichlet distribution
whose parameters add up to RIVALRY for any number of classes: a hard query mostly has one rival.

All teachers are assumed equally good, so votes are assigned to parties at random. k is the weak point of any plan
(docs/how-to/choose-noise.md); public pilot votes do not need it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import scipy
from jaxtyping import Float64, Int64, Integer
from numpy import ndarray

from protocols.crypto.randomness import simulation_rng
from protocols.errors import InvalidInput
from protocols.mechanisms.decision import Decision
from protocols.votes import ABSTAIN, count_votes, plurality
from simulations.stages.stored_votes import CastVotes, StoredVotes, VoteCounts

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
