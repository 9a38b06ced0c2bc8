"""An audit: what each mechanism is shown to leak, by running it, against its accountant's claim.

For each target and each pair of neighbouring votes the real release is run many times on both; the best test that the
trials allow gives a lower bound on epsilon (distinguishing.py), which is held against the claim and against the exact
epsilon of that pair. Then batches of many kinds of votes are released, and all that they show is held against its exact
law (agreement/). All bounds and all tests of one audit hold together with the stated confidence (Bonferroni): half of
what is left of it is for the bounds, half for the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from protocols.bounds.gaussian import gdp_epsilon
from protocols.crypto.randomness import RandomSource, simulation_rng, system_source
from protocols.noise import StandardNormal, cryptographic, simulated
from protocols.plural import at_most, counted
from simulations.audit.agreement.agreement import Agreement, target_agreement
from simulations.audit.agreement.power import FACTORS, power
from simulations.audit.as_run.as_run import AuditedStudy, audit_run
from simulations.audit.as_run.breaks import RUN_BREAKS
from simulations.audit.as_run.budgets import AuditedBudget, audit_budgets
from simulations.audit.breaks import BREAKS, break_named
from simulations.audit.composition import composed_epsilon
from simulations.audit.distinguishing import LowerBound, Samples, epsilon_lower_bound, mu_lower_bound
from simulations.audit.neighbours import Neighbours, audited_pairs, outcome_log_laws
from simulations.audit.seen_histogram import histogram_epsilon
from simulations.audit.settings import AuditSettings
from simulations.audit.target import Claim, Target, claim_of, noise_scales
from simulations.audit.trials import log_ratios

# The error of quadrature and of the grid of log-likelihood ratios: an exact epsilon above a claim by no more than this
# does not refute it.
_EXACT_TOLERANCE = 1e-3


@dataclass(frozen=True)
class AuditedTarget:
    """One target: what is claimed, what was shown. Epsilons are at the audit's delta.

    lower: the largest lower bound shown, on the pair `pair`; exact: the computed epsilon of the honest mechanism on the
    worst pair, which no test of that pair can exceed; exact_of_pair: on `pair`; law: what was found against the exact
    law of what is released; power: the probability with which noise of this share of its scale would have been found;
    lower_mu: no mu below it is true, and `lower_by_mu` is the
    epsilon of that mu; None unless Gaussian DP is claimed.
    """

    target: Target
    claim: Claim
    pair: str
    lower: LowerBound
    exact: float
    exact_of_pair: float
    law: Agreement
    power: dict[float, float]
    lower_mu: float | None
    lower_by_mu: float | None

    @property
    def refuted(self) -> bool:
        """Whether the claim is refuted: by the trials, or because it is below the exact epsilon of one pair."""
        refuted = self.lower.value > self.claim.epsilon or self.exact > self.claim.epsilon * (1 + _EXACT_TOLERANCE)
        return refuted or (self.lower_mu is not None and self.claim.mu is not None and self.lower_mu > self.claim.mu)

    @property
    def above_exact(self) -> bool:
        """Whether more was shown than the honest mechanism can leak on these votes, be it below the claim or not."""
        return self.lower.value > self.exact_of_pair * (1 + _EXACT_TOLERANCE)

    @property
    def failed(self) -> bool:
        """Whether the claim is refuted, or what was released is not what the mechanism states."""
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
        """The lower bound as a share of the claim; above 1, the claim is refuted."""
        return self.lower.value / self.claim.epsilon

    @property
    def lower_of_exact(self) -> float | None:
        """The lower bound as a share of the worst pair's exact epsilon; None if that is 0."""
        return self.lower.value / self.exact if self.exact > 0 else None

    @property
    def title(self) -> str:
        """The finding in two lines, for the figure."""
        coins = f", coins {self.target.rate:g}" if self.target.rate < 1 else ""
        return f"{self.target.mechanism.name}{coins}\n{self.target.view}, {self.target.accountant.name}"

    def to_json(self) -> dict[str, object]:
        """The finding as JSON values."""
        target = self.target
        return {
            "mechanism": target.mechanism.name,
            "noise": noise_scales(target.mechanism),
            "view": target.view,
            "accountant": target.accountant.name,
            "rate": target.rate,
            "claimed_epsilon": self.claim.epsilon,
            "order": None if np.isnan(self.claim.order) else self.claim.order,
            "claimed_mu": self.claim.mu,
            "exact_epsilon": self.exact,
            "exact_epsilon_of_pair": self.exact_of_pair,
            "lower_epsilon": self.lower.value,
            "lower_mu": self.lower_mu,
            "lower_epsilon_by_mu": self.lower_by_mu,
            "lower_of_claimed": self.lower_of_claimed,
            "lower_of_exact": self.lower_of_exact,
            "pair": self.pair,
            "direction": self.lower.direction,
            "hits": self.lower.hits,
            "false_hits": self.lower.false_hits,
            "evaluated_trials": self.lower.trials,
            "law": self.law.to_json(),
            "power": {f"{factor:g}": value for factor, value in self.power.items()},
            "verdict": "FAILED" if self.failed else "passed",
            "reason": self.reason,
        }


