"""Studies as they run, held against the exact law of what they release: parties, ballots, servers, and all noise.

Each line is one mechanism at one level of confidentiality: party objects with ledgers, the level's own ballots and
servers in this process, and a coordinator (`live_labelling`). Parties differ in weight and some abstain, so that the
labels' law depends on every step from a vote to a label: what a party or server does wrong with votes, weights, shares
of noise or seeds changes it. At a level that shows the noisy sums their noise is tested, too.

The law of a label of integer noise is summed over all noise of one class; no formula of a mechanism's is used. Noise is
given by its probabilities on whole lattice units, so sums of several servers' or parties' noise are as exact as a
single discrete Gaussian (Canonne, Kamath, Steinke 2020, Definition 1).

A study that its budgets end: how many queries it answers, held against a count that uses none of the filter's code. The
price of a query is the exact divergence of its worst pair, found by search, and the cap is the conversion's formula or
an equation solved for mu.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from math import log, sqrt
from typing import Any  # Any: a function of any signature is kept

import numpy as np
import scipy
from jaxtyping import Float64, Int64
from numpy import ndarray

from party.party import Voter
from protocols import noise
from protocols.budgets.accountant import accountant, default_accountant
from protocols.budgets.filter import NANO, BudgetFilter
from protocols.levels.simulated import simulated_level
from protocols.levels.two_server import noise_pool
from protocols.mechanisms import MECHANISMS, GNMax, Mechanism, View
from protocols.noise import Noise
from protocols.ranges import LARGEST_CAP
from protocols.study.levels import LEVELS
from protocols.study.queries import QueryBatch
from protocols.study.study import Seat, Study
from protocols.study.votes import TeacherVotes
from protocols.votes import ABSTAIN
from simulations.audit.breaks import Function, RunBreak, broken_code, swapped
from simulations.audit.laws import (
    Agreement,
    Answers,
    Evidence,
    agreement,
    answers_evidence,
    low_bits_evidence,
    whole_noise_evidence,
)
from simulations.stages.label import live_labelling

# Discrete Gaussians are cut off where their probability is below rounding.
_REACH = 13.0


@dataclass(frozen=True, eq=False)
class IntegerNoise:
    """Probabilities of -reach, ..., reach lattice units."""

    masses: Float64[ndarray, " values"]

    @property
    def reach(self) -> int:
        """The largest value, in lattice units."""
        return (len(self.masses) - 1) // 2

    @cached_property
    def below(self) -> Float64[ndarray, " values"]:
        """P[noise <= value] of each value."""
        return np.minimum(np.cumsum(self.masses), 1.0)

    def at_most(self, values: Int64[ndarray, "..."]) -> Float64[ndarray, "..."]:
        """P[noise <= values]."""
        padded = np.concatenate([[0.0], self.below, [1.0]])
        return padded[np.clip(values + self.reach + 1, 0, len(padded) - 1)]


@lru_cache(maxsize=32)
def noise_of_sources(sigma_units: float, *, sources: int) -> IntegerNoise:
    """The sum of so many independent discrete Gaussians of this sigma."""
    reach = int(np.ceil(_REACH * sigma_units))
    one = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma_units**2))
    values = sources * 2 * reach + 1
    length = scipy.fft.next_fast_len(values, real=True)
    # In the Fourier domain, where a sum is a product: wrong by some 1e-16 of a probability, be it of a rare value.
    total = scipy.fft.irfft(scipy.fft.rfft(one / one.sum(), length) ** sources, length)[:values]
    return IntegerNoise(np.maximum(total, 0.0))


def integer_laws(
    counts: Int64[ndarray, "queries classes"],
    label: IntegerNoise,
    *,
    threshold: int | None,
    threshold_noise: IntegerNoise | None,
) -> Float64[ndarray, "queries outcomes"]:
    """The law over the classes and, last, no answer. counts, threshold: in lattice units.

    Ties go to the first class. threshold_noise: of a test of its own; None: the noisy maximum itself must reach it.
    """
    queries, classes = counts.shape
    values = np.arange(-label.reach, label.reach + 1)
    laws = np.zeros((queries, classes + 1))
    for own in range(classes):
        noisy = counts[:, own, None] + values
        won = np.broadcast_to(label.masses, noisy.shape)
        for other in range(classes):
            if other != own:
                # Of two equal noisy counts the first class wins.
                won = won * label.at_most(noisy - counts[:, other, None] - (other < own))
        if threshold is not None and threshold_noise is None:
            won = won * (noisy >= threshold)
        laws[:, own] = won.sum(axis=1)
    if threshold is not None and threshold_noise is not None:
        laws *= 1 - threshold_noise.at_most(threshold - 1 - counts.max(axis=1))[:, None]
    if threshold is not None:
        laws[:, -1] = np.clip(1 - laws[:, :-1].sum(axis=1), 0.0, 1.0)
    return laws


_UNITS = 64
# Odd multiples of a lattice unit, so that a vote shows in the lowest bit.
WEIGHTS = np.array([63, 65, 129, 33, 97, 191]) / _UNITS
_CLASSES = 3
_KINDS = 24
_REPEATED = 20
# Noise and thresholds, in votes: leads lie between none and five standard deviations, and maxima around the threshold.
_SIGMA, _SIGMA_THRESHOLD, _THRESHOLD = 1.5, 2.0, 4.0
# Named in the study, but see UnendingStudy.
_EPSILON, _DELTA = 1.0, 1e-5


@dataclass(frozen=True)
class AuditedRun:
    """One level as it runs. share: queries asked per trial of the audit: what is slow is asked less."""

    words: str
    level: str
    view: View
    units: int | None
    share: float
    colluders: int | None = None


RUNS = (
    AuditedRun("clear, real-valued noise", "clear", "label", None, 0.15),
    AuditedRun("clear, integer noise", "clear", "label", _UNITS, 0.15),
    AuditedRun("secure_sum, shares of noise", "secure_sum", "histogram", _UNITS, 0.1, colluders=1),
    AuditedRun("two_server, both servers", "two_server", "label", _UNITS, 0.05),
)


@dataclass(frozen=True, kw_only=True)
class SeenGNMax(GNMax):
    """GNMax that keeps the noisy histograms that it is handed, as whoever opens a sum sees them."""

    seen: list[Float64[ndarray, "queries classes"]] = field(default_factory=list, compare=False, repr=False)
    # The noisy counts are those of GNMax, and so are their bounds.
    noise_rdp = GNMax.noise_rdp
    gaussian_dp = GNMax.gaussian_dp

    def noisy(
        self, counts: Float64[ndarray, "queries classes"], noise: Noise, *, view: View
    ) -> Float64[ndarray, "queries classes"]:
        shown = super().noisy(counts, noise, view=view)
        self.seen.append(shown)
        return shown


def audited_runs(mechanisms: tuple[str, ...]) -> list[tuple[AuditedRun, type[Mechanism]]]:
    """The levels at which each of these mechanisms can be run: not if it has a second round, for which a student is
    trained."""
    lines = []
    for run in RUNS:
        for name in mechanisms:
            kind = MECHANISMS[name]
            whole = run.units is not None
            if kind.interactive or not LEVELS[run.level].takes(kind):
                continue
            if kind.holding(view=run.view, on_lattice=whole, secret_coins=False):
                lines.append((run, kind))
    return lines


class UnendingStudy(Study):
    """A study that no budget ends: what its queries would cost is not what is asked of it here."""

    @cached_property
    def budgets(self) -> BudgetFilter:
        """One nano-unit a query, and caps that it never reaches."""
        each = np.ones(len(self.roster))
        return BudgetFilter(
            accountant=accountant(self.accountant_name),
            epsilon=_EPSILON * each,
            delta=_DELTA * each,
            order=2 * each,
            cap=np.full(len(each), LARGEST_CAP),
            ask=each / NANO,
            answer=0 * each,
        )


def audited_mechanism(kind: type[Mechanism], run: AuditedRun) -> Mechanism:
    """A mechanism of that kind for these votes, with parameters of the same roles for one that is not known here."""
    if kind is GNMax and run.view == "histogram":
        return SeenGNMax(sigma=_SIGMA)
    given: dict[str, int | float | None] = {}
    for name, each in kind.parameters(view=run.view).items():
        if each.role == "noise":
            given[name] = each.wider(1.0, _SIGMA_THRESHOLD if name == "sigma_threshold" else _SIGMA)
        else:
            given[name] = _THRESHOLD if each.role == "threshold" else each.default or 1.0
    return kind.build(view=run.view, given=given)


def audited_study(mechanism: Mechanism, run: AuditedRun, *, queries: int) -> Study:
    """The study of six parties that asks so many queries."""
    seats = len(WEIGHTS)
    return UnendingStudy(
        name="audit",
        classes=_CLASSES,
        votes=TeacherVotes(
            mechanism=mechanism,
            view=run.view,
            teachers=1,
            query_limit=queries,
            batch_limit=min(queries, 2 * _KINDS * _REPEATED),
            answer_rate=1.0,
            stop="first-exhausted",
            participation_name="all",
        ),
        unit="record",
        accountant_name=default_accountant(mechanism, run.view, secret_coins=False).name,
        # Where parties add the noise, one may drop out and one collude.
        quorum=seats - (run.colluders or 0),
        confidentiality=simulated_level(run.level, units=run.units, colluders=run.colluders, seats=seats),
        roster=tuple(
            Seat(party=f"party {at}", epsilon=_EPSILON, delta=_DELTA, weight=weight, rate=1.0)
            for at, weight in enumerate(WEIGHTS.tolist())
        ),
    )


@dataclass(frozen=True, eq=False)
class _Asked:
    """votes: class ids or ABSTAIN of one period of queries, which recurs; kinds: queries of the same votes."""

    votes: Int64[ndarray, "parties queries"]
    kinds: Int64[ndarray, " queries"]


def asked_votes(*, seed: int) -> _Asked:
    """Every kind of votes twice, in two orders; -1 abstains."""
    rng = np.random.default_rng((seed, 1))
    kinds = rng.integers(-1, _CLASSES, (len(WEIGHTS), _KINDS))
    # Agreement, near agreement, and nobody but one.
    kinds[:, 0], kinds[:, 1] = 2, np.array([1, 1, 1, 1, 1, 0])
    kinds[:, 2], kinds[:, 3] = np.array([-1, -1, -1, -1, -1, 2]), np.array([0, 0, 0, -1, -1, 1])
    order = np.concatenate([np.arange(_KINDS), rng.permutation(_KINDS)])
    return _Asked(kinds[:, order], order)


def stated_counts(asked: _Asked) -> Float64[ndarray, "queries classes"]:
    """The weighted histograms that the votes make, in votes."""
    counts = np.zeros((asked.votes.shape[1], _CLASSES))
    for votes, weight in zip(asked.votes, WEIGHTS.tolist(), strict=True):
        for each in range(_CLASSES):
            counts[:, each] += weight * (votes == each)
    return counts


def stated_noise(study: Study, sigma: float) -> IntegerNoise:
    """The law of the integer noise on one count: of all shares, of both servers, or of the coordinator alone."""
    factor, seats = study.confidentiality.noise_factor(quorum=study.quorum, voted=len(study.roster)), len(study.roster)
    sources = study.confidentiality.noise_sources(seats)
    return noise_of_sources(sigma * study.units * factor / np.sqrt(sources), sources=sources)


def stated_laws(study: Study, asked: _Asked) -> Float64[ndarray, "queries outcomes"]:
    """The exact law of each query's answer: the mechanism's own for real-valued noise, by enumeration for integers."""
    counts, mechanism = stated_counts(asked), study.mechanism
    if study.lattice is None:
        laws = np.exp(mechanism.outcome_log_law(counts, np.ones(_CLASSES, dtype=np.int64)))
        return laws if laws.shape[1] > _CLASSES else np.pad(laws, ((0, 0), (0, 1)))
    threshold = study.threshold_units(study.units)
    apart = mechanism.threshold_noise if study.view == "label" else None
    return integer_laws(
        np.rint(counts * study.units).astype(np.int64),
        stated_noise(study, study.gaussian.sigma),
        threshold=threshold,
        threshold_noise=None if apart is None else stated_noise(study, apart),
    )


@dataclass(frozen=True)
class AuditedStudy:
    """One line: a mechanism at a level as it runs, and what was found. queries: how many were asked."""

    run: AuditedRun
    mechanism: str
    queries: int
    law: Agreement

    @property
    def failed(self) -> bool:
        """Whether what was released does not have the stated law."""
        return self.law.failed

    def to_json(self) -> dict[str, object]:
        """The line as JSON values."""
        return {
            "level": self.run.level,
            "seen": self.run.words,
            "mechanism": self.mechanism,
            "queries": self.queries,
            "law": self.law.to_json(),
            "verdict": "FAILED" if self.failed else "passed",
        }


def audit_run(
    run: AuditedRun, kind: type[Mechanism], *, trials: int, alpha: float, seed: int, broken: RunBreak | None
) -> AuditedStudy:
    """Runs one line. trials: of the audit; broken: what of the code, or None. Raises InvalidInput."""
    asked = asked_votes(seed=seed)
    period = asked.votes.shape[1]
    repeats = max(40, round(run.share * trials / period))
    mechanism = audited_mechanism(kind, run)
    study = audited_study(mechanism, run, queries=repeats * period)
    laws = stated_laws(study, asked)
    drawn: dict[float, list[ndarray]] = {}
    with broken_code(broken), _recorded(run, drawn):
        labels = live_labelling(study, _voters(asked), queries=repeats * period, seed=seed).labels
    outcomes = np.where(labels == ABSTAIN, laws.shape[1] - 1, labels).reshape(repeats, period)
    found = answers_evidence(Answers(outcomes, laws, asked.kinds))
    if isinstance(study.mechanism, SeenGNMax):
        found += _opened_noise(study, study.mechanism, asked, seed=seed)
    for sigma, values in drawn.items():
        integers = np.concatenate([each.ravel() for each in values])[:, None].astype(np.int64)
        evidence = low_bits_evidence(integers, noise_of_sources(sigma, sources=1).masses)
        found += [each.named(f"drawn integers of sigma {sigma:g}: {each.family}") for each in evidence]
    return AuditedStudy(run, kind.name, repeats * period, agreement(found, alpha=alpha))


@contextmanager
def _recorded(run: AuditedRun, drawn: dict[float, list[ndarray]]) -> Iterator[None]:
    """Keeps the integers that a level draws, by standard deviation in lattice units, where its sums are not opened."""
    if (run.level, run.units is None) not in _DRAWN:
        yield
        return

    def keeping(right: Function) -> Function:
        def draw(*given: Any, sigma: Any, **more: Any) -> Any:
            found = right(*given, sigma=sigma, **more)
            drawn.setdefault(float(sigma), []).append(found)
            return found

        return draw

    with swapped(*_DRAWN[(run.level, run.units is None)], keeping):
        yield


# What draws integers at a level, without real-valued noise.
_DRAWN = {("clear", False): (noise, "discrete_gaussian"), ("two_server", False): (noise_pool, "inverted")}


def _voters(asked: _Asked) -> Callable[[int], Voter]:
    def voter(position: int) -> Voter:
        def vote(batch: QueryBatch) -> Int64[ndarray, "teachers queries"]:
            return asked.votes[position][None, batch.ids % asked.votes.shape[1]]

        return vote

    return voter


def _opened_noise(study: Study, mechanism: SeenGNMax, asked: _Asked, *, seed: int) -> list[Evidence]:
    """Of the noisy sums that were opened: their noise, spread evenly between the distribution function's steps."""
    period, law = asked.votes.shape[1], stated_noise(study, study.gaussian.sigma)
    opened: Float64[ndarray, "queries classes"] = np.concatenate(mechanism.seen)
    drawn = opened.reshape(-1, period, opened.shape[1]) - stated_counts(asked)
    values = np.rint(drawn * study.units).astype(np.int64)
    found = whole_noise_evidence(values, law.at_most(values - 1), law.at_most(values), law.masses, seed=seed)
    return [each.named(f"opened sums: {each.family}") for each in found]


