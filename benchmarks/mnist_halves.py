"""Graded votes, record votes and rKNN (Li et al. 2022, arXiv 2207.13253) on MNIST, at the protocol of rKNN.

    python -m benchmarks.mnist_halves --data-dir DATA --cache-dir runs/halves --rows runs/halves.csv

Each seed draws 5,000 of the 10,000 test images as the public pool and tests with the others; 250 parties hold the
60,000 training images. All have the same features of the pool. rKNN: each record votes for its class in the nearest of
10 to 100 clusters of the pool (k = 1), and each cluster, or the image nearest to its centre, has the class of the
largest count with Laplace noise of scale 2 k / epsilon on each. The labels of such images spread over the pool as those
of the student `propagation` do. The student of each method is a `cnn` of the pool's labels, as is usual for so many.
--rows is added to: row and column of the table of benchmarks/every-method.md, a 1, the seed, and the value.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Final

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from benchmarks.papers.students import predicted
from coordinator.labelling.soft_labels import SoftLabels
from coordinator.queries.choice import GRADED, QueryChoice, cluster_queries, clusters, make_queries
from coordinator.queries.features import features_for
from coordinator.students.propagation import certain, propagated
from protocols.crypto.randomness import simulation_rng
from protocols.study.findings import OneLabel
from protocols.study.levels import Clear
from protocols.study.record_study import ANY_SIGNED, RecordVotesPlan, record_study
from protocols.study.released_noise import noise_of_mean
from protocols.study.study import Study
from protocols.sums.blocks import NORM_STEPS, Blocks
from simulations.datasets.dataset import Dataset, DatasetRequest, as_published
from simulations.datasets.published_images import load_mnist
from simulations.setup.budgets import parse_budgets
from simulations.stages.inputs import Host
from simulations.stages.record_cells import RecordCells
from simulations.stages.record_votes import label_record_seed

_PARTIES: Final = 250
_POOL: Final = 5000
DELTA: Final = 1e-5
# Queries of record votes: docs/how-to/choose-features.md.
_CELLS: Final = 800
_CLUSTERS: Final = (10, 30, 100)
_SPREAD: Final = "spread"
_STUDENT: Final = "cnn"
_METHODS: Final = (
    "graded votes", *(f"rKNN, {number} clusters" for number in _CLUSTERS),
    f"rKNN, {_CLUSTERS[-1]} images, {_SPREAD}", "record votes",
)  # fmt: skip
_KINDS: Final = ("graded votes", "record votes", "rKNN")
_EPSILONS: Final = (0.1, 1.0)
# Columns of the table, after the method; as many again at the second epsilon.
_LABELS, _SCORES, _STUDENTS = 2, 3, 4


class Half:
    """One seed's pool and test images, and the features of all, made of the pool."""

    def __init__(self, data: Dataset, seed: int) -> None:
        images = np.concatenate([data.public_inputs, data.test_inputs])
        labels = np.concatenate([data.public_labels, data.test_labels])
        pool, test = np.split(simulation_rng(seed, "halves").permutation(len(images)), [_POOL])
        self.seed, self.classes = seed, data.classes
        self.pool, self.truth = images[pool], labels[pool]
        self.test, self.test_labels = images[test], labels[test]
        self.features = features_for(self.pool, "auto", seed=0)
        self.of_pool, self.of_test = self.features(self.pool), self.features(self.test)
        self.records, self.labels = self.features(data.private_inputs), data.private_labels


