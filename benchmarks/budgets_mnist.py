"""MNIST, 250 parties, CNN teachers: labels under uniform, proportional and exhaustive weights, side by side.

    CONCLAVE_DATA=... python benchmarks/budgets_mnist.py [--teacher cnn] [--seeds 20]

Budgets 1:0.34,2:0.43,3:0.23 at delta 1e-5 (Individualized PATE, Table 1), the same sigma for all three; the mean of
the seeds. Trains the teachers once (some minutes on two cores); a second run takes them from the cache.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
import platformdirs

from simulations.progress import Reporter
from simulations.setup.experiment import experiment, experiment_budgets, make_study
from simulations.stages.inputs import Host, read_inputs
from simulations.stages.label import label_seed
from simulations.stages.stored_votes import TeacherVotes
from simulations.stages.vote_source import votes_source


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--teacher", default="cnn")
    parser.add_argument("--seeds", type=int, default=20)
    arguments = parser.parse_args()
    if "CONCLAVE_DATA" not in os.environ:
        print("not measured: CONCLAVE_DATA is not set")
        return
    cache = os.environ.get("CONCLAVE_CACHE") or platformdirs.user_cache_dir("conclave")
    host = Host(data_dir=Path(os.environ["CONCLAVE_DATA"]), cache_dir=Path(cache), engine="in_process", workers=None)
    base = {"parties": 250, "dataset": "mnist", "teacher": arguments.teacher, "queries": 9000, "student": "none"}
    start = time.perf_counter()
    reporter = Reporter(quiet=False)
    inputs = read_inputs(experiment(**base), host=host, reporter=reporter)
    source = votes_source(inputs, host=host, reporter=reporter)
    print(f"votes in {time.perf_counter() - start:.0f} s")
    stored = source.stored
    assert isinstance(stored, TeacherVotes)
    assert source.truth is not None
    print(f"mean teacher accuracy {(stored.votes == source.truth).mean():.4f}")
    plural = np.stack([(stored.votes[:, 0] == c).sum(axis=0) for c in range(10)], axis=1).argmax(axis=1)
    print(f"plurality accuracy {(plural == source.truth).mean():.4f}")
    means = {}
    for rule in ("uniform", "proportional", "exhaustive"):
        settings = experiment(**base, weights=rule)
        study = make_study(settings, experiment_budgets(settings), classes=10, queries=stored.queries)
        results = [
            label_seed(study, stored, seed=seed, dropout=0.0, truth=source.truth) for seed in range(arguments.seeds)
        ]
        means[rule] = float(np.mean([len(result.answered) for result in results]))
        accuracy = np.mean([result.label_accuracy for result in results if result.label_accuracy is not None])
        used = np.mean([result.labelling.spent / study.budgets.cap for result in results], axis=0)
        shares = [float(used[study.weights == weight].mean()) for weight in np.unique(study.weights)]
        print(
            f"{rule:12} {means[rule]:6.1f} labels, accuracy {accuracy:.4f}, "
            f"share of budget used {[f'{share:.3f}' for share in shares]}"
        )
    for rule in ("proportional", "exhaustive"):
        print(f"{rule} / uniform: {means[rule] / means['uniform']:.2f}")


if __name__ == "__main__":
    main()
