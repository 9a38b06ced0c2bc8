r"""What students learn from the first questions: as the pool has them, by coverage, and by uncertainty.

    CONCLAVE_DATA=... python benchmarks/questions.py mnist adult garments glyphs > tests/vectors/measured/questions.csv

mnist: the votes that Papernot et al. 2018 published, epsilon 1.97, sigma 58.5, T = 152, the noise that
docs/how-to/choose-a-student.md says how to find; the pool is MNIST's first 9,000 test images in an order that the seed
draws, the test part the last 1,000. The others: 100 parties of 100 private records each, epsilon 4, the simulator's
noise, and data, parties and noise anew for each seed; on adult logistic regressions and a pool of 3,000, on garments
and glyphs nearest centroids and a pool of 2,000. Delta 1e-5, uniform weights, Thresholded GNMax under
exact_composition, which charges a question alike whether it is answered or not. 20 questions are asked at a time.
`pip install ./benchmarks` adds the data set garments.

A row for each figure of each seed, with its row and column in the table of docs/how-to/choose-a-student.md: in each
cell the accuracy on the test part of two students that learn from the features by which questions are compared, the
labels released, and the share of them that is right.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from coordinator.queries.features import features_for
from coordinator.queries.questions import UncertainFirst, most_covering
from coordinator.students import student_kind
from coordinator.students.student import one_hot
from protocols.features.feature_map import FeatureMap
from protocols.labelling.questions import Choose
from protocols.labelling.stored_votes import CastVotes, StoredVotes, VoteCounts, load_labels, load_votes
from protocols.study.terms import Feature
from simulations.progress import Reporter
from simulations.setup.experiment import Experiment, experiment, experiment_budgets, make_study
from simulations.stages.inputs import DatasetInputs, Host, read_inputs
from simulations.stages.label import label_seed
from simulations.stages.vote_source import votes_source

NAMES = ("mnist", "adult", "garments", "glyphs")
ORDERS = ("given", "coverage", "uncertainty")
ASKED = (60, 200)
STUDENTS = ("logistic_regression", "random_forest")
SEEDS = 5
_BATCH = 20
_COMMON = {"weights": "uniform", "accountant": "exact_composition", "questions": f"uncertainty:{_BATCH}"}
_DATA: dict[str, dict[str, object]] = {
    "adult": {"queries": 3000, "teacher": "logistic_regression"},
    "garments": {"queries": 2000, "teacher": "nearest_centroid"},
    "glyphs": {"queries": 2000, "teacher": "nearest_centroid"},
}


@dataclass(frozen=True, eq=False)
class Case:
    """Votes on a public pool, and what students are tested on."""

    settings: Experiment
    stored: StoredVotes
    pool: Float32[ndarray, "pool ..."]
    truth: Int64[ndarray, " pool"]
    test: Float32[ndarray, "test ..."]
    test_labels: Int64[ndarray, " test"]
    columns: tuple[Feature, ...]

    @cached_property
    def features(self) -> FeatureMap:
        """What questions are compared by, and students learn from."""
        return features_for(self.pool, "auto", columns=self.columns, seed=0)

    @cached_property
    def pool_features(self) -> Float32[ndarray, "pool features"]:
        """Those of the pool."""
        return self.features(self.pool)


def main() -> None:
    """Writes the rows as CSV."""
    print("row,column,figure,seed,value", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[1:]:
            for seed in range(SEEDS):
                case = _mnist(seed) if name == "mnist" else _drawn(name, seed, Path(folder))
                for column, order in enumerate(ORDERS, 3):
                    for row, figures in enumerate(_figures(case, order, seed), 1 + len(ASKED) * NAMES.index(name)):
                        for figure, value in enumerate(figures, 1):
                            print(f"{row},{column},{figure},{seed},{value:.4f}", flush=True)


def _figures(case: Case, order: str, seed: int) -> list[list[float]]:
    """Those of a cell, for each number of questions."""
    study = make_study(
        case.settings, experiment_budgets(case.settings), classes=case.stored.classes, queries=len(case.pool)
    )
    made = label_seed(
        study, case.stored, seed=seed, dropout=0.0, truth=case.truth, choose=_choose(case, order)
    ).labelling
    pool, test, rows = case.pool_features, case.features(case.test), []
    for asked in ASKED:
        first = (made.batch_of >= 0) & (made.batch_of < asked // _BATCH)
        if first.sum() != asked:
            raise SystemExit(f"{first.sum()} questions were asked; wanted: {asked}")
        has = np.flatnonzero(first & (made.labels >= 0))
        accuracies = []
        for kind in STUDENTS:
            student = student_kind(kind, device="cpu").fit(
                pool[has],
                one_hot(made.labels[has], study.classes),
                unlabelled=pool[:0],
                classes=study.classes,
                seed=seed,
            )
            accuracies.append(float((student.predict(test) == case.test_labels).mean()))
        rows.append([*accuracies, len(has), float((made.labels[has] == case.truth[has]).mean())])
    return rows


def _choose(case: Case, order: str) -> Choose:
    if order == "uncertainty":
        return UncertainFirst(case.pool_features)
    places = np.arange(len(case.pool))
    if order == "coverage":
        places = most_covering(case.pool_features, number=None, seed=0)

    def next_of(labels: Int64[ndarray, " pool"], left: Int64[ndarray, " left"], size: int) -> Int64[ndarray, " size"]:
        return places[np.isin(places, left)][:size]

    return next_of


def _mnist(seed: int) -> Case:
    data = Path(os.environ["CONCLAVE_DATA"])
    stored, parties = load_votes(
        data / "pate_votes/pate2018/mnist_250_teachers.npy", kind=None, classes=None, parties=250
    )
    truth = load_labels(f"{data / 'mnist/mnist.npz'}:y_test", queries=stored.queries, classes=10)
    with np.load(data / "mnist/mnist.npz") as archive:
        images, classes = archive["x_test"].astype(np.float32) / 255, archive["y_test"].astype(np.int64)
    assert isinstance(stored, VoteCounts)  # as published
    drawn = np.random.default_rng(seed).permutation(stored.queries)
    settings = experiment(parties=parties, budgets="1.97", sigma=58.5, threshold=152.0, **_COMMON)
    counts, pool = VoteCounts(10, stored.counts[drawn]), images[: stored.queries][drawn]
    return Case(settings, counts, pool, truth[drawn], images[stored.queries :], classes[stored.queries :], ())


def _drawn(name: str, seed: int, cache: Path) -> Case:
    settings = experiment(
        dataset=name, parties=100, budgets="4", private_size=10_000, data_seed=seed, **_DATA[name], **_COMMON
    )
    host = Host(data_dir=Path(os.environ["CONCLAVE_DATA"]), cache_dir=cache, engine="in_process", workers=1)
    inputs = read_inputs(settings, host=host, reporter=Reporter(quiet=True))
    assert isinstance(inputs, DatasetInputs)  # no votes are given
    source = votes_source(inputs, host=host, reporter=Reporter(quiet=True))
    assert isinstance(source.stored, CastVotes)  # teachers vote
    data = inputs.dataset
    return Case(
        settings, source.stored, data.public_inputs, data.public_labels, data.test_inputs, data.test_labels,
        data.columns,
    )  # fmt: skip


if __name__ == "__main__":
    main()