def main() -> None:
    """Prints and keeps the rows of each seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--epsilons", default="0.1,1")
    parser.add_argument("--methods", default=",".join(_KINDS), help="between commas [all]")
    parser.add_argument("--students", default=",".join(_KINDS), help="of which methods, at the smallest epsilon [all]")
    parser.add_argument("--cache-dir", type=Path, required=True, help="students that are not trained again")
    parser.add_argument("--rows", type=Path, required=True)
    asked = parser.parse_args()
    host = Host(data_dir=asked.data_dir, cache_dir=asked.cache_dir, engine="in_process", workers=1)
    data = load_mnist(DatasetRequest(data_dir=asked.data_dir, seed=0), as_published)
    epsilons = sorted(map(float, asked.epsilons.split(",")))
    for seed in map(int, asked.seeds.split(",")):
        half = Half(data, seed)
        for row, column, value in _rows(half, epsilons, asked.methods.split(","), asked.students.split(","), host):
            print(f"seed {seed}, row {row}, column {column}: {value:.4f}", flush=True)
            with asked.rows.open("a", encoding="utf-8", newline="") as file:
                csv.writer(file, lineterminator="\n").writerow((row, column, 1, seed, f"{value:.4f}"))


def _rows(
    half: Half, epsilons: list[float], kinds: list[str], students: list[str], host: Host
) -> Iterator[tuple[int, int, float]]:
    """Row and column of the table, and the share that is right."""
    soft: dict[tuple[str, float], ndarray] = {}
    for kind, epsilon in product(kinds, epsilons):
        if kind == "rKNN":
            soft |= {(name, epsilon): labels for name, labels in _rknn(half, epsilon)}
            continue
        soft[kind, epsilon], right = _of_sums(half, epsilon, kind)
        if right is not None:
            yield *_cell(kind, epsilon, _SCORES), right
    right_of = {each: float((labels.argmax(axis=1) == half.truth).mean()) for each, labels in soft.items()}
    for (name, epsilon), share in right_of.items():
        yield *_cell(name, epsilon, _LABELS), share
    for kind in students:
        # Of rKNN those labels that are best on the pool: at its best, as nobody could choose so.
        found = max((each for each in soft if each[0].startswith(kind) and each[1] == epsilons[0]), key=right_of.get)
        answers = predicted(host, _STUDENT, half.pool, soft[found], half.test, seed=half.seed)
        yield *_cell(*found, _STUDENTS), float((answers == half.test_labels).mean())


def _cell(name: str, epsilon: float, column: int) -> tuple[int, int]:
    """Row and column of the table."""
    return 1 + _METHODS.index(name), column + 3 * _EPSILONS.index(epsilon)


def _of_sums(half: Half, epsilon: float, kind: str) -> tuple[Float32[ndarray, "pool classes"], float | None]:
    """The soft labels of the pool, and how often the scores, if there are any, are right about the test images."""
    if kind == "graded votes":
        return of_graded(half, epsilon, graded_queries(half, epsilon), parties=_PARTIES)
    queries = cluster_queries(half.pool, half.features, queries=_CELLS, seed=0)
    spoken = queries.cells(half.records) * half.classes + half.labels[:, None]
    found = _released(half, _study(half, epsilon, queries), queries, spoken)
    return found.probabilities.astype(np.float32), None


def graded_queries(half: Half, epsilon: float) -> Blocks:
    """The features that graded votes choose for this pool, 60,000 records and epsilon."""
    return make_queries(
        half.pool, (), QueryChoice(kind=GRADED), population=len(half.labels), classes=half.classes,
        noise=noise_of_mean(_study(half, epsilon, ANY_SIGNED)),
    )  # fmt: skip


def of_graded(
    half: Half, epsilon: float, queries: Blocks, *, parties: int, residuals: bool = False
) -> tuple[Float32[ndarray, "pool classes"], float]:
    """As _of_sums, of graded votes; residuals: of two sums."""
    spoken = np.concatenate([half.labels[:, None], queries.phi(half.records)], axis=1)
    study = _study(half, epsilon, queries, parties=parties, residuals=residuals)
    found = _released(half, study, queries, spoken)
    assert found.scores is not None  # features are graded
    scores = found.scores.scores(queries.phi(half.of_test) / NORM_STEPS)
    return found.probabilities.astype(np.float32), float((scores.argmax(axis=1) == half.test_labels).mean())


def _released(half: Half, study: Study, queries: Blocks, spoken: Int64[ndarray, "records cells"]) -> SoftLabels:
    parties = len(study.roster)
    dealt = np.array_split(simulation_rng(half.seed, "parties").permutation(len(spoken)), parties)
    said_by = tuple(spoken[each] for each in dealt)
    cells = RecordCells(OneLabel(half.classes), len(spoken), queries, said_by, (None,) * parties)
    found = label_record_seed(study, cells, pool=half.pool, seed=half.seed, dropout=0.0, truth=None).soft
    assert found is not None  # the budget affords the one sum
    return found


def _study(half: Half, epsilon: float, queries: Blocks, *, parties: int = _PARTIES, residuals: bool = False) -> Study:
    plan = RecordVotesPlan(
        name="halves", classes=half.classes, unit="record", population=len(half.labels), queries=queries,
        rule="uniform", level=Clear(), quorum=parties, residuals=residuals,
    )  # fmt: skip
    seats = parse_budgets(f"{epsilon}", parties=parties, delta=DELTA, seed=half.seed)
    return record_study(plan, names=seats.names, epsilon=seats.epsilon, delta=seats.delta)


def _rknn(half: Half, epsilon: float) -> Iterator[tuple[str, Float32[ndarray, "pool classes"]]]:
    """The labels of the pool by clusters, one hot, and those that spread from the images nearest to the centres."""
    rng = np.random.default_rng([half.seed, *b"rKNN"])
    for number in _CLUSTERS:
        centres = clusters(half.of_pool, number, drawn=half.seed)
        counts = np.zeros((number, half.classes))
        np.add.at(counts, (_nearest(half.records, centres), half.labels), 1)
        # A record that is replaced moves two counts by 1 each.
        named = (counts + rng.laplace(scale=2 / epsilon, size=counts.shape)).argmax(axis=1)
        one_hot = np.eye(half.classes, dtype=np.float32)[named]
        yield f"rKNN, {number} clusters", one_hot[_nearest(half.of_pool, centres)]
    images, first = np.unique(_nearest(centres, half.of_pool), return_index=True)
    rest = np.setdiff1d(np.arange(_POOL), images)
    order = np.concatenate([images, rest])
    spread = np.empty((_POOL, half.classes), np.float32)
    spread[order] = certain(propagated(half.pool[order], one_hot[first], seed=half.seed))
    yield _METHODS[-2], spread


def _nearest(
    rows: Float32[ndarray, "rows features"], to: Float32[ndarray, "points features"]
) -> Int64[ndarray, " rows"]:
    """The place of the nearest point to each row."""
    squares = (to.astype(np.float64) ** 2).sum(axis=1)
    return np.concatenate([
        (squares - 2 * part @ to.T.astype(np.float64)).argmin(axis=1)
        for part in np.array_split(rows.astype(np.float64), -(-len(rows) // 10_000))
    ])  # fmt: skip


if __name__ == "__main__":
    main()
