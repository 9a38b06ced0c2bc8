"""The audit's lower bounds beside those of a public auditor on the same samples: jax_privacy's of canary scores.

    pip install jax_privacy && python benchmarks/audit_outside.py

The score of a trial is the log-likelihood ratio of all that it releases. Both bounds are at the same delta, each with
the same confidence; ours chooses its threshold on three tenths of the trials, theirs by the strategy `Split(0.3)`.
"""

from __future__ import annotations

import numpy as np
from jax_privacy import auditing

from simulations.audit.bounds import Samples, epsilon_lower_bound
from simulations.audit.settings import AuditSettings
from simulations.audit.targets import audited_pairs
from simulations.audit.teacher_votes import AuditedMechanisms, pair_samples

DELTA, ALPHA = 0.01, 1e-4
MECHANISMS = AuditedMechanisms(queries=8, classes=3, weight=1.0, sigma=4.0, rate=0.5)
SETTINGS = AuditSettings(of=MECHANISMS, trials=200_000, delta=DELTA, confidence=0.999, noise="fast", seed=0)


def outside_lower_bound(samples: Samples, *, delta: float, alpha: float, seed: int = 0) -> float:
    """jax_privacy's lower bound on epsilon (Clopper-Pearson), the larger of both directions with half of alpha each."""
    split = auditing.Split(threshold_estimation_frac=0.3, seed=seed)
    both = ((samples.before, samples.after), (-samples.after, -samples.before))
    return max(
        float(auditing.CanaryScoreAuditor(likely, unlikely).epsilon_clopper_pearson(
            alpha / 2, delta, one_sided=True, threshold_strategy=split))
        for likely, unlikely in both
    )  # fmt: skip


def main() -> None:
    """Prints both bounds of every target's worst votes."""
    print("| mechanism | view | ours | jax_privacy |\n|---|---|---:|---:|")
    for index, target in enumerate(MECHANISMS.targets()):
        pair = audited_pairs(target, delta=DELTA)[0]
        samples = pair_samples(SETTINGS, target, pair, stream=(index, 0), progress=lambda done: None)
        ours = epsilon_lower_bound([samples], delta=DELTA, alpha=ALPHA).value
        theirs = outside_lower_bound(samples, delta=DELTA, alpha=ALPHA)
        assert np.isfinite(theirs)
        print(f"| {target.name} | {target.view} | {ours:.3f} | {theirs:.3f} |", flush=True)


if __name__ == "__main__":
    main()
