"""The votes that authors of PATE papers published, and what accountants say of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from benchmarks.papers.paper import Task
from protocols.array_files import read_array
from protocols.budgets.accountant import default_accountant
from protocols.errors import DataUnavailable
from protocols.mechanisms import ONE_VOTE, Mechanism
from protocols.mechanisms.confident_gnmax import ConfidentGNMax
from protocols.research import DATA_DEPENDENT
from protocols.research.data_dependent import Figures, QueryVotes, Units
from simulations.datasets.sources import DataSource, data_folder
from simulations.private import worst_case_epsilon

VOTES = DataSource(
    folder="pate_votes",
    url="https://github.com/frhrdr/patepy, test_application/pate2018_test_data, and "
    "https://github.com/npapernot/multiple-teachers-for-privacy",
    steps="copy mnist_250_teachers.npy and adult_250_teachers.npy to pate2018/ in it, and "
    "mnist_250_student_labels_lap_20.npy to pate2017/",
)
DATA_DEPENDENT_MEANS = (
    "computed from the votes that were cast, as the paper printed it: private itself, and not publishable"
)
WORST_CASE_MEANS = (
    "worst case over all votes, if every query that was asked were answered, for ideal noise: it may be published; a "
    "study also sets aside what float64 noise takes of delta"
)
NO_VOTES = "the votes are not published"


def published_array(task: Task, name: str) -> ndarray:
    """An array of the folder of published votes. Raises DataUnavailable, DataCorrupt."""
    root = data_folder(task.host.data_dir)
    assert root is not None  # a part that reads votes needs them, and that was checked
    path = root / VOTES.folder / name
    if not path.is_file():
        raise DataUnavailable(f"{path} is missing; to get it: {VOTES.steps} (from {VOTES.url})")
    return read_array(path)


def published_counts(task: Task, dataset: str) -> Float64[ndarray, "queries classes"]:
    """The published counts of 250 teachers of "MNIST" or "Adult" on the pool's queries, in their order."""
    counts = published_array(task, f"pate2018/{dataset.lower()}_250_teachers.npy")
    return np.asarray(counts, dtype=np.float64)


def confident_figures(
    counts: Float64[ndarray, "queries classes"], mechanism: ConfidentGNMax, *, delta: float
) -> Figures:
    """What the accountant papernot2018 says of a record with one vote, all queries being answered."""
    evidence = QueryVotes(
        mechanism=mechanism,
        counts=counts,
        abstentions=False,
        answered=np.ones(len(counts), dtype=bool),
        student_votes=None,
    )
    units = Units(
        sensitivity=np.ones(1),
        cast=np.ones(int(counts[0].sum())),
        delta=np.array([delta]),
        present=np.ones((1, len(counts)), dtype=bool),
        own_votes=None,
    )
    return DATA_DEPENDENT["papernot2018"].figures(evidence, units).for_research()


def worst_case(
    mechanism: Mechanism, *, classes: int, queries: int, delta: float, delta_squared: int | float = ONE_VOTE
) -> float:
    """The worst-case epsilon of a record with one vote, if all of so many queries are asked and answered."""
    return worst_case_epsilon(
        default_accountant(mechanism, "label"), mechanism, np.ones(1), classes=classes, queries=queries, delta=delta,
        delta_squared=delta_squared,
    )  # fmt: skip


def afforded(epsilon_of: Callable[[int], float], epsilon: float) -> int:
    """How many queries cost at most epsilon; epsilon_of: so many, not decreasing."""
    most = 1
    while epsilon_of(2 * most) <= epsilon:
        most *= 2
    step = most
    while (step := step // 2) >= 1:
        if epsilon_of(most + step) <= epsilon:
            most += step
    return most