_BUDGETS, _BUDGET_DELTA, _BUDGET_SIGMA = (1.0, 1.5, 2.0), 1e-5, 80.0
# How much more than the independent count rounding may afford, as a share.
_ROUNDING = 1e-7


@dataclass(frozen=True)
class AuditedBudget:
    """One accountant: the queries that the study answered, and the most that its poorest party affords."""

    mechanism: str
    accountant: str
    view: View
    asked: int
    most: int

    @property
    def failed(self) -> bool:
        """Whether more was answered than the budget affords."""
        return self.asked > self.most

    def to_json(self) -> dict[str, object]:
        """The line as JSON values."""
        verdict = "FAILED" if self.failed else "passed"
        return {"mechanism": self.mechanism, "accountant": self.accountant, "view": self.view, "asked": self.asked,
                "most": self.most, "verdict": verdict}  # fmt: skip


@cache
def audit_budgets(views: tuple[View, ...], *, seed: int, broken: RunBreak | None) -> tuple[AuditedBudget, ...]:
    """Runs a study under each accountant whose price can be counted exactly: two classes, GNMax, batches of one query.

    views: that are audited; broken: what of the code, or None. Raises InvalidInput.
    """
    found = []
    audited: tuple[tuple[str, View], ...] = (
        ("gaussian_dp", "histogram"), ("gaussian", "histogram"), ("label_only", "label")
    )  # fmt: skip
    for name, view in [each for each in audited if each[1] in views]:
        with broken_code(broken):
            study = _study(name, view)
            limit = study.query_limit
            asked = int((live_labelling(study, _voter, queries=limit, seed=seed).batch_of >= 0).sum())
        found.append(AuditedBudget(GNMax.name, name, view, asked, _most(name, float(study.budgets.order[0]))))
    return tuple(found)


