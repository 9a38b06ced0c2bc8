"""Plan a study of record votes: which public queries, and what its labels are expected to be worth.

Everything comes from public figures (hospitals, records of each, classes, columns, budgets) and from rehearsals: the
real study, with its noise and its soft labels, on stand-in tasks of the public pool (stand_ins.py). No private or test
record, and no true label, is in reach of anything here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from protocols.crypto.randomness import simulation_rng
from protocols.errors import InvalidInput
from protocols.study.query_map import QueryMap
from protocols.study.study import Study
from simulations.datasets.dataset import Dataset
from simulations.planning.stand_ins import StandIn, stand_in
from simulations.progress import Stage
from simulations.setup.budgets import Budgets
from simulations.setup.experiment import Experiment, experiment_budgets
from simulations.setup.partition import BySite, Iid, parse_partition
from simulations.setup.record_votes import make_record_study, population_of, query_map
from simulations.stages.inputs import party_count
from simulations.stages.record_cells import RecordCells
from simulations.stages.record_votes import label_record_seed

# Stand-in tasks that each candidate is rehearsed on; images take longer.
_REHEARSALS = {"table": 8, "image": 3}
# Candidates: cells of a column, clusters of the pool (at most a third of it), and in how many of them a record votes.
_BINS = (2, 3, 4, 6, 8)
_CLUSTERS = {"table": (12, 25, 50, 100, 200), "image": (100, 200, 400, 800, 1600)}
_NEAREST = (1, 3)


@dataclass(frozen=True, eq=False)
class Publics:
    """What is public: the pool, classes and columns (as a data set without private and test parts), and numbers.

    population: of protected units, which replace-one makes public; sizes: records of each hospital.
    """

    pool: Dataset = field(repr=False)
    population: int
    sizes: Int64[ndarray, " parties"]

    @classmethod
    def of(cls, settings: Experiment, dataset: Dataset) -> Publics:
        """The public part of a data set. Raises InvalidInput."""
        parties = party_count(settings, dataset)
        if isinstance(parse_partition(settings.partition), BySite) and dataset.private_sites is not None:
            sizes = np.bincount(dataset.private_sites, minlength=parties)
        else:
            sizes = np.full(parties, len(dataset.private_labels) // parties)
        if len(sizes) != parties or sizes.min() < 2:
            raise InvalidInput(f"hospitals have {sizes.min()} records and more; allowed where records vote: at least 2")
        nothing = slice(0, 0)
        pool = replace(
            dataset,
            private_inputs=dataset.private_inputs[nothing],
            private_labels=dataset.private_labels[nothing],
            public_labels=np.zeros(len(dataset.public_labels), dtype=np.int64),
            test_inputs=dataset.test_inputs[nothing],
            test_labels=dataset.test_labels[nothing],
            private_sites=None,
            private_patients=None,
        )
        return cls(pool, population_of(settings.unit, dataset, parties), sizes)

    def mapped(self, features: Float32[ndarray, "pool features"]) -> Publics:
        """The same with these features of the pool in place of images or text."""
        nothing = features[:0]
        pool = replace(self.pool, public_inputs=features, private_inputs=nothing, test_inputs=nothing)
        return replace(self, pool=replace(pool, kind="table", columns=()))


@dataclass(frozen=True, eq=False)
class Candidate:
    """Public queries, the study that has them, and what rehearsals found.

    given: the settings that name the queries; cell_labels: the share of stand-in records that lie in a query whose
    released label is that of its sums without noise; pool_labels: the mean accuracy of the pool's labels, and error,
    its standard error over stand-ins.
    """

    given: dict[str, int | str]
    queries: QueryMap = field(repr=False)
    study: Study = field(repr=False)
    cell_labels: float
    pool_labels: float
    error: float

    @property
    def words(self) -> str:
        """The queries in words."""
        kind = str(self.given["record_queries"])
        if kind == "columns":
            return f"columns, {self.given['bins']} bins"
        return f"{kind}, nearest {self.given['nearest']}"


@dataclass(frozen=True, eq=False)
class Rehearsed:
    """All candidates, the pool's features, and the stand-in tasks with the labels that the best gave the pool."""

    candidates: tuple[Candidate, ...]
    best: Candidate
    features: Float32[ndarray, "pool features"] = field(repr=False)
    tasks: tuple[StandIn, ...]
    targets: tuple[Float32[ndarray, "pool classes"], ...]


