"""An audit: what each mechanism is shown to leak, by running it, against its accountant's claim.

For each target and each pair of neighbouring votes the real release is run many times on both; the best test that the
trials allow gives a lower bound on epsilon (distinguishing.py). All bounds of one audit hold together with the stated
confidence (Bonferroni).
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
from simulations.audit.breaks import break_named
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
    worst pair, which no test of that pair can exceed; lower_mu: no mu below it is true, and `lower_by_mu` is the
    epsilon of that mu; None unless Gaussian DP is claimed.
    """

    target: Target
    claim: Claim
    pair: str
    lower: LowerBound
    exact: float
    lower_mu: float | None
    lower_by_mu: float | None

    @property
    def failed(self) -> bool:
        """Whether the claim is refuted: by the trials, or because it is below the exact epsilon of one pair."""
        refuted = self.lower.value > self.claim.epsilon or self.exact > self.claim.epsilon * (1 + _EXACT_TOLERANCE)
        return refuted or (self.lower_mu is not None and self.claim.mu is not None and self.lower_mu > self.claim.mu)

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
            "verdict": "FAILED" if self.failed else "passed",
        }


@dataclass(frozen=True)
class AuditResult:
    """All findings of one audit, and its settings."""

    settings: AuditSettings
    findings: tuple[AuditedTarget, ...]

    @property
    def failed(self) -> bool:
        """Whether any claim was refuted."""
        return any(finding.failed for finding in self.findings)

    @property
    def subject(self) -> str:
        """What epsilons are of, in words."""
        return f"epsilon at delta {self.settings.delta:g} of {self.settings.queries} queries"

    def to_json(self) -> dict[str, object]:
        """The audit as JSON values: its terms, and one object per finding."""
        settings = self.settings
        return {
            "unit": f"one unit of total weight {settings.weight:g} votes",
            "adjacency": "replace-one",
            "delta": settings.delta,
            "confidence": settings.confidence,
            "trials": settings.trials,
            "queries": settings.queries,
            "classes": settings.classes,
            "weight": settings.weight,
            "noise": settings.noise,
            "seed": None if settings.noise == "system" else settings.seed,
            "broken": settings.broken,
            "verdict": "FAILED" if self.failed else "passed",
            "findings": [finding.to_json() for finding in self.findings],
        }


def run_audit(settings: AuditSettings, *, progress: Callable[[str, int, int], None]) -> AuditResult:
    """Audits every target of the settings. progress(title, trials done, trials in all). Raises InvalidInput."""
    targets = settings.targets()
    tests = sum(1 + target.gaussian_dp for target in targets)
    alpha = (1 - settings.confidence) / tests
    findings = []
    for index, target in enumerate(targets):
        findings.append(_audited(settings, target, index, alpha=alpha, progress=progress))
    return AuditResult(settings, tuple(findings))


def _audited(
    settings: AuditSettings, target: Target, index: int, *, alpha: float, progress: Callable[[str, int, int], None]
) -> AuditedTarget:
    pairs = audited_pairs(target, delta=settings.delta)
    claim = claim_of(target, delta=settings.delta, total_weight=max(pair.total_weight for pair in pairs))
    title, done = f"{target.name}, {target.view}", 0

    def advance(trials: int) -> None:
        nonlocal done
        done += trials
        progress(title, done, 2 * settings.trials * len(pairs))

    samples = [
        Samples(
            *(
                _trials_of(settings, target, pair, moved=moved, stream=(index, number, int(moved)), progress=advance)
                for moved in (False, True)
            )
        )
        for number, pair in enumerate(pairs)
    ]
    lower = epsilon_lower_bound(samples, delta=settings.delta, alpha=alpha)
    mu = mu_lower_bound(samples, alpha=alpha).value if claim.mu is not None else None
    return AuditedTarget(
        target=target,
        claim=claim,
        pair=pairs[lower.pair].name,
        lower=lower,
        exact=_exact(target, pairs[0], delta=settings.delta),
        lower_mu=mu,
        lower_by_mu=None if mu is None else float(gdp_epsilon(np.array([mu]), np.array([settings.delta]))[0]),
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