def _voter(position: int) -> Voter:
    return lambda batch: np.full((1, len(batch.ids)), position % 2, dtype=np.int64)


def _study(accountant: str, view: View) -> Study:
    return Study(
        name="audit of budgets", classes=2, unit="record", accountant_name=accountant, quorum=len(_BUDGETS),
        votes=TeacherVotes(
            mechanism=GNMax(sigma=_BUDGET_SIGMA), view=view, teachers=1, query_limit=400, batch_limit=1,
            answer_rate=1.0, stop="first-exhausted", participation_name="all",
        ),
        confidentiality=simulated_level("clear", units=None, colluders=None, seats=len(_BUDGETS)),
        roster=tuple(
            Seat(party=f"party {at}", epsilon=epsilon, delta=_BUDGET_DELTA, weight=1.0, rate=1.0)
            for at, epsilon in enumerate(_BUDGETS)
        ),
    )  # fmt: skip


def _most(accountant: str, order: float) -> int:
    """The queries that the least budget affords; order: the filter's, any of which would be valid."""
    epsilon, d = _BUDGETS[0], 1 / _BUDGET_SIGMA
    if accountant == "gaussian_dp":

        def excess(mu: float) -> float:
            lost = np.exp(epsilon + scipy.special.log_ndtr(-epsilon / mu - mu / 2))
            return float(scipy.special.ndtr(-epsilon / mu + mu / 2) - lost) - _BUDGET_DELTA

        return int(scipy.optimize.brentq(excess, 1e-3, 20.0, xtol=1e-14) ** 2 / (2 * d * d) * (1 + _ROUNDING))
    # Canonne, Kamath, Steinke 2020, Prop. 12, solved for the spend.
    cap = epsilon - log((order - 1) / order) + (log(_BUDGET_DELTA) + log(order)) / (order - 1)
    price = order * d * d if accountant == "gaussian" else _bit_divergence(order, sqrt(2) * d)
    return int(cap / price * (1 + _ROUNDING))


def _bit_divergence(order: float, shift: float) -> float:
    """The largest Renyi divergence of "above zero" when a normal variable moves by `shift`, over where it stands."""
    at = np.linspace(-6, 6, 200_001)
    laws = [np.stack([scipy.special.log_ndtr(each), scipy.special.log_ndtr(-each)]) for each in (at, at + shift)]
    each = [
        scipy.special.logsumexp(order * p + (1 - order) * q, axis=0).max() / (order - 1) for p, q in (laws, laws[::-1])
    ]
    return float(max(each))
