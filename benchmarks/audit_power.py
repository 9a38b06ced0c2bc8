"""The audit's false alarms in honest runs, and each break with the fewest trials that found it.

    python benchmarks/audit_power.py --honest 50 --first-seed 1000     honest audits, each with a fresh seed
    python benchmarks/audit_power.py --breaks                          the table of breaks, in Markdown

An honest audit is the whole of `conclave-simulate audit` with --trials and NumPy's normals, and of record votes. A
break is tried with 3,000 trials, then with more, and put down at the first number at which its line failed; the false
alarms of a line are those of a default audit.
"""

from __future__ import annotations

import argparse
import time
from functools import cache

import numpy as np

from benchmarks.breaks import MECHANISM_BREAKS, RUN_BREAKS
from benchmarks.sum_breaks import SUM_BREAKS
from protocols.mechanisms import MECHANISMS
from protocols.noise import simulated
from simulations.audit import teacher_votes
from simulations.audit.as_run import RUNS, audit_run
from simulations.audit.audit import run_audit
from simulations.audit.batches import target_agreement
from simulations.audit.settings import AuditSettings
from simulations.audit.teacher_votes import AuditedMechanisms
from simulations.audit.unit_sums import AuditedUnitSums

TEACHERS = AuditedMechanisms(queries=8, classes=3, weight=1.0, sigma=4.0, rate=0.5)
RECORDS = AuditedUnitSums(epsilon=1.0)
TERMS = {"delta": 0.01, "confidence": 0.999, "noise": "fast"}
TRIALS = (3000, 10_000, 30_000, 200_000)
# Of one line of a default audit: half of 1e-3, shared by its lines.
ALPHA = 5e-4 / 25
LINES = (("gnmax", "label"), ("gnmax", "histogram"), ("thresholded_gnmax", "label"), ("confident_gnmax", "label"),
         ("lnmax", "label"))  # fmt: skip


def honest(runs: int, first_seed: int, trials: int) -> None:
    """Prints the runs that failed, and how small the least p-value of a line was in each."""
    failed, least = 0, []
    # The worst votes and the power follow from the settings: they are worked out once for all runs.
    teacher_votes.audited_pairs, teacher_votes.power = cache(teacher_votes.audited_pairs), cache(teacher_votes.power)
    start = time.perf_counter()
    for seed in range(first_seed, first_seed + runs):
        teachers = run_audit(AuditSettings(of=TEACHERS, trials=trials, seed=seed, **TERMS), progress=_silent)
        records = run_audit(
            AuditSettings(of=RECORDS, trials=max(1000, trials // 5), seed=seed, **TERMS), progress=_silent
        )
        failed += teachers.failed + records.failed
        found = [*teachers.findings, *teachers.runs, *records.findings]
        least.append(min(len(found) * one.law.p for one in found))
        print(f"seed {seed}: {'FAILED' if teachers.failed or records.failed else 'passed'}, {len(found)} lines, "
              f"least p times lines {least[-1]:.2g}, {time.perf_counter() - start:.0f} s", flush=True)  # fmt: skip
    print(f"{failed} failed of {2 * runs} honest audits (teachers and records); least p of all {min(least):.2g}")


def breaks() -> None:
    """Prints the tables of breaks: in each line the fewest trials tried that found it, and the test that did."""
    targets = {(one.mechanism.name, one.view): one for one in TEACHERS.targets() if one.rate == 1}
    print("| `--break` | what is wrong |", " | ".join(f"{name}, {view}" for name, view in LINES), "|")
    for name, broken in MECHANISM_BREAKS.items():
        cells = []
        for line in LINES:
            cells.append(_fewest(lambda trials, line=line, broken=broken: target_agreement(
                targets[line], broken, trials=trials, alpha=ALPHA, seed=0, noise=simulated(rng := _rng()),
                coins_from=rng.bytes,
            )))  # fmt: skip
        print(f"| `{name}` | {broken.meaning} |", " | ".join(cells), "|", flush=True)
    for name, level_break in RUN_BREAKS.items():
        run = next(run for run in RUNS[::-1] if run.level == level_break.level)
        cells = [
            _fewest(lambda trials, kind=kind, run=run, broken=level_break: audit_run(
                run, MECHANISMS[kind], trials=trials, alpha=ALPHA, seed=0, broken=broken).law)
            for kind in ("gnmax", "thresholded_gnmax", "confident_gnmax")
        ]  # fmt: skip
        print(f"| `{name}` | {level_break.meaning} |", " | ".join(cells), "|", flush=True)
    for name, sum_break in SUM_BREAKS.items():
        for trials in (1000, 3000, 10_000, 30_000):
            settings = AuditSettings(of=RECORDS, trials=trials, seed=0, broken=name, **TERMS)
            found = run_audit(settings, progress=_silent)
            if found.failed:
                print(f"| `{name}` | {sum_break.meaning} | {trials:,}: {found.failure} |", flush=True)
                break


def _fewest(line) -> str:
    for trials in TRIALS:
        found = line(trials)
        if found.failed:
            return f"{trials:,} ({found.worst.family.removeprefix('batches: ')})"
    return f"not in {TRIALS[-1]:,}"


def _rng() -> np.random.Generator:
    return np.random.default_rng(11)


def _silent(title: str, done: int, total: int) -> None: ...


def main() -> None:
    """Runs what the flags name."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--honest", type=int, default=0)
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--breaks", action="store_true")
    given = parser.parse_args()
    if given.honest:
        honest(given.honest, given.first_seed, given.trials)
    if given.breaks:
        breaks()


if __name__ == "__main__":
    main()
