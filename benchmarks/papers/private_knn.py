"""Private-kNN: students of MNIST and SVHN; with records that vote once, in the public queries nearest to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final  # Any: rows of a JSON file

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from benchmarks.papers.paper import Cell, Paper, PaperTable, Part, Task, over_seeds, printed_figures
from benchmarks.papers.students import predicted
from protocols.crypto.randomness import simulation_rng
from protocols.study.levels import Clear
from protocols.study.record_study import RecordVotesPlan, record_study
from protocols.study.study import Study
from protocols.sums.blocks import Blocks
from protocols.sums.contributions import said
from simulations.datasets.dataset import DatasetRequest, as_published
from simulations.datasets.published_images import load_mnist
from simulations.datasets.sources import published
from simulations.setup.budgets import parse_budgets
from simulations.stages.inputs import Host
from simulations.stages.label import SeedResult
from simulations.stages.record_cells import RecordCells
from simulations.stages.record_votes import label_record_seed

NAME: Final = "private_knn"
_PARTIES: Final = 250
# Of the 10, 000 test images, at random: with the others the student is tested.
_POOL: Final = 2000
_QUERIES: Final = 400
_DELTA: Final = 1e-5
# A student takes half a minute of a core.
_MOST_STUDENTS: Final = 3
_STUDENT: Final = "cnn"
_SMALL: Final = 0.1
_MEANS: Final = (
    "of sums of votes at this epsilon, a worst case of neighbours that replace one record, which may be published; the "
    "paper's neighbours add or remove one, and its records are sampled"
)
_OTHER: Final = "sums of votes, where every private record votes once"


def paper() -> Paper:
    """What is computed of the paper."""
    rows = printed_figures(NAME)["rows"]
    return Paper(
        name=NAME,
        title="Private-kNN: Practical Differential Privacy for Computer Vision",
        citation="Zhu, Yu, Chandraker & Wang, CVPR 2020; and rKNN: Li et al. 2022, arXiv 2207.13253",
        link="https://github.com/jeremy43/Private_kNN",
        about=(
            "Printed: k nearest records of a random sample label each query. Ours: each private record votes once, in "
            f"the nearest of {_QUERIES} centres of {_POOL:,} public images; {_PARTIES} parties hold the 60,000 private "
            "images, and the student learns the soft labels of the public ones.",
            "At epsilon 0.1 nothing is compared: what the paper on rKNN printed there could not be checked.",
        ),
        tables=(
            PaperTable(
                "table-1",
                "Students at the paper's epsilon",
                (
                    *(_part(row) for row in rows),
                    Part(_name("MNIST", _SMALL), partial(_measured, _SMALL, None), (published("mnist").source,)),
                ),
            ),
        ),
    )


def _name(dataset: str, epsilon: float) -> str:
    return f"{dataset}, epsilon {epsilon:g}"


def _part(row: dict[str, Any]) -> Part:
    name = _name(row["dataset"], row["eps"])
    if row["dataset"] == "MNIST":
        return Part(name, partial(_measured, row["eps"], 100 * row["student"]), (published("mnist").source,))
    return Part(name, partial(_not_had, row))


def _not_had(row: dict[str, Any], task: Task) -> Sequence[Cell]:
    return [
        Cell(row=_name(row["dataset"], row["eps"]), figure="student", unit="percent", printed=100 * row["student"],
             ours=None, why="SVHN cannot be had")
    ]  # fmt: skip


def _measured(epsilon: float, printed: float | None, task: Task) -> Sequence[Cell]:
    right: list[float] = []
    students: list[float] = []
    for seed in task.seeds:
        found = _split(task.host, seed)
        labelled = label_record_seed(
            _study(found, epsilon), found.cells, pool=found.pool, seed=seed, dropout=0.0, truth=found.pool_labels
        )
        if labelled.label_accuracy is not None:
            right.append(100 * labelled.label_accuracy)
        if len(students) < _MOST_STUDENTS:
            students.append(_student(found, labelled, task.host))
    row = _name("MNIST", epsilon)
    return [
        Cell(row=row, figure="student", unit="percent", printed=printed, means=_MEANS, other=_OTHER,
             **over_seeds(students)),
        Cell(row=row, figure="labels of the pool", unit="percent", printed=None, **over_seeds(right)),
    ]  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Split:
    """MNIST as the study has it: where each private record votes, the public pool, and the images to test with."""

    cells: RecordCells
    pool: Float32[ndarray, "pool height width"]
    pool_labels: Int64[ndarray, " pool"]
    test: Float32[ndarray, "test height width"]
    test_labels: Int64[ndarray, " test"]

    @property
    def queries(self) -> Blocks:
        return self.cells.map


@lru_cache(maxsize=5)  # for both epsilons
def _split(host: Host, seed: int) -> _Split:
    """Each seed draws pool and test images, the queries and who holds which private image."""
    from coordinator.queries.choice import cluster_queries
    from coordinator.queries.features import features_for

    data = load_mnist(DatasetRequest(seed=0, data_dir=host.data_dir), as_published)
    images = np.concatenate([data.public_inputs, data.test_inputs])
    labels = np.concatenate([data.public_labels, data.test_labels])
    pool, test = np.split(simulation_rng(seed, "pool").permutation(len(images)), [_POOL])
    features = features_for(images[pool], "auto", seed=seed)
    queries = cluster_queries(images[pool], features, queries=_QUERIES, seed=seed)
    where = said(queries, data.private_inputs, data.private_labels, classes=data.classes)
    dealt = np.array_split(simulation_rng(seed, "parties").permutation(len(where)), _PARTIES)
    cells = RecordCells(data.labelled, len(where), queries, tuple(where[each] for each in dealt), (None,) * _PARTIES)
    return _Split(cells, images[pool], labels[pool], images[test], labels[test])


def _study(found: _Split, epsilon: float) -> Study:
    plan = RecordVotesPlan(
        name=NAME,
        classes=found.cells.labelled.columns(signed=False),
        unit="record",
        population=found.cells.population,
        queries=found.queries,
        rule="uniform",
        level=Clear(),
        quorum=_PARTIES,
    )
    seats = parse_budgets(f"{epsilon}", parties=_PARTIES, delta=_DELTA, seed=0)
    return record_study(plan, names=seats.names, epsilon=seats.epsilon, delta=seats.delta)


def _student(found: _Split, labelled: SeedResult, host: Host) -> float:
    """How often the student of one seed is right, in percent."""
    assert labelled.soft is not None  # sums were released: the budget affords the one batch
    targets = labelled.soft.probabilities.astype(np.float32)
    right = predicted(host, _STUDENT, found.pool, targets, found.test, seed=labelled.seed)
    return 100 * float((right == found.test_labels).mean())
