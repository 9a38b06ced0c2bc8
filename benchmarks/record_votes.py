"""Record votes on tables: the student of soft labels, each hospital alone, and all records pooled without privacy.

    python benchmarks/record_votes.py --dataset heart_disease --seeds 10 --epsilons 0.5,1

Sites of the data set are the parties; a data set without sites is cut at random into --parties. The study runs live,
between Party objects and a Coordinator with ledgers of their own, at level `clear`. All models are logistic
regressions, all accuracies are on the same test records; nothing is chosen by them. Each line is a mean over seeds of
the split and of the noise, with the half-width of its 95 % interval; "beats" counts the seeds in which the student is
above the hospital that turned out best.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from coordinator.queries.without_pool import drawn_pool
from protocols.study.column_queries import column_queries, usual_bins
from protocols.study.levels import Clear
from protocols.study.record_study import RecordVotesPlan, record_study
from simulations import datasets
from simulations.datasets.dataset import Dataset
from simulations.datasets.request import DatasetRequest
from simulations.setup.partition import BySite, Iid, partition
from simulations.stages.label import mean_and_interval
from simulations.stages.record_votes import contributions, live_record_votes, soft_pool_labels

_TABLES = ("heart_disease", "adult", "diabetes130", "eicu_demo")
_DELTA = 1e-5


def main() -> None:
    """One table per epsilon."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", choices=_TABLES, default="heart_disease")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epsilons", default="0.5,1")
    parser.add_argument("--parties", type=int, default=8)
    parser.add_argument("--unit", choices=("record", "patient"), default="record")
    parser.add_argument("--without-pool", action="store_true", help="queries and student of rows drawn from constants")
    asked = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    for epsilon in (float(each) for each in asked.epsilons.split(",")):
        rows = [_one(asked, epsilon, seed) for seed in range(asked.seeds)]
        print(f"\n{asked.dataset}, epsilon {epsilon:g}, unit {asked.unit}, {asked.seeds} seeds")
        for number, what in enumerate(("student of record votes", "best hospital alone", "mean hospital", "pooled")):
            mean, half = mean_and_interval(np.array([row[number] for row in rows]))
            print(f"  {what:24} {mean:.4f}" + (f" +- {half:.4f}" if half is not None else ""))
        print(f"  beats the best hospital in {sum(row[0] > row[1] for row in rows)} of {len(rows)}")
        print(f"  contributions, study and soft labels {np.mean([row[4] for row in rows]):.2f} s a seed")


def _one(asked: argparse.Namespace, epsilon: float, seed: int) -> tuple[float, float, float, float, float]:
    data = datasets.load(asked.dataset, DatasetRequest(data_dir=asked.data_dir, seed=seed))
    if data.private_sites is None:
        rows = partition(data, parties=asked.parties, scheme=Iid(), seed=seed)
    else:
        rows = partition(data, parties=None, scheme=BySite(), seed=seed)
    began = time.perf_counter()
    pool = data.public_inputs
    if asked.without_pool:
        pool = drawn_pool(data.columns, records=len(pool), seed=seed)
    queries = column_queries(pool, data.columns, bins=usual_bins(len(data.private_labels)))
    plan = RecordVotesPlan(
        name=asked.dataset,
        classes=data.classes,
        unit=asked.unit,
        population=len(data.private_labels),
        queries=queries,
        rule="exhaustive",
        level=Clear(),
        quorum=len(rows),
    )
    study = record_study(
        plan,
        names=tuple(map(str, range(len(rows)))),
        epsilon=np.full(len(rows), epsilon),
        delta=np.full(len(rows), _DELTA),
    )
    patients = data.private_patients
    holdings = [
        (data.private_inputs[each], data.private_labels[each], None if patients is None else patients[each])
        for each in rows
    ]
    labelling = live_record_votes(study, contributions(study, queries, holdings), seed=seed)
    soft = soft_pool_labels(study, labelling, queries, pool, records=len(data.private_labels))
    took = time.perf_counter() - began
    student = _student(pool, soft.probabilities)
    alone = [_accuracy(_alone(data.private_inputs[each], data.private_labels[each]), data) for each in rows]
    pooled = _accuracy(_alone(data.private_inputs, data.private_labels), data)
    return _accuracy(student, data), max(alone), float(np.mean(alone)), pooled, took


def _student(
    pool: Float32[ndarray, "pool features"], probabilities: Float64[ndarray, "pool classes"]
) -> LogisticRegression:
    """A logistic regression of soft labels: each pool record once per class, with that class's probability."""
    classes = probabilities.shape[1]
    labels = np.repeat(np.arange(classes), len(pool))
    return LogisticRegression(max_iter=1000).fit(
        np.tile(pool, (classes, 1)), labels, sample_weight=probabilities.T.ravel()
    )


def _alone(
    inputs: Float32[ndarray, "records features"], labels: Int64[ndarray, " records"]
) -> LogisticRegression | int:
    """A logistic regression of these records; the one class there is where there is one."""
    if len(np.unique(labels)) < 2:
        return int(labels[0])
    return LogisticRegression(max_iter=1000).fit(inputs, labels)


def _accuracy(model: LogisticRegression | int, data: Dataset) -> float:
    if isinstance(model, int):
        return float((data.test_labels == model).mean())
    return float((model.predict(data.test_inputs) == data.test_labels).mean())


if __name__ == "__main__":
    main()
