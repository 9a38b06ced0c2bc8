"""The studies that are audited as they run: their levels, their parties' weights, and votes of many kinds.

Parties differ in weight and some abstain, so that the labels' law depends on every step from a vote to a label.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.budgets.accountant import accountant, default_accountant
from protocols.budgets.filter import NANO, BudgetFilter
from protocols.mechanisms import MECHANISMS, GNMax, Mechanism, View
from protocols.noise import Noise
from protocols.ranges import LARGEST_CAP
from protocols.study.levels import LEVELS
from protocols.study.study import Seat, Study
from protocols.study.votes import TeacherVotes
from simulations.audit.as_run.lattice_law import IntegerNoise, integer_laws, summed_noise
from simulations.audit.as_run.weights import WEIGHTS
from simulations.setup.levels import simulated_level

_UNITS = 64
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


RUNS = (
    AuditedRun("clear, real-valued noise", "clear", "label", None, 0.15),
    AuditedRun("clear, integer noise", "clear", "label", _UNITS, 0.15),
    AuditedRun("secure_sum, shares of noise", "secure_sum", "histogram", _UNITS, 0.1),
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
        quorum=seats - (run.level == "secure_sum"),
        confidentiality=simulated_level(
            run.level, units=run.units, colluders=1 if run.level == "secure_sum" else None, seats=seats
        ),
        roster=tuple(
            Seat(party=f"party {at}", epsilon=_EPSILON, delta=_DELTA, weight=weight, rate=1.0)
            for at, weight in enumerate(WEIGHTS.tolist())
        ),
    )


@dataclass(frozen=True, eq=False)
class Asked:
    """votes: class ids or ABSTAIN of one period of queries, which recurs; kinds: queries of the same votes."""

    votes: Int64[ndarray, "parties queries"]
    kinds: Int64[ndarray, " queries"]


def asked_votes(*, seed: int) -> Asked:
    """Every kind of votes twice, in two orders; -1 abstains."""
    rng = np.random.default_rng((seed, 1))
    kinds = rng.integers(-1, _CLASSES, (len(WEIGHTS), _KINDS))
    # Agreement, near agreement, and nobody but one.
    kinds[:, 0], kinds[:, 1] = 2, np.array([1, 1, 1, 1, 1, 0])
    kinds[:, 2], kinds[:, 3] = np.array([-1, -1, -1, -1, -1, 2]), np.array([0, 0, 0, -1, -1, 1])
    order = np.concatenate([np.arange(_KINDS), rng.permutation(_KINDS)])
    return Asked(kinds[:, order], order)


def stated_counts(asked: Asked) -> Float64[ndarray, "queries classes"]:
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
    return summed_noise(sigma * study.units * factor / np.sqrt(sources), sources=sources)


def stated_laws(study: Study, asked: Asked) -> Float64[ndarray, "queries outcomes"]:
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
