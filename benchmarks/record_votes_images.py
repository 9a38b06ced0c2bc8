"""Record votes on images: labels of the public pool, and the student that they train.

    python benchmarks/record_votes_images.py --data-dir DATA --seeds 5 --epsilons 0.5,1
    python benchmarks/record_votes_images.py --data-dir DATA --seeds 5 --budgets 1:0.34,2:0.43,3:0.23

250 parties share the private images at random. The study runs live, between Party objects and a Coordinator with
ledgers of their own, at level `clear`, with one query for each centre of a cluster of the public pool. Labels are
propagated over the pool, and the student is that of the last epoch: nothing is chosen by test accuracy. A mix of
budgets is run twice: with weights by budget, and with every party at the smallest. Each line is a mean over seeds of
the pool and the test set, the partition, the noise and the student, with the half-width of its 95 % interval. --rows
FILE.csv keeps the row of each seed: budgets, rule of the weights, seed, student, share of the pool's labels that are
right, accuracy.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path

import numpy as np

from coordinator.queries.choice import cluster_queries
from coordinator.queries.features import features_for
from coordinator.students import student_kind
from protocols.study.levels import Clear
from protocols.study.record_study import RecordVotesPlan, record_study
from protocols.sums.contributions import said
from simulations import datasets
from simulations.datasets.dataset import Dataset, DatasetRequest
from simulations.setup.budgets import parse_budgets
from simulations.setup.partition import Iid, partition
from simulations.stages.label import mean_and_interval
from simulations.stages.record_cells import RecordCells
from simulations.stages.record_votes import live_record_votes, soft_pool_labels

_DELTA = 1e-5


def main() -> None:
    """One block per budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="mnist")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--private-size", type=int)
    parser.add_argument("--public-size", type=int, default=5000)
    parser.add_argument("--test-size", type=int, default=5000)
    parser.add_argument("--parties", type=int, default=250)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--draw", type=int, help="of pool and test set, for all seeds [each seed's own]")
    parser.add_argument("--epsilons", default="0.5,1")
    parser.add_argument("--budgets", help="a mix such as 1:0.34,2:0.43,3:0.23, in place of --epsilons")
    parser.add_argument("--features", default="auto")
    parser.add_argument("--queries", type=int, default=800)
    parser.add_argument("--student", default="cnn", help="none: labels of the pool alone")
    parser.add_argument("--rows", type=Path, metavar="FILE.csv", help="where rows are appended [nowhere]")
    asked = parser.parse_args()
    sizes = {"private_size": asked.private_size, "public_size": asked.public_size, "test_size": asked.test_size}
    drawn = {}
    for seed in range(asked.seeds):
        began = time.perf_counter()
        draw = seed if asked.draw is None else asked.draw
        data = datasets.load(asked.dataset, DatasetRequest(data_dir=asked.data_dir, seed=draw, **sizes))
        features = features_for(data.public_inputs, asked.features, seed=seed)
        queries = cluster_queries(data.public_inputs, features, queries=asked.queries, seed=seed)
        drawn[seed] = data, queries, said(queries, data.private_inputs, data.private_labels, classes=data.classes)
        print(f"seed {seed}: {queries.rows} queries in {features.width} features: {_since(began)}", flush=True)
    settings = [(f"epsilon {each}", each, "uniform") for each in asked.epsilons.split(",")]
    if asked.budgets:
        least = min(part.partition(":")[0] for part in asked.budgets.split(","))
        settings = [(f"budgets {asked.budgets}", asked.budgets, "exhaustive"), (f"all at {least}", least, "uniform")]
    for what, budgets, rule in settings:
        rows = []
        for seed in range(asked.seeds):
            rows.append(_one(asked, *drawn[seed], budgets=budgets, rule=rule, seed=seed))
            print(f"  seed {seed}: pool {rows[-1][0]:.4f}, student {rows[-1][1]:.4f}", flush=True)
            if asked.rows is not None:
                with asked.rows.open("a", encoding="utf-8", newline="") as file:
                    figures = (f"{each:.4f}" for each in rows[-1])
                    csv.writer(file, lineterminator="\n").writerow((budgets, rule, seed, asked.student, *figures))
        print(f"{what}, weights {rule}, {asked.seeds} seeds")
        for name, values in zip(("labels of the pool", f"student {asked.student}"), np.array(rows).T, strict=False):
            mean, half = mean_and_interval(values)
            print(f"  {name:20} {mean:.4f}" + (f" +- {half:.4f}" if half is not None else ""), flush=True)


def _one(
    asked: argparse.Namespace, data: Dataset, queries, cells, *, budgets: str, rule: str, seed: int
) -> tuple[float, float]:
    """Accuracy of the pool's labels, and of the student on the test images."""
    rows = partition(data, parties=asked.parties, scheme=Iid(), seed=seed)
    seats = parse_budgets(budgets, parties=asked.parties, delta=_DELTA, seed=seed)
    plan = RecordVotesPlan(
        name=asked.dataset,
        classes=data.classes,
        unit="record",
        population=len(cells),
        queries=queries,
        rule=rule,
        level=Clear(),
        quorum=asked.parties,
    )
    study = record_study(plan, names=seats.names, epsilon=seats.epsilon, delta=seats.delta)
    stored = RecordCells(
        data.labelled, len(cells), queries, tuple(cells[each] for each in rows), (None,) * asked.parties
    )
    labelling = live_record_votes(study, stored.sums(study), seed=seed)
    soft = soft_pool_labels(study, labelling, queries, data.public_inputs, records=len(cells))
    labelled = float((soft.probabilities.argmax(axis=1) == data.public_labels).mean())
    if asked.student == "none":
        return labelled, float("nan")
    student = student_kind(asked.student, device="cpu").fit(
        data.public_inputs,
        soft.probabilities.astype(np.float32),
        unlabelled=data.public_inputs[:0],
        classes=data.classes,
        seed=seed,
    )
    return labelled, float((student.predict(data.test_inputs) == data.test_labels).mean())


def _since(began: float) -> str:
    return f"{time.perf_counter() - began:.1f} s"


if __name__ == "__main__":
    main()
