"""Teachers' votes on several findings in an audit: each way, from what a teacher says of a record to what is released.

One unit's teacher says another set of findings of every query. The counts are made by the code that a party runs, so a
fault of clipping or of expansion into rows shows, as does one of the noise. All others' counts are such that the unit's
vote decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.bounds.gaussian import gdp_epsilon
from protocols.budgets.accountant import default_accountant
from protocols.errors import InvalidInput
from protocols.mechanisms import GNMax, Mechanism, TauVoting, View
from protocols.mechanisms.tau import findings_of, worst_moves
from protocols.noise import StandardNormal, cryptographic, simulated
from protocols.plural import counted
from protocols.study.several_findings import WAYS, Binary, OnFindings, Powerset, Tau
from protocols.study.votes import TeacherVotes
from protocols.votes import LATTICE
from simulations.audit.bounds import Samples, composed_epsilon
from simulations.audit.breaks import FindingBreak, breaks_of
from simulations.audit.laws import Agreement, Answers, agreement, answers_evidence, seen_noise_evidence
from simulations.audit.settings import Advance, AuditSettings, Kind, Line, Pair, Prepared, check_between
from simulations.audit.targets import Target, claim_of, noise_scales

# With more, sequences of released sets are too many to enumerate.
_MOST_FINDINGS, _MOST_QUERIES = 4, 16
# Of tau voting: two disjoint sets of any size move most.
_TAU = 1.0
# How far others' counts lie above zero, in noise scales.
_BASE = 100.0
_CHUNK = 150_000
_HONEST = FindingBreak("nothing is broken")
_Counts = Float64[ndarray, "rows classes"]


@dataclass(frozen=True, kw_only=True)
class AuditedFindings(Kind):
    """Terms of votes on findings. ways: of WAYS; queries, weight, sigma: see AuditedMechanisms; findings: 2 to 4."""

    ways: tuple[str, ...]
    views: tuple[View, ...]
    queries: int
    findings: int
    weight: float
    sigma: float
    votes_by: ClassVar[str] = TeacherVotes.by

    @property
    def breaks(self) -> tuple[str, ...]:
        return tuple(breaks_of(FindingBreak))

    def check(self, settings: AuditSettings) -> None:
        if unknown := [each for each in self.ways if each not in WAYS]:
            raise InvalidInput(f"findings_by is {unknown[0]!r}; allowed: {', '.join(WAYS)}")
        check_between("queries", self.queries, 1, _MOST_QUERIES)
        check_between("findings", self.findings, 2, _MOST_FINDINGS)
        check_between("weight", self.weight, 1e-3, 1e4)
        check_between("sigma", self.sigma, 1e-3, 1e4)

    @property
    def subject(self) -> str:
        return f"{counted(self.queries, 'query')} on {self.findings} findings, unit of total weight {self.weight:g}"

    @property
    def terms(self) -> dict[str, object]:
        return {"queries": self.queries, "findings": self.findings, "weight": self.weight}

    def words(self, settings: AuditSettings, *, as_run: Sequence[str], ended: Sequence[str]) -> list[str]:
        return ["sets of findings change as they move the counts most, and others' counts are tied"]

    def lines(self, settings: AuditSettings) -> list[Line]:
        """Of a break of one way, that way alone."""
        broken = _HONEST if settings.broken is None else breaks_of(FindingBreak)[settings.broken]
        ways = [way for way in self.ways if broken.of in (None, way)]
        if not ways:
            raise InvalidInput(f"break is {settings.broken!r}; allowed with findings_by {broken.of}")
        return [
            _line(settings, _Case.of(way, self, view), broken, number)
            for number, (way, view) in enumerate((way, view) for way in ways for view in self.views)
        ]


@dataclass(frozen=True, eq=False)
class _Case:
    """One way under one view. said: what the unit's teacher says of each finding, before and after."""

    asks: OnFindings
    mechanism: Mechanism
    view: View
    queries: int
    weight: float
    said: tuple[Int64[ndarray, " findings"], Int64[ndarray, " findings"]]

    @classmethod
    def of(cls, way: str, terms: AuditedFindings, view: View) -> _Case:
        number = terms.findings
        none, every = np.zeros(number, np.int64), np.ones(number, np.int64)
        if way == Tau.by:
            moves = worst_moves(LATTICE, tau=_TAU, findings=number)
            squared = (moves.times * moves.sizes**2).sum(axis=1)
            pairs = np.flatnonzero(squared > 0.999 * squared.max())  # but for rounding
            sizes = np.stack(np.divmod(pairs, number + 1))
            before, after = sizes[:, int(sizes.sum(axis=0).argmax())].tolist()
            mechanism: Mechanism = TauVoting(sigma=terms.sigma, tau=_TAU, threshold=_BASE * terms.sigma)
            said = (np.arange(number) < before).astype(np.int64), (np.arange(number) >= number - after).astype(np.int64)
            return cls(Tau(number), mechanism, view, terms.queries, terms.weight, said)
        subsets = findings_of(np.arange(2**number), findings=number)
        sets = tuple(tuple(np.flatnonzero(each).tolist()) for each in subsets)
        asks = Binary(number) if way == Binary.by else Powerset(number, sets)
        return cls(asks, GNMax(sigma=terms.sigma), view, terms.queries, terms.weight, (none, every))

    @property
    def classes(self) -> int:
        assert self.asks.classes is not None  # every way on findings determines it
        return self.asks.classes

    def own(self, mechanism: Mechanism, *, moved: bool) -> _Counts:
        """What the unit's vote adds to the counts of one query, by the code that a party runs."""
        votes = self.asks.votes(self.said[moved][None]).reshape(1, 1, -1)
        return self.asks.counts(
            votes, np.array([self.weight]), units=LATTICE, mechanism=mechanism, classes=self.classes
        )

    def others(self) -> _Counts:
        """Everybody else's counts: tied, or at the threshold, halfway between both of the unit's votes."""
        both = sum(self.own(self.mechanism, moved=moved) for moved in (False, True))
        return np.full_like(both, _BASE * self.mechanism.noise_scale) - both / 2  # type: ignore[no-any-return]  # an array

    def log_law(self, counts: _Counts) -> Float64[ndarray, "rows outcomes"]:
        """ln of the law of each row's label; the last outcome of an argmax is no label."""
        if isinstance(self.mechanism, TauVoting):
            sides = (counts - self.mechanism.threshold) / self.mechanism.sigma
            logs = np.stack([scipy.special.log_ndtr(-sides), scipy.special.log_ndtr(sides)])  # absent, present
            sets = findings_of(np.arange(2**self.classes), findings=self.classes)
            law: Float64[ndarray, "rows outcomes"] = np.stack(
                [sum(logs[bit, :, at] for at, bit in enumerate(each)) for each in sets.tolist()], axis=1
            )
            return law
        return self.mechanism.outcome_log_law(counts, np.ones(self.classes, np.int64), offsets=None)


