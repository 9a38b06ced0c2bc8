"""CaPC's experiment: querying parties before and after, 50 and 250 parties, alike and skewed classes, side by side.

    CONCLAVE_DATA=... python benchmarks/ask_simulation.py [--dataset mnist] [--parties 50 250] [--skews 0 5] [--seeds 3]

Budgets: 20 each with 50 parties, 1:0.34,2:0.43,3:0.23 with 250, at delta 1e-5; over all queries of three querying
parties together. Skew 0: classes alike. Models logistic_regression, mlp and small_cnn, dealt in turn. `lacked` is on
the classes of which a querying party has less than half of an equal share. Trains once (two to three minutes of one
core a row); a second run takes everything from the cache.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs

from protocols.errors import ConclaveError
from simulations.ask.report import ask_summary
from simulations.ask.settings import ask_settings
from simulations.ask.stages import ask, read_ask_inputs
from simulations.progress import Reporter
from simulations.stages.inputs import Host

_BUDGETS = {50: "20", 250: "1:0.34,2:0.43,3:0.23"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="mnist")
    parser.add_argument("--parties", type=int, nargs="+", default=[50, 250])
    parser.add_argument("--skews", type=float, nargs="+", default=[0.0, 5.0])
    parser.add_argument("--unlabelled", type=int, default=150)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    arguments = parser.parse_args()
    data, cache = os.environ.get("CONCLAVE_DATA"), os.environ.get("CONCLAVE_CACHE")
    host = Host(
        data_dir=None if data is None else Path(data),
        cache_dir=Path(cache or platformdirs.user_cache_dir("conclave")),
        engine="in_process",
        workers=arguments.workers,
    )
    for parties in arguments.parties:
        for skew in arguments.skews:
            settings = ask_settings(
                parties=parties,
                dataset=arguments.dataset,
                skew=skew or None,
                unlabelled=arguments.unlabelled,
                budgets=_BUDGETS.get(parties, "20" if parties < 150 else "2"),
                seeds=tuple(range(arguments.seeds)),
            )
            start = time.perf_counter()
            reporter = Reporter(quiet=True)
            try:
                result = ask(read_ask_inputs(settings, host=host, reporter=reporter), host=host, reporter=reporter)
            except ConclaveError as error:
                print(f"not measured: {error}")
                continue
            show(ask_summary(result), settings.budgets, seconds=time.perf_counter() - start)


def show(figures: dict[str, Any], budgets: str, *, seconds: float) -> None:
    """One row of the run, and one a querying party."""
    label_accuracy = share(figures["label_accuracy"], figures["label_accuracy_ci95"])
    print(
        f"\n{figures['parties']} parties, skew {figures['skew'] or 'none'}, budgets {budgets}: "
        f"{figures['answered']:.1f} labels of {figures['asked']:.0f} asked, {label_accuracy} right; before "
        f"{share(figures['before'])}, after {share(figures['after'], figures['after_ci95'])}, with true labels "
        f"{share(figures['with_true_labels'])} ({seconds:.0f} s)"
    )
    print(f"{'party':>10} {'model':>20} {'labels':>7} {'before':>8} {'after':>14} {'lacked before':>14} {'after':>14}")
    for one in figures["queriers"]:
        print(
            f"{one['party']:>10} {one['model']:>20} {one['answered']:7.1f} {share(one['before']):>8} "
            f"{share(one['after'], one['after_ci95']):>14} {share(one['before_lacked']):>14} "
            f"{share(one['after_lacked'], one['after_lacked_ci95']):>14}"
        )
    agreement = ", ".join(f"{one['kind']} {100 * one['agreement']:.2f} %" for one in figures["models"])
    used = np.mean([group["share_of_budget_used"] for group in figures["groups"]])
    print(f"fixed point agrees: {agreement}; share of caps used, mean over groups: {share(float(used))}")


def share(mean: float | None, half: float | None = None) -> str:
    """A share as a percentage, with its interval."""
    if mean is None:
        return "none"
    return f"{100 * mean:.1f} %" if half is None else f"{100 * mean:.1f} ± {100 * half:.1f}"


if __name__ == "__main__":
    main()
