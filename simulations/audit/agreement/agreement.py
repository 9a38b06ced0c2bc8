"""One line of an audit: whether a target's releases have the law that its mechanism states.

The false alarms of a line are shared out evenly among its families of tests (Bonferroni), so one line of the stated law
fails with probability at most `alpha`.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocols.crypto.randomness import RandomSource
from protocols.noise import StandardNormal
from simulations.audit.agreement.batches import audited_batches
from simulations.audit.agreement.evidence import Evidence
from simulations.audit.agreement.outcomes import answers_evidence
from simulations.audit.agreement.runs import answers_of, seen_noise_of
from simulations.audit.agreement.seen_noise import seen_noise_evidence, uniform_of
from simulations.audit.breaks import Break
from simulations.audit.target import Target


@dataclass(frozen=True)
class Agreement:
    """All evidence of one line, the strongest first, and the probability with which it may fail by chance."""

    evidence: tuple[Evidence, ...]
    alpha: float

    @property
    def p(self) -> float:
        """The p-value of the line: the least of its families', times their number."""
        return min(1.0, self.evidence[0].p * self.families)

    @property
    def families(self) -> int:
        """How many families of tests the line has."""
        return sum(each.cells > 0 for each in self.evidence)

    @property
    def failed(self) -> bool:
        """Whether what was released does not have the stated law."""
        return self.p <= self.alpha

    @property
    def worst(self) -> Evidence:
        """The strongest evidence against the stated law."""
        return self.evidence[0]

    def to_json(self) -> dict[str, object]:
        """The agreement as JSON values: its p-value, its level, and the strongest evidence."""
        return {
            "verdict": "FAILED" if self.failed else "no difference found",
            "p": self.p,
            "alpha": self.alpha,
            "tests": sum(each.cells for each in self.evidence),
            "strongest": [each.to_json() for each in self.evidence[:5]],
        }


def agreement(evidence: list[Evidence], *, alpha: float) -> Agreement:
    """The line's agreement."""
    return Agreement(tuple(sorted(evidence, key=lambda each: each.p)), alpha)


def target_agreement(
    target: Target,
    broken: Break,
    *,
    trials: int,
    alpha: float,
    seed: int,
    noise: StandardNormal,
    coins_from: RandomSource,
) -> Agreement:
    """Runs the target's real release batch by batch, and tests all that it shows against its law.

    trials: of the audit; seed: of the order of queries in a batch, which is no secret.
    """
    found: list[Evidence] = []
    for batch in audited_batches(target, seed=seed):
        if target.view == "histogram":
            shown = seen_noise_of(target, batch, broken, trials=trials, noise=noise, coins_from=coins_from)
            for way, seen in shown.items():
                uniform, rounding = uniform_of(target, batch, seen)
                found += [one.named(f"{way}: {one.family}") for one in seen_noise_evidence(uniform, rounding=rounding)]
            continue
        answers = answers_of(target, batch, broken, trials=trials, noise=noise, coins_from=coins_from)
        for way, each in answers.items():
            found += [one.named(f"{batch.title}{way}: {one.family}") for one in answers_evidence(each)]
    return agreement(found, alpha=alpha)