def _line(settings: AuditSettings, case: _Case, broken: FindingBreak, number: int) -> Line:
    chosen = default_accountant(case.mechanism, case.view, secret_coins=False)
    target = Target(
        mechanism=case.mechanism, accountant=chosen, view=case.view, weight=case.weight, rate=1.0, classes=case.classes,
        queries=case.queries * (1 if broken.charged_once else case.asks.rows),
    )  # fmt: skip
    return Line(
        title=f"{case.asks.by}\n{case.view}, {chosen.name}",
        labels={"findings by": case.asks.by, "view": case.view, "accountant": chosen.name},
        facts={"findings_by": case.asks.by, "noise": noise_scales(case.mechanism), "view": case.view,
               "accountant": chosen.name},
        trials=2 * settings.trials,
        gaussian_dp=target.gaussian_dp,
        prepared=lambda: _prepared(settings, case, target, broken, number),
    )  # fmt: skip


def _prepared(settings: AuditSettings, case: _Case, target: Target, broken: FindingBreak, number: int) -> Prepared:
    others, right = case.others(), [case.own(case.mechanism, moved=moved) for moved in (False, True)]
    sent = [broken.votes(case.own(broken.counted(case.mechanism), moved=moved)) for moved in (False, True)]
    before, after = (case.log_law(others + each) for each in right)
    run = broken.mechanism(case.mechanism)

    def released(moved: bool, trials: int, stream: int) -> Float64[ndarray, "trials rows classes"]:
        rng = settings.stream(number, stream, int(moved))
        noise: StandardNormal = simulated(rng) if settings.noise == "fast" else cryptographic(rng.bytes)
        draw, found = broken.noise(noise), []
        step = max(1, _CHUNK // (case.queries * others.size))
        for start in range(0, trials, step):
            size = min(step, trials - start) * case.queries
            counts = np.tile(others + sent[moved], (size, 1))
            shown = run.noisy(counts, draw, view="histogram") if case.view == "histogram" else run.labels(
                counts, draw, view="label"
            )[:, None]  # fmt: skip
            found.append(shown.reshape(size, len(others), -1))
        return np.concatenate(found)

    def statistic(moved: bool, advance: Advance) -> Float64[ndarray, " trials"]:
        shown = released(moved, settings.trials, 0)
        advance(settings.trials)
        if case.view == "histogram":
            each = ((shown - others) * (right[0] - right[1])).sum(axis=(1, 2))
        else:
            each = (before - after)[np.arange(len(others)), shown[:, :, 0].astype(np.int64)].sum(axis=1)
        return np.asarray(np.round(each.reshape(settings.trials, -1).sum(axis=1), 9))

    def exact() -> float:
        if case.view == "label":  # rows of one query have the same law
            rows = case.queries * len(others)
            return float(composed_epsilon(before[:1], after[:1], queries=rows, delta=settings.delta)[0])
        mu = np.sqrt(case.queries * ((right[0] - right[1]) ** 2).sum()) / case.mechanism.noise_scale
        return float(gdp_epsilon(np.array([mu]), np.array([settings.delta]))[0])

    def law(alpha: float) -> Agreement:
        trials = settings.trials_of_laws
        shown = released(False, trials, 1)
        if case.view == "label":
            outcomes = shown[:, :, 0].astype(np.int64).reshape(trials, -1)
            laws = np.tile(np.exp(before), (case.queries, 1))
            kinds = np.zeros(outcomes.shape[1], np.int64)
            return agreement(answers_evidence(Answers(outcomes, laws, kinds)), alpha=alpha)
        values = scipy.special.ndtr((shown - others - sent[0]) / case.mechanism.noise_scale)
        return agreement(seen_noise_evidence(values.reshape(trials, -1, others.shape[1])), alpha=alpha)

    allowed = case.mechanism.squared_move(case.classes) * case.weight**2 * target.queries / case.queries
    moved = float(((sent[0] - sent[1]) ** 2).sum())
    pair = Pair(
        "tied",
        exact(),
        lambda advance: [Samples(*(statistic(moved, advance) for moved in (False, True)))],
        moves=moved / allowed,
        too_far=moved > allowed * (1 + 1e-12),
    )
    claim = claim_of(target, delta=settings.delta, total_weight=float((others + right[0]).sum(axis=1).max()))
    return Prepared(claim, [pair], law)