def rehearse(settings: Experiment, publics: Publics, *, accuracy: float, stage: Stage) -> Rehearsed:
    """Rehearses every candidate. accuracy: assumed, of the best possible model. Raises InvalidInput."""
    budgets = experiment_budgets(settings.model_copy(update={"parties": len(publics.sizes)}))
    offered = list(_candidates(settings, publics))
    if not offered:
        raise InvalidInput(
            f"record_queries is {settings.record_queries!r} and bins {settings.bins}; allowed: columns, with bins, for "
            f"a table; clusters:N for a pool of at least {3 * _CLUSTERS[publics.pool.kind][0]} records"
        )
    features = _features(settings, publics, offered[0])
    tasks = tuple(_tasks(settings, publics, features, accuracy))
    if not publics.pool.has_cells:
        # Mapped once: the centres of clusters, and who is nearest to them, are the same.
        settings, publics = settings.model_copy(update={"features": "raw"}), publics.mapped(features)
    found: list[Candidate] = []
    targets: list[tuple[Float32[ndarray, "pool classes"], ...]] = []
    for number, given in enumerate(offered):
        made, soft = _rehearsed(settings, publics, budgets, tasks, given)
        found.append(made)
        targets.append(soft)
        stage.update(number + 1, len(offered))
    best = max(range(len(found)), key=lambda at: found[at].pool_labels)
    return Rehearsed(tuple(found), found[best], features, tasks, targets[best])


def _features(settings: Experiment, publics: Publics, given: dict[str, int | str]) -> Float32[ndarray, "pool features"]:
    """The pool as its records are compared: of images and text, by the feature map of the queries."""
    pool = publics.pool
    if pool.has_cells:
        return pool.public_inputs
    queries = query_map(settings.model_copy(update=given), pool, population=publics.population)
    return queries.features(pool.public_inputs)


def _tasks(
    settings: Experiment, publics: Publics, features: Float32[ndarray, "pool features"], accuracy: float
) -> Iterator[StandIn]:
    pool = publics.pool
    for number in range(_REHEARSALS[pool.kind]):
        yield stand_in(
            features,
            classes=pool.classes,
            accuracy=accuracy,
            sizes=publics.sizes,
            images=pool.kind == "image",
            differ=not isinstance(parse_partition(settings.partition), Iid),
            rng=simulation_rng(settings.data_seed, "stand-in", number),
        )


def _candidates(settings: Experiment, publics: Publics) -> Iterator[dict[str, int | str]]:
    """The settings of queries to try: what was given stays."""
    pool, kind = publics.pool, settings.record_queries
    clusters_only = [name for name in ("nearest", "partitions", "features") if getattr(settings, name) is not None]
    if pool.has_cells and kind in (None, "columns") and not clusters_only:
        for bins in [settings.bins] if settings.bins else _BINS:
            yield {"record_queries": "columns", "bins": bins}
    if kind == "columns" or settings.bins is not None:
        return
    fewest = [number for number in _CLUSTERS[pool.kind] if number <= len(pool.public_inputs) // 3]
    for name in [kind] if kind else [f"clusters:{number}" for number in fewest]:
        for nearest in [settings.nearest] if settings.nearest else _NEAREST:
            yield {"record_queries": name, "nearest": nearest}


def _rehearsed(
    settings: Experiment,
    publics: Publics,
    budgets: Budgets,
    tasks: tuple[StandIn, ...],
    given: dict[str, int | str],
) -> tuple[Candidate, tuple[Float32[ndarray, "pool classes"], ...]]:
    chosen, pool = settings.model_copy(update=given), publics.pool
    queries = query_map(chosen, pool, population=publics.population)
    study = make_record_study(chosen, budgets, classes=pool.classes, queries=queries, population=publics.population)
    nearest = queries.nearest_queries(pool.public_inputs)
    cell_labels, pool_labels, targets = [], [], []
    for number, task in enumerate(tasks):
        cells = tuple(
            nearest[rows] * pool.classes + labels[:, None] for rows, labels in zip(task.rows, task.labels, strict=True)
        )
        stored = RecordCells(pool.classes, publics.population, queries, cells, (None,) * len(cells))
        result = label_record_seed(study, stored, pool=pool.public_inputs, seed=number, dropout=0.0, truth=None)
        if result.soft is None or result.labelling.cells is None:
            raise InvalidInput(f"the study releases nothing ({result.labelling.stop.reason}); allowed: larger budgets")
        clean = np.sum(stored.sums(study), axis=0)
        right = result.labelling.cells.argmax(axis=1) == clean.argmax(axis=1)
        cell_labels.append(float(right @ clean.sum(axis=1) / clean.sum()))
        pool_labels.append(task.accuracy(result.soft.probabilities.argmax(axis=1)))
        targets.append(result.soft.probabilities.astype(np.float32))
    error = float(np.std(pool_labels, ddof=1) / np.sqrt(len(tasks)))
    made = Candidate(given, queries, study, float(np.mean(cell_labels)), float(np.mean(pool_labels)), error)
    return made, tuple(targets)
