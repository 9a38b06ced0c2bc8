"""An audit: what is shown to leak, by running it, against what is claimed. One loop for every kind of votes.

For each line and each pair of neighbouring worlds the real release is run many times in both; the best test that the
trials allow gives a lower bound on epsilon (bounds.py), which is held against the claim and against the exact epsilon
of that pair. Then all that is released is held against its exact law (laws.py). All bounds and all tests of one audit
hold together with the stated confidence (Bonferroni): half of what is left of it is for the bounds, half for the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from protocols.bounds.gaussian import gdp_epsilon
from protocols.plural import at_most
from simulations.audit.as_run import AuditedBudget, AuditedStudy, audit_budgets, audit_run
from simulations.audit.batches import FACTORS
from simulations.audit.bounds import LowerBound, Samples, epsilon_lower_bound, mu_lower_bound
from simulations.audit.laws import Agreement
from simulations.audit.settings import AuditSettings, Line, Pair, UnitClaim

# The error of quadrature and of the grid of log-likelihood ratios: an exact epsilon above a claim by no more than this
# does not refute it.
_EXACT_TOLERANCE = 1e-3
# progress(title, trials done, trials in all).
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Finding:
    """One line: what is claimed, what was shown. Epsilons are at the audit's delta.

    lower: the largest lower bound shown, on `pair`; exact: the exact epsilon of the worst pair, which no test can
    exceed; law: what was found against the exact law of what is released; power: the probability with which noise of
    this share of its scale would have been found; lower_mu: no mu below it is true, and `lower_by_mu` is the epsilon of
    that mu; None unless Gaussian DP is claimed; moves, too_far: of the pair that moves sums furthest (see Pair).
    """

    line: Line
    claim: UnitClaim
    pair: Pair
    lower: LowerBound
    exact: float
    law: Agreement
    power: dict[float, float]
    lower_mu: float | None
    lower_by_mu: float | None
    moves: float | None
    too_far: bool

    @property
    def refuted(self) -> bool:
        """Whether the claim is refuted: by the trials, or because one pair's exact epsilon, or move, is above it."""
        refuted = self.lower.value > self.claim.epsilon or self.exact > self.claim.epsilon * (1 + _EXACT_TOLERANCE)
        shown = self.lower_mu is not None and self.claim.mu is not None and self.lower_mu > self.claim.mu
        return refuted or shown or self.too_far

    @property
    def above_exact(self) -> bool:
        """Whether more was shown than the honest release can leak on this pair, be it below the claim or not."""
        return self.lower.value > self.pair.exact * (1 + _EXACT_TOLERANCE)

    @property
    def failed(self) -> bool:
        """Whether the claim is refuted, or what was released is not what is stated."""
        return self.refuted or self.above_exact or self.law.failed

    @property
    def reason(self) -> str:
        """What failed, in a few words; empty if nothing did."""
        if self.refuted:
            return "more leakage than claimed"
        if self.above_exact:
            return "more leakage than the stated mechanism has"
        return f"another law: {self.law.worst.family}" if self.law.failed else ""

    @property
    def lower_of_claimed(self) -> float:
        """The larger lower bound as a share of the claim; above 1, the claim is refuted."""
        return max(self.lower.value, self.lower_by_mu or 0.0) / self.claim.epsilon

    @property
    def lower_of_exact(self) -> float | None:
        """The lower bound as a share of the worst pair's exact epsilon; None if that is 0."""
        return self.lower.value / self.exact if self.exact > 0 else None

    def to_json(self) -> dict[str, object]:
        """The finding as JSON values."""
        return {
            **self.line.facts,
            "claimed_epsilon": self.claim.epsilon,
            "order": None if np.isnan(self.claim.order) else self.claim.order,
            "claimed_mu": self.claim.mu,
            "exact_epsilon": self.exact,
            "exact_epsilon_of_pair": self.pair.exact,
            "lower_epsilon": self.lower.value,
            "lower_mu": self.lower_mu,
            "lower_epsilon_by_mu": self.lower_by_mu,
            "lower_of_claimed": self.lower_of_claimed,
            "lower_of_exact": self.lower_of_exact,
            "squared_move_of_allowed": self.moves,
            "moves_too_far": self.too_far,
            "pair": self.pair.name,
            "direction": self.lower.direction,
            "hits": self.lower.hits,
            "false_hits": self.lower.false_hits,
            "evaluated_trials": self.lower.trials,
            "law": self.law.to_json(),
            "power": {f"{factor:g}": value for factor, value in self.power.items()},
            "verdict": audit_verdict(self.failed),
            "reason": self.reason,
        }


