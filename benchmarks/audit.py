"""The audit: lower bounds against claims, and releases per second, honest and broken, side by side in one run.

    python benchmarks/audit.py

Trials are those of the command's default; noise is the nodes' sampler on a seeded stream.
"""

from __future__ import annotations

import time

from benchmarks.breaks import MECHANISM_BREAKS as BREAKS
from simulations.audit.audit import run_audit
from simulations.audit.settings import NOISES, AuditSettings
from simulations.audit.teacher_votes import AuditedMechanisms

TERMS = {
    "queries": 8, "classes": 3, "weight": 1.0, "sigma": 4.0,
    "parameters": {"sigma_threshold": 4.0, "gamma": 0.25},
    "rate": 0.5,
}  # fmt: skip
EFFORT = {"delta": 0.01, "confidence": 0.999, "seed": 0}
TRIALS = 200_000


def audited(*, trials=TRIALS, noise="seeded", broken=None, **changed):
    """The findings, and the seconds that they took."""
    start = time.perf_counter()
    of = AuditedMechanisms(**(TERMS | changed))
    audit = run_audit(AuditSettings(of=of, trials=trials, noise=noise, broken=broken, **EFFORT), progress=_silent)
    return audit.findings, time.perf_counter() - start


def _silent(title: str, done: int, total: int) -> None: ...


def main() -> None:
    """Prints lower bound/claimed and lower bound/exact of every mechanism, and trials a second."""
    honest, took = audited()
    broken = {name: audited(broken=name, noise="fast")[0] for name in BREAKS}
    print(f"lower bound/claimed epsilon, {TRIALS:,} trials (lower/exact; by Gaussian DP; broken: {', '.join(BREAKS)})")
    for place, finding in enumerate(honest):
        by_mu = "" if finding.lower_by_mu is None else f"{finding.lower_by_mu / finding.claim.epsilon:.3f}"
        shares = "  ".join(f"{findings[place].lower_of_claimed:.2f}" for findings in broken.values())
        print(
            f"{finding.line.labels['mechanism']:20} {finding.line.labels['view']:10} {finding.lower_of_claimed:.3f} "
            f"({finding.lower_of_exact:.3f}; {by_mu:5}; broken {shares})"
        )
    print(f"all {len(honest)} in {took:.1f} s")
    terms = {"mechanisms": ("gnmax",), "rate": 1.0, "queries": 1, "classes": 2, "sigma": 1.0, "trials": 2_000_000}
    for finding in audited(**terms)[0]:
        view = finding.line.labels["view"]
        print(f"one query, two classes, 2,000,000 trials, {view}: {finding.lower_of_claimed:.3f}")
    for noise in NOISES:
        _, took = audited(mechanisms=("gnmax",), views=("label",), rate=1.0, noise=noise)
        rate = 4 * TRIALS / took
        print(f"noise {noise}: {rate:,.0f} trials a second, {8 * rate:,.0f} releases, {24 * rate:,.0f} draws")


if __name__ == "__main__":
    main()
