"""What papers do with votes: cast them, release labels, train students and models without privacy, by the simulator's
own stages, so that all of it is cached."""

from __future__ import annotations

from functools import partial

import numpy as np
from jaxtyping import Float64, Int64, Integer
from numpy import ndarray

from coordinator.students.targets import one_hot
from protocols.crypto.randomness import simulation_rng
from protocols.mechanisms import Mechanism
from protocols.noise import simulated
from protocols.votes import count_votes
from simulations.datasets.dataset import Dataset
from simulations.engines import open_engine
from simulations.papers.paper import Task
from simulations.setup.partition import parse_partition, partition
from simulations.stages.cast import cast_votes
from simulations.stages.students import ReleasedStudent, pooled_student


def ensemble_votes(
    task: Task, dataset: Dataset, *, teachers: int, kind: str, seed: int
) -> Integer[ndarray, "teachers one queries"]:
    """The votes of so many teachers on the public queries; each learns an equal, random and disjoint part of the
    private records. seed: of partition and teachers.
    """
    parts = partition(dataset, parties=teachers, scheme=parse_partition("iid"), seed=seed)
    with task.reporter.stages() as on_stage:
        cast = cast_votes(
            dataset,
            [[part] for part in parts],
            teacher=kind,
            seed=seed,
            engine=partial(open_engine, task.host.engine, workers=task.host.workers),
            cache_dir=task.host.cache_dir,
            on_stage=on_stage,
        )
    return cast.votes


def counts_of(votes: Integer[ndarray, "teachers one queries"], *, classes: int) -> Float64[ndarray, "queries classes"]:
    """How many teachers voted for each class."""
    return count_votes(votes, np.ones(len(votes)), classes=classes)


def released(
    mechanism: Mechanism, counts: Float64[ndarray, "queries classes"], *, seed: int
) -> Int64[ndarray, " queries"]:
    """The labels of the mechanism with the noise of a seed, ABSTAIN where it gave none. Nothing is charged."""
    return mechanism.labels(counts, simulated(simulation_rng(seed, "noise")), view="label")


def student_accuracy(
    task: Task, dataset: Dataset, labels: Int64[ndarray, " queries"], *, kind: str, seed: int
) -> float:
    """The accuracy in percent, on the test part, of a student of the labels of the first public queries.

    labels: of the first queries, ABSTAIN or NOT_ASKED where there is none; at least one is there.
    """
    positions = np.flatnonzero(labels >= 0)
    targets = one_hot(labels[positions], dataset.classes)
    student = ReleasedStudent(dataset, positions, targets, student=kind, seed=seed, cache_dir=task.host.cache_dir)
    accuracy = student.accuracy()
    assert accuracy is not None  # there are labels
    return 100 * accuracy


def without_privacy(task: Task, dataset: Dataset, *, kind: str, seed: int) -> float:
    """The accuracy in percent, on the test part, of the same kind of model of all private records."""
    accuracy = pooled_student(dataset, student=kind, seed=seed, cache_dir=task.host.cache_dir).accuracy()
    assert accuracy is not None  # there are records
    return 100 * accuracy