@dataclass(frozen=True)
class AuditResult:
    """All findings of one audit, and its settings. runs: of studies as they run; budgets: of studies that these end."""

    settings: AuditSettings
    findings: tuple[Finding, ...]
    runs: tuple[AuditedStudy, ...] = ()
    budgets: tuple[AuditedBudget, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether any claim was refuted, or anything released has another law than is stated."""
        lines: list[Finding | AuditedStudy | AuditedBudget] = [*self.findings, *self.runs, *self.budgets]
        return any(line.failed for line in lines)

    @property
    def failure(self) -> str:
        """What failed first, in a few words."""
        reasons = [finding.reason for finding in self.findings if finding.failed]
        reasons += [f"another law: {one.law.worst.family}" for one in self.runs if one.failed]
        return [*reasons, "more queries than a budget affords"][0]

    @property
    def subject(self) -> str:
        """What epsilons are of, in words."""
        return f"epsilon at delta {at_most(self.settings.delta)} of {self.settings.of.subject}"

    @property
    def words(self) -> list[str]:
        """What passing says, and what was not tested, in sentences."""
        least = {factor: min((one.power.get(factor, 0.0) for one in self.findings), default=0.0) for factor in FACTORS}
        shown = [f"by {100 * (1 - factor):.0f} % with probability {np.floor(100 * found) / 100:.2f}"
                 for factor, found in least.items() if found > 0]  # fmt: skip
        said = []
        if not self.failed and any(one.power for one in self.findings):
            said.append("no difference from the stated laws was found; noise that is smaller would have been found in "
                        f"every line: {', '.join(shown) or 'not by 15 % or less: too few trials'}")  # fmt: skip
        as_run, ended = [one.mechanism for one in self.runs], [one.mechanism for one in self.budgets]
        return [*said, *self.settings.of.words(self.settings, as_run=as_run, ended=ended)]

    def to_json(self) -> dict[str, object]:
        """The audit as JSON values: its terms, and one object per finding."""
        settings = self.settings
        return {
            "votes_by": settings.of.votes_by,
            **settings.of.terms,
            "adjacency": "replace-one",
            "delta": settings.delta,
            "confidence": settings.confidence,
            "trials": settings.trials,
            "trials_of_laws": settings.trials_of_laws,
            "noise": settings.noise,
            "seed": None if settings.noise == "system" else settings.seed,
            "broken": settings.broken,
            "verdict": audit_verdict(self.failed),
            "findings": [finding.to_json() for finding in self.findings],
            "studies_as_run": [finding.to_json() for finding in self.runs],
            "budgets": [finding.to_json() for finding in self.budgets],
        }


def audit_verdict(failed: bool) -> str:
    """The word for it."""
    return "FAILED" if failed else "passed"


def run_audit(settings: AuditSettings, *, progress: Progress) -> AuditResult:
    """Audits every line of the settings, every study as it runs and until its budget ends. Raises InvalidInput."""
    lines, runs = settings.of.lines(settings), settings.of.runs(settings)
    broken = settings.of.broken_code(settings)
    left = (1 - settings.confidence) / 2
    bounds, laws = sum(1 + line.gaussian_dp for line in lines), len(lines) + len(runs)
    alphas = left / max(1, bounds), left / max(1, laws)
    findings = tuple(_found(settings, line, alphas=alphas, progress=progress) for line in lines)
    studies = []
    for number, (run, kind) in enumerate(runs):
        progress(f"{kind.name}, {run.words}", number, len(runs))
        studies.append(
            audit_run(run, kind, trials=settings.trials_of_laws, alpha=alphas[1], seed=settings.seed, broken=broken)
        )
    ended = audit_budgets(settings.of.budget_views(settings), seed=settings.seed, broken=broken)
    return AuditResult(settings, findings, tuple(studies), ended)


def _found(settings: AuditSettings, line: Line, *, alphas: tuple[float, float], progress: Progress) -> Finding:
    """alphas: the probability with which one bound, and the test of the law, may be wrong."""
    alpha, alpha_law = alphas
    prepared, title, done = line.prepared(), ", ".join(line.labels.values()), 0

    def advance(trials: int) -> None:
        nonlocal done
        done += trials
        progress(title, done, line.trials)

    samples: list[Samples] = []
    owners: list[Pair] = []
    for pair in prepared.pairs:
        seen = pair.observed(advance)
        samples, owners = samples + seen, owners + [pair] * len(seen)
    lower = epsilon_lower_bound(samples, delta=settings.delta, alpha=alpha)
    mu = mu_lower_bound(samples, alpha=alpha).value if prepared.claim.mu is not None else None
    law = prepared.law(alpha_law)
    furthest = max(prepared.pairs, key=lambda pair: pair.moves or 0.0)
    return Finding(
        line=line,
        claim=prepared.claim,
        pair=owners[lower.pair],
        lower=lower,
        exact=max(pair.exact for pair in prepared.pairs),
        law=law,
        power=prepared.power(alpha_law, law.families),
        lower_mu=mu,
        lower_by_mu=None if mu is None else float(gdp_epsilon(np.array([mu]), np.array([settings.delta]))[0]),
        moves=furthest.moves,
        too_far=any(pair.too_far for pair in prepared.pairs),
    )
