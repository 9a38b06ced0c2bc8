"""Record votes on tables: the student of soft labels, each hospital alone, and all records pooled without privacy.

    python benchmarks/record_votes.py --dataset heart_disease --seeds 10 --epsilons 0.5,1

Sites of the data set are the parties, but those of one record, which cannot take part; a data set without sites is
cut at random into --parties. The study runs live, between Party objects and a Coordinator with ledgers of their own,
at level `clear`. The student is the usual one for so many units, or of the kind --student; a hospital alone and all
pooled are logistic regressions. All accuracies are on the same test records, and nothing is chosen by them. Each line
is a mean over seeds of the split, with the half-width of its 95 % interval; with --draws above 1 each seed is the
mean of so many draws of the noise. "Beats" counts the studies whose student is above the hospital that turned out
best. With --rows FILE each seed is a line of FILE, too: dataset,epsilon,what,seed,accuracy; FILE is added to.
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from coordinator.queries.choice import drawn_pool
from coordinator.students import STUDENTS, student_kind, usual_table_student
from coordinator.students.student import Student
from protocols.study.column_queries import bare_columns, column_queries, usual_bins
from protocols.study.levels import Clear
from protocols.study.record_study import RecordVotesPlan, record_study
from simulations import datasets
from simulations.datasets.dataset import Dataset, DatasetRequest
from simulations.setup.experiment import population_of
from simulations.setup.partition import BySite, Iid, partition
from simulations.stages.label import mean_and_interval
from simulations.stages.record_votes import contributions, live_record_votes, soft_pool_labels

_TABLES = ("heart_disease", "adult", "diabetes130", "eicu_demo", "breast_cancer", "digits")
_DELTA = 1e-5


@dataclass(frozen=True, eq=False)
class _Split:
    """One seed's data, the records of each party, and the accuracies of what is compared with the student."""

    data: Dataset
    rows: list[Int64[ndarray, " records"]]
    alone: list[float]
    pooled: float


def main() -> None:
    """One table per epsilon."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", choices=_TABLES, default="heart_disease")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--epsilons", default="0.5,1")
    parser.add_argument("--parties", type=int, default=8)
    parser.add_argument("--unit", choices=("record", "patient"), default="record")
    parser.add_argument("--student", choices=tuple(STUDENTS))
    parser.add_argument("--bins", type=int)
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--without-pool", action="store_true", help="queries and student of rows drawn from constants")
    asked = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    splits = [_split(asked, seed) for seed in range(asked.seeds)]
    sizes = [len(each) for each in splits[0].rows]
    print(
        f"{asked.dataset}: {len(sizes)} parties of {min(sizes)} to {max(sizes)} records, {sum(sizes)} in all (seed 0)"
    )
    for epsilon in (float(each) for each in asked.epsilons.split(",")):
        asked_for = f"unit {asked.unit}, student {asked.student or 'usual'}, bins {asked.bins or 'usual'}"
        print(f"\n{asked.dataset}, epsilon {epsilon:g}, {asked_for}, {asked.seeds} seeds of {asked.draws}")
        studies = [_students(asked, epsilon, seed, split) for seed, split in enumerate(splits)]
        best = [max(split.alone) for split in splits]
        for what, values in (
            ("student of record votes", [np.mean(accuracies) for accuracies, _ in studies]),
            ("best hospital alone", best),
            ("mean hospital", [np.mean(split.alone) for split in splits]),
            ("pooled", [split.pooled for split in splits]),
        ):
            if asked.rows:
                with asked.rows.open("a") as file:
                    file.writelines(
                        f"{asked.dataset},{epsilon:g},{what},{seed},{value:.6f}\n" for seed, value in enumerate(values)
                    )
            mean, half = mean_and_interval(np.array(values))
            print(f"  {what:24} {mean:.4f}" + (f" +- {half:.4f}" if half is not None else ""))
        beaten = sum(each > most for (accuracies, _), most in zip(studies, best, strict=True) for each in accuracies)
        print(f"  beats the best hospital in {beaten} of {asked.seeds * asked.draws}")
        took = np.mean([seconds for _, seconds in studies])
        print(f"  contributions, study and soft labels {took:.2f} s a study", flush=True)


def _split(asked: argparse.Namespace, seed: int) -> _Split:
    data = _flat(datasets.load(asked.dataset, DatasetRequest(data_dir=asked.data_dir, seed=seed)))
    if data.private_sites is None:
        rows = partition(data, parties=asked.parties, scheme=Iid(), seed=seed)
    else:
        rows = [each for each in partition(data, parties=None, scheme=BySite(), seed=seed) if len(each) > 1]
    alone = [_accuracy(_alone(data.private_inputs[each], data.private_labels[each]), data) for each in rows]
    return _Split(data, rows, alone, _accuracy(_alone(data.private_inputs, data.private_labels), data))


def _students(asked: argparse.Namespace, epsilon: float, seed: int, split: _Split) -> tuple[list[float], float]:
    """The accuracy of the student of each draw of the noise, and seconds a study."""
    data, rows = split.data, split.rows
    began = time.perf_counter()
    population = population_of(asked.unit, data, len(rows))
    columns = data.columns or bare_columns(data.public_inputs.shape[1])
    pool = drawn_pool(columns, records=len(data.public_inputs), seed=seed) if asked.without_pool else data.public_inputs
    queries = column_queries(pool, columns, bins=asked.bins or usual_bins(population))
    plan = RecordVotesPlan(
        name=asked.dataset,
        classes=data.classes,
        unit=asked.unit,
        population=population,
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
    sums = contributions(study, queries, holdings)
    soft = [
        soft_pool_labels(
            study, live_record_votes(study, sums, seed=seed + draw * asked.seeds), queries, pool, records=population
        )
        for draw in range(asked.draws)
    ]
    took = (time.perf_counter() - began) / asked.draws
    kind = student_kind(asked.student or usual_table_student(population), device="cpu")
    found = []
    for each in soft:
        student = kind.fit(
            pool, each.probabilities.astype(np.float32), unlabelled=pool[:0], classes=data.classes, seed=seed
        )
        found.append(_accuracy(student, data))
    return found, took


def _flat(data: Dataset) -> Dataset:
    """Images as tables of pixels."""
    parts = ("private_inputs", "public_inputs", "test_inputs")
    return replace(
        data, kind="table", **{part: getattr(data, part).reshape(len(getattr(data, part)), -1) for part in parts}
    )


def _alone(
    inputs: Float32[ndarray, "records features"], labels: Int64[ndarray, " records"]
) -> LogisticRegression | int:
    """A logistic regression of these records; the one class there is where there is one."""
    if len(np.unique(labels)) < 2:
        return int(labels[0])
    return LogisticRegression(max_iter=1000).fit(inputs, labels)


def _accuracy(model: LogisticRegression | Student | int, data: Dataset) -> float:
    if isinstance(model, int):
        return float((data.test_labels == model).mean())
    return float((model.predict(data.test_inputs) == data.test_labels).mean())


if __name__ == "__main__":
    main()
