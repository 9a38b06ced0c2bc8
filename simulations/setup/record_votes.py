"""What an experiment fixes where records vote: which settings apply, the public queries, the units and the study."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from coordinator.queries.choice import BOTH, COLUMNS, QueryChoice, make_queries
from protocols.errors import InvalidInput
from protocols.study.chosen import GIVEN
from protocols.study.column_queries import bare_columns
from protocols.study.query_map import QueryMap
from protocols.study.record_study import RecordVotesPlan, record_study
from protocols.study.study import Study
from protocols.study.votes import TeacherVotes, UnitSums
from simulations.datasets.dataset import Dataset
from simulations.setup.budgets import Budgets
from simulations.setup.levels import simulated_level

if TYPE_CHECKING:
    from simulations.setup.experiment import Experiment

# Settings that have a meaning for teachers' votes only, and those for record votes only.
OF_TEACHERS = (
    "questions teachers_per_party votes votes_kind labels accountant mechanism individualization stop answer_rate "
    "retrainings teacher_features"
).split()
OF_RECORDS = "record_queries bins nearest partitions features".split()


@dataclass(frozen=True)
class Voters:
    """What the settings of an experiment mean with one kind of voters.

    check: raises InvalidInput for a setting that has no effect, or no meaning, with them, given the settings that
    somebody chose, by name; assumed: settings that are not given; usual_noise: whether noise that is not given is the
    usual one; counted: settings on which their votes depend; curve: whether a plan has a curve of labels; rehearsed:
    flags of --optimise that a plan has without it.
    """

    check: Callable[[Experiment, dict[str, object]], None]
    assumed: Mapping[str, object]
    usual_noise: bool
    counted: frozenset[str]
    curve: bool
    rehearsed: tuple[str, ...]


def check_teachers(settings: Experiment, given: dict[str, object]) -> None:
    """Raises InvalidInput for a setting that has no effect, or no meaning, where teachers vote."""
    if settings.unit == "patient":
        raise InvalidInput("unit is 'patient'; allowed where teachers vote: record, party (or votes_by 'record')")
    learns = settings.teacher_features or settings.student_features
    if learns and settings.features is None:
        raise InvalidInput(
            "features is not given; allowed with teacher_features or student_features: what they learn from, "
            "such as auto"
        )
    of_records = [name for name in OF_RECORDS if name != "features" or (settings.questions == GIVEN and not learns)]
    idle = [name for name in of_records if given.get(name) is not None]
    if idle:
        chosen = (
            ", or with questions that are chosen, teacher_features or student_features" if idle[0] == "features" else ""
        )
        raise InvalidInput(
            f"{idle[0]} is {given[idle[0]]!r}; allowed with votes_by 'record' only{chosen}: leave it out"
        )
    if settings.features is not None and settings.votes is not None:
        raise InvalidInput(f"features is {settings.features!r}; allowed: none with stored votes, which are cast")


def check_records(settings: Experiment, given: dict[str, object]) -> None:
    """Raises InvalidInput for a setting that has no effect, or no meaning, where records vote."""
    idle = [name for name in (*OF_TEACHERS, *settings.parameters) if given.get(name) is not None]
    if idle:
        raise InvalidInput(
            f"{idle[0]} is {given[idle[0]]!r}; allowed with votes_by 'teacher' only: leave it out (where records vote, "
            "the mechanism is Gaussian noise on sums, the least that every budget affords)"
        )
    if settings.student_features and (settings.record_queries or "").startswith(COLUMNS):
        raise InvalidInput("student_features is True; allowed with record_queries clusters:N only, which have features")
    if settings.view != "histogram":
        raise InvalidInput(f"view is {settings.view!r}; allowed with votes_by 'record': histogram")


# By votes_by.
VOTERS: Mapping[str, Voters] = {
    TeacherVotes.by: Voters(
        check=check_teachers, assumed={}, usual_noise=True, counted=frozenset(), curve=True, rehearsed=()
    ),
    # What is released are sums: there is no other view.
    UnitSums.by: Voters(
        check=check_records,
        assumed={"view": UnitSums.view},
        usual_noise=False,
        counted=frozenset({"unit", "confidentiality", "units"}),
        curve=False,
        rehearsed=("accuracy",),
    ),
}


def query_map(settings: Experiment, dataset: Dataset, *, population: int) -> QueryMap:
    """The public queries of the experiment, made of the public pool and constants alone.

    columns: the cells of a table's columns; clusters:N: the centres of N clusters of the pool; columns+clusters:N:
    both. Raises InvalidInput for queries that the data do not have, and for settings that do not go with them.
    """
    images = dataset.kind == "image"
    kind = settings.record_queries or ("columns" if dataset.has_cells else f"clusters:{usual_clusters(dataset)}")
    if kind.partition(":")[0] in (COLUMNS, BOTH) and not dataset.has_cells:
        has = "images" if images else "text"
        raise InvalidInput(f"record_queries is {kind!r}; allowed for {dataset.name}, which has {has}: clusters:N")
    pool = dataset.public_inputs
    columns = () if images else dataset.columns or bare_columns(pool.shape[1])
    choice = QueryChoice(
        kind=kind,
        bins=settings.bins,
        nearest=settings.nearest,
        partitions=settings.partitions,
        features=settings.features,
        seed=None if kind == COLUMNS else settings.data_seed,
    )
    return make_queries(pool, columns, choice, population=population)


def units_of(unit: str, dataset: Dataset, records: Int64[ndarray, " records"]) -> Int64[ndarray, " records"] | None:
    """The number of the protected unit of each of these records; None: each is one of its own."""
    if unit == "party":
        return np.zeros(len(records), dtype=np.int64)
    if unit == "record":
        return None
    if dataset.private_patients is None:
        raise InvalidInput(f"unit is 'patient'; allowed for {dataset.name}, which names no patients: record, party")
    return dataset.private_patients[records]


def seat_units(unit: str, dataset: Dataset, shards: list[Int64[ndarray, " records"]]) -> int:
    """How many protected units have records at a seat; where all of a party's data are one unit, how many records."""
    records = np.concatenate(shards)
    units = None if unit == "party" else units_of(unit, dataset, records)
    return len(records) if units is None else len(np.unique(units))


def population_of(unit: str, dataset: Dataset, seats: int) -> int:
    """How many protected units all parties have together, which replace-one makes public."""
    if unit == "party":
        return seats
    units = units_of(unit, dataset, np.arange(len(dataset.private_labels)))
    return len(dataset.private_labels) if units is None else len(np.unique(units))


def make_record_study(
    settings: Experiment, budgets: Budgets, *, classes: int, queries: QueryMap, population: int
) -> Study:
    """The study of an experiment in which records vote. Raises InvalidInput for settings that do not go together."""
    seats = len(budgets.names)
    level = simulated_level(settings.confidentiality, units=settings.units, colluders=settings.colluders, seats=seats)
    plan = RecordVotesPlan(
        name=f"{settings.dataset}-{settings.parties}",
        classes=classes,
        unit=settings.unit,
        population=population,
        queries=queries,
        rule=settings.weight_rule,
        level=level,
        quorum=settings.quorum or level.usual_quorum(seats),
    )
    return record_study(plan, names=budgets.names, epsilon=budgets.epsilon, delta=budgets.delta)


def usual_clusters(dataset: Dataset) -> int:
    """One centre for about six public records: enough that a cluster's records mostly share a class."""
    return max(2, len(dataset.public_labels) // 6)