@dataclass(frozen=True)
class AuditResult:
    """All findings of one audit, and its settings. runs: of studies as they run; budgets: of studies that these end."""

    settings: AuditSettings
    findings: tuple[AuditedTarget, ...]
    runs: tuple[AuditedStudy, ...] = ()
    budgets: tuple[AuditedBudget, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether any claim was refuted, or anything released has another law than is stated."""
        laws = any(finding.failed for finding in self.findings) or any(study.failed for study in self.runs)
        return laws or any(budget.failed for budget in self.budgets)

    @property
    def failure(self) -> str:
        """What failed first, in a few words."""
        reasons = [finding.reason for finding in self.findings if finding.failed]
        reasons += [f"another law: {one.law.worst.family}" for one in self.runs if one.failed]
        return [*reasons, "more queries than a budget affords"][0]

    @property
    def words(self) -> list[str]:
        """What passing says, and what was not tested, in sentences."""
        said = []
        if self.findings and not self.failed:
            found = ", ".join(
                f"by {100 * (1 - factor):.0f} % with probability {_rounded_down(least)}"
                for factor in FACTORS
                if (least := min(finding.power[factor] for finding in self.findings)) > 0
            )
            said.append("no difference from the stated laws was found; noise that is smaller would have been found in "
                        f"every line: {found or 'not by 15 % or less: too few trials'}")  # fmt: skip
        plain = [name for name in self.settings.mechanisms if not any(run.mechanism == name for run in self.runs)]
        if plain and self.settings.broken is None:
            said.append(f"not tested as a study runs: {', '.join(plain)}")
        unended = [name for name in self.settings.mechanisms if not any(one.mechanism == name for one in self.budgets)]
        if unended and self.settings.broken is None:
            said.append(f"not tested until a budget ends the study: {', '.join(unended)}")
        return said

    @property
    def subject(self) -> str:
        """What epsilons are of, in words."""
        return f"epsilon at delta {at_most(self.settings.delta)} of {counted(self.settings.queries, 'query')}"

    def to_json(self) -> dict[str, object]:
        """The audit as JSON values: its terms, and one object per finding."""
        settings = self.settings
        return {
            "unit": f"one unit of total weight {settings.weight:g} votes",
            "adjacency": "replace-one",
            "delta": settings.delta,
            "confidence": settings.confidence,
            "trials": settings.trials,
            "trials_of_laws": settings.trials_of_laws,
            "queries": settings.queries,
            "classes": settings.classes,
            "weight": settings.weight,
            "noise": settings.noise,
            "seed": None if settings.noise == "system" else settings.seed,
            "broken": settings.broken,
            "verdict": "FAILED" if self.failed else "passed",
            "findings": [finding.to_json() for finding in self.findings],
            "studies_as_run": [finding.to_json() for finding in self.runs],
            "budgets": [finding.to_json() for finding in self.budgets],
        }


def run_audit(settings: AuditSettings, *, progress: Callable[[str, int, int], None]) -> AuditResult:
    """Audits every target of the settings, and every study as it runs. progress(title, done, in all).

    What is broken on purpose is a mechanism or the code of a level: then only those are audited. Raises InvalidInput.
    """
    targets = [] if settings.broken in RUN_BREAKS else settings.targets()
    runs = [] if settings.broken in BREAKS else settings.runs()
    left = (1 - settings.confidence) / 2
    bounds, laws = sum(1 + target.gaussian_dp for target in targets), len(targets) + len(runs)
    alphas = left / max(1, bounds), left / max(1, laws)
    findings = []
    for index, target in enumerate(targets):
        findings.append(_audited(settings, target, index, alphas=alphas, progress=progress))
    studies = []
    for number, (run, kind) in enumerate(runs):
        progress(f"{kind.name}, {run.words}", number, len(runs))
        studies.append(
            audit_run(
                run, kind, trials=settings.trials_of_laws, alpha=alphas[1], seed=settings.seed, broken=settings.broken
            )
        )
    ended = audit_budgets(settings.budget_views, seed=settings.seed, broken=settings.broken)
    return AuditResult(settings, tuple(findings), tuple(studies), ended)


def _audited(
    settings: AuditSettings,
    target: Target,
    index: int,
    *,
    alphas: tuple[float, float],
    progress: Callable[[str, int, int], None],
) -> AuditedTarget:
    """alphas: the probability with which one bound, and the test of the law, may be wrong."""
    alpha, alpha_law = alphas
    pairs = audited_pairs(target, delta=settings.delta)
    claim = claim_of(target, delta=settings.delta, total_weight=max(pair.total_weight for pair in pairs))
    title, done = f"{target.name}, {target.view}", 0

    def advance(trials: int) -> None:
        nonlocal done
        done += trials
        progress(title, done, 2 * settings.trials * len(pairs))

    samples = [
        pair_samples(settings, target, pair, stream=(index, number), progress=advance)
        for number, pair in enumerate(pairs)
    ]
    lower = epsilon_lower_bound(samples, delta=settings.delta, alpha=alpha)
    mu = mu_lower_bound(samples, alpha=alpha).value if claim.mu is not None else None
    noise, coins_from = _randomness(settings, (index, len(pairs), 0))
    law = target_agreement(
        target, break_named(settings.broken), alpha=alpha_law, noise=noise, coins_from=coins_from, **settings.of_laws
    )
    exact = [_exact(target, pair, delta=settings.delta) for pair in pairs]
    return AuditedTarget(
        target=target,
        claim=claim,
        pair=pairs[lower.pair].name,
        lower=lower,
        exact=exact[0],
        exact_of_pair=exact[lower.pair],
        law=law,
        power={
            factor: power(
                target,
                factor,
                trials=settings.trials_of_laws,
                alpha=alpha_law,
                families=law.families,
                seed=settings.seed,
            )
            for factor in FACTORS
        },
        lower_mu=mu,
        lower_by_mu=None if mu is None else float(gdp_epsilon(np.array([mu]), np.array([settings.delta]))[0]),
    )


def pair_samples(
    settings: AuditSettings,
    target: Target,
    pair: Neighbours,
    *,
    stream: tuple[int, int],
    progress: Callable[[int], None],
) -> Samples:
    """The log-likelihood ratio of each trial on either side of a pair; stream: of the noise."""
    return Samples(
        *(
            _trials_of(settings, target, pair, moved=moved, stream=(*stream, int(moved)), progress=progress)
            for moved in (False, True)
        )
    )


def _exact(target: Target, pair: Neighbours, *, delta: float) -> float:
    if target.view == "histogram":
        return histogram_epsilon(target, delta=delta)
    before, after = outcome_log_laws(target, pair)
    return float(composed_epsilon(before[None], after[None], queries=target.queries, delta=delta)[0])


def _trials_of(
    settings: AuditSettings,
    target: Target,
    pair: Neighbours,
    *,
    moved: bool,
    stream: tuple[int, int, int],
    progress: Callable[[int], None],
) -> Float64[ndarray, " trials"]:
    noise, coins_from = _randomness(settings, stream)
    return log_ratios(
        target, pair, moved=moved, broken=break_named(settings.broken), trials=settings.trials, noise=noise,
        coins_from=coins_from, progress=progress,
    )  # fmt: skip


def _randomness(settings: AuditSettings, stream: tuple[int, int, int]) -> tuple[StandardNormal, RandomSource]:
    """Fresh noise and coins for one side of one pair."""
    if settings.noise == "system":
        return cryptographic(system_source), system_source
    rng = simulation_rng(settings.seed, "audit noise", *stream)
    noise = simulated(rng) if settings.noise == "fast" else cryptographic(rng.bytes)
    return noise, simulation_rng(settings.seed, "audit coins", *stream).bytes


def _rounded_down(probability: float) -> str:
    """Two digits; a probability is never said to be larger than it is."""
    return f"{np.floor(100 * probability) / 100:.2f}"
