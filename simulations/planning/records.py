"""Plan a study of record votes: which public queries, what its labels are worth, and beside what.

Everything comes from public figures (hospitals, records of each, classes, how frequent they are where that was
published or counted, columns, budgets) and from rehearsals: the real study, with its noise and its soft labels, on
stand-in tasks of the public pool. No private or test record, and no true label, is in reach of anything here.

One hospital alone, all together and teachers are compared on the same tasks (stand_ins.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray
from sklearn.decomposition import PCA

from coordinator.queries.choice import GRADED
from coordinator.students import student_kind
from coordinator.students.student import one_hot
from protocols.budgets.planned import Budgets
from protocols.crypto.randomness import simulation_rng
from protocols.errors import InvalidInput
from protocols.features.feature_map import FeatureMap
from protocols.release.counts import ANY, EVERYWHERE, Count
from protocols.study.count_cells import NO_LABEL
from protocols.study.findings import OneLabel
from protocols.study.study import Study
from protocols.study.votes import TeacherVotes, UnitSums, unit_sums
from protocols.sums.blocks import Blocks
from protocols.sums.contributions import said
from simulations.datasets.dataset import Dataset
from simulations.planning.stand_ins import LEAST_SHARE, StandIn, stand_in
from simulations.progress import ProgressStage
from simulations.setup.experiment import (
    Experiment,
    experiment,
    experiment_budgets,
    is_graded,
    make_record_study,
    make_study,
    population_of,
    query_map,
)
from simulations.setup.partition import BySite, Iid, parse_partition
from simulations.stages.inputs import party_count
from simulations.stages.record_cells import RecordCells
from simulations.stages.record_votes import label_record_seed

# Stand-in tasks that each candidate is rehearsed on: fewer of images and of large pools, which take longer.
_REHEARSALS = {"table": 8, "image": 3}
_REHEARSED_RECORDS, _FEWEST_REHEARSALS = 40_000, 3
# Of a larger pool so many records are labelled in a rehearsal; features and queries are those of all of it.
_MOST_POOL = 4_000
# Candidates: cells of a column, clusters of the pool (at most a third of it), and in how many of them a record votes.
_BINS = (2, 3, 4, 6, 8)
_CLUSTERS = {"table": (12, 25, 50, 100, 200), "image": (100, 200, 400, 800, 1600)}
_NEAREST = (1, 3)


@dataclass(frozen=True, eq=False)
class Publics:
    """What is public: the pool, classes and columns (as a data set without private and test parts), and numbers.

    population: of protected units, which replace-one makes public; sizes: records of each hospital; frequent: the share
    of each class in all, None where it is not known; shares: those at each hospital, where a count told them.
    """

    pool: Dataset = field(repr=False)
    population: int
    sizes: Int64[ndarray, " parties"]
    frequent: Float64[ndarray, " classes"] | None = None
    shares: Float64[ndarray, "parties classes"] | None = None

    @classmethod
    def of(cls, settings: Experiment, dataset: Dataset, *, majority: float | None) -> Publics:
        """The public part of a data set. majority: the share of the most frequent class, the others are then equally
        frequent; None where it is not known. Raises InvalidInput."""
        parties, classes, frequent = party_count(settings, dataset), dataset.classes, None
        if majority is not None:
            if not 1 / classes <= majority < 1:
                raise InvalidInput(f"majority is {majority:g}; allowed: from 1/{classes} to below 1")
            frequent = np.array([majority, *[(1 - majority) / (classes - 1)] * (classes - 1)])
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
            public_labels=np.zeros_like(dataset.public_labels),
            test_inputs=dataset.test_inputs[nothing],
            test_labels=dataset.test_labels[nothing],
            private_sites=None,
            private_patients=None,
        )
        return cls(pool, population_of(settings.unit, dataset, parties), sizes, frequent)

    def counted(self, counts: Sequence[Count]) -> Publics:
        """The same with as many records of each class at each hospital as a count of patients told.

        A count below its noise is taken for a quarter of what it may be at most. Raises InvalidInput for other
        hospitals or classes than the plan's.
        """
        labels = [each for each in counts if each.column == ANY and each.label not in (ANY, NO_LABEL)]
        sites = list(dict.fromkeys(each.site for each in labels))
        sites = sites if sites == [EVERYWHERE] else [site for site in sites if site != EVERYWHERE]
        found = np.array([
            [each.high / 4 if each.patients is None else each.patients for each in labels if each.site == site]
            for site in sites
        ])  # fmt: skip
        parties, classes = len(self.sizes), self.pool.classes
        if sites == [EVERYWHERE]:
            found = np.repeat(found / parties, parties, axis=0)
        if found.shape != (parties, classes):
            raise InvalidInput(
                f"the count has {len(sites)} hospitals and classes {sorted({each.label for each in labels})}; allowed: "
                f"the plan's {parties} hospitals and {classes} classes, by label"
            )
        sizes = np.maximum(np.rint(found.sum(axis=1)).astype(np.int64), 2)
        shares = found / np.maximum(found.sum(axis=1, keepdims=True), LEAST_SHARE)
        frequent = found.sum(axis=0) / max(found.sum(), LEAST_SHARE)
        return replace(self, population=int(sizes.sum()), sizes=sizes, frequent=frequent, shares=shares)

    def mapped(self, features: Float32[ndarray, "pool features"]) -> Publics:
        """The same with these features of the pool in place of images or text."""
        nothing = features[:0]
        pool = replace(self.pool, public_inputs=features, private_inputs=nothing, test_inputs=nothing)
        return replace(self, pool=replace(pool, kind="table", columns=()))


@dataclass(frozen=True, eq=False)
class Candidate:
    """Public queries, the study that has them, and what rehearsals found.

    given: the settings that name the queries; pool_labels: the mean accuracy of the pool's labels, and error, its
    standard error over stand-ins.
    """

    given: dict[str, int | str]
    queries: Blocks = field(repr=False)
    study: Study = field(repr=False)
    pool_labels: float
    error: float

    @property
    def words(self) -> str:
        """The queries in words."""
        kind = str(self.given["record_queries"])
        if kind == GRADED:
            return f"{GRADED}, {self.queries.rows} numbers a record"
        if kind == "columns":
            return f"columns, {self.given['bins']} bins"
        return f"{kind}, nearest {self.given['nearest']}"


@dataclass(frozen=True, eq=False)
class Rehearsed:
    """All candidates, the features of the pool, or of its _MOST_POOL records that were labelled, and the stand-in tasks
    with the labels that the best gave these."""

    candidates: tuple[Candidate, ...]
    best: Candidate
    features: Float32[ndarray, "pool features"] = field(repr=False)
    tasks: tuple[StandIn, ...]
    targets: tuple[Float32[ndarray, "pool classes"], ...]


def rehearse(settings: Experiment, publics: Publics, *, accuracy: float, stage: ProgressStage) -> Rehearsed:
    """Rehearses every candidate. accuracy: assumed, of the best possible model. Raises InvalidInput."""
    budgets = experiment_budgets(settings.changed(parties=len(publics.sizes)))
    offered = list(_candidates(settings, publics))
    if not offered:
        raise InvalidInput(
            f"record_queries is {settings.record_queries!r} and bins {settings.bins}; allowed: columns, with bins, for "
            f"a table; clusters:N for a pool of at least {3 * _CLUSTERS[publics.pool.kind][0]} records"
        )
    pool = publics.pool
    first = query_map(settings.changed(**offered[0]), pool, population=publics.population)
    mapped = is_graded(settings) or not pool.has_cells
    seen = first.features(pool.public_inputs) if mapped else pool.public_inputs
    shown = np.arange(len(seen))
    if len(seen) > _MOST_POOL:
        rng = simulation_rng(settings.data_seed, "rehearsed pool")
        shown = np.sort(rng.choice(len(seen), size=_MOST_POOL, replace=False))
    features = (pool.public_inputs if pool.has_cells else seen)[shown]
    tasks = tuple(_tasks(settings, publics, features, accuracy))
    if mapped:
        # Once: a record has the same features in every rehearsal, and so have centres of clusters.
        settings, publics = settings.changed(features="raw"), publics.mapped(seen)
        first = replace(first, features=FeatureMap(seen.shape[1:]))
    found: list[Candidate] = []
    targets: list[tuple[Float32[ndarray, "pool classes"], ...]] = []
    for number, given in enumerate(offered):
        chosen = settings.changed(**given)
        queries = query_map(chosen, publics.pool, population=publics.population) if number else first
        about = {"before": number * len(tasks), "of": len(offered) * len(tasks)}
        made, soft = _rehearsed(chosen, publics, shown, budgets, tasks, given, queries, stage, **about)
        found.append(made)
        targets.append(soft)
    best = max(range(len(found)), key=lambda at: found[at].pool_labels)
    return Rehearsed(tuple(found), found[best], features, tasks, targets[best])


def _tasks(
    settings: Experiment, publics: Publics, features: Float32[ndarray, "pool features"], accuracy: float
) -> Iterator[StandIn]:
    pool = publics.pool
    affordable = max(_FEWEST_REHEARSALS, _REHEARSED_RECORDS // len(pool.public_inputs))
    for number in range(min(_REHEARSALS[pool.kind], affordable)):
        yield stand_in(
            features,
            classes=pool.classes,
            accuracy=accuracy,
            sizes=publics.sizes,
            images=pool.kind == "image",
            differ=not isinstance(parse_partition(settings.partition), Iid),
            frequent=publics.frequent,
            shares=publics.shares,
            rng=simulation_rng(settings.data_seed, "stand-in", number),
        )


def _candidates(settings: Experiment, publics: Publics) -> Iterator[dict[str, int | str]]:
    """The settings of queries to try: those of a run, or where a kind of cells was named, its variants."""
    pool, kind = publics.pool, settings.record_queries
    if is_graded(settings):
        yield {"record_queries": GRADED}
        return
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
    chosen: Experiment,
    publics: Publics,
    shown: Int64[ndarray, " labelled"],
    budgets: Budgets,
    tasks: tuple[StandIn, ...],
    given: dict[str, int | str],
    queries: Blocks,
    stage: ProgressStage,
    *,
    before: int,
    of: int,
) -> tuple[Candidate, tuple[Float32[ndarray, "pool classes"], ...]]:
    pool = publics.pool
    made_of = partial(make_record_study, queries=queries, population=publics.population, pool=len(pool.public_inputs))
    study = made_of(chosen, budgets, labelled=pool.labelled)
    as_often = chosen.changed(residuals=unit_sums(study).residuals)
    alone = made_of(as_often, budgets, labelled=OneLabel(pool.classes))
    # One finding of several is two classes under more noise, by the root of their number (mathematics.md, section 2.6).
    alone = alone.voting(sigma=alone.gaussian.sigma * pool.labelled.told**0.5)
    # The class stands in the first number, or in each cell.
    inputs = pool.public_inputs[shown]
    nearest = said(queries, inputs, np.zeros(len(inputs), np.int64), classes=pool.classes)
    pool_labels, targets = [], []
    for number, task in enumerate(tasks):
        cells = tuple(
            nearest[rows] + (labels[:, None] if queries.plain else labels[:, None] * (np.arange(nearest.shape[1]) == 0))
            for rows, labels in zip(task.rows, task.labels, strict=True)
        )
        # Numbered throughout: judges are told by the places of their records.
        places = np.split(np.arange(sum(map(len, cells))), np.cumsum([len(each) for each in cells])[:-1])
        stored = RecordCells(alone.labelled, publics.population, queries, cells, (None,) * len(cells), tuple(places))
        result = label_record_seed(alone, stored, pool=inputs, seed=number, dropout=0.0, truth=None)
        if result.soft is None:
            raise InvalidInput(f"the study releases nothing ({result.labelling.stop.reason}); allowed: larger budgets")
        pool_labels.append(task.accuracy(result.soft.probabilities.argmax(axis=1)))
        targets.append(result.soft.probabilities.astype(np.float32))
        stage.update(before + number + 1, of)
    error = float(np.std(pool_labels, ddof=1) / np.sqrt(len(tasks)))
    return Candidate(given, queries, study, float(np.mean(pool_labels)), error), tuple(targets)


# Hospitals of which a model is trained on each task; where there are more, votes repeat.
_MOST_MODELS = 12
# Records that a pooled model is trained on, at most, and features of one.
_MOST_ROWS, _MOST_FEATURES = 10_000, 100
# Noise that is tried where teachers vote, as shares of the number of hospitals.
_NOISES = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
# A gain lies within so many standard deviations of the expected one in 95 of 100 studies; and the part of these that
# stand-ins do not show: the root mean square error of twelve studies (docs/how-to/let-records-vote.md).
_DEVIATIONS = 1.96
MISFIT = 0.04


@dataclass(frozen=True)
class RehearsedTeachers:
    """The best study of teachers that was tried: sigma in votes, labels it affords, its student's accuracy."""

    sigma: float
    labels: int
    student: float


@dataclass(frozen=True)
class ForeseenAccuracies:
    """Expected accuracies on the stand-in tasks.

    student: of the labels of record votes; alone: one hospital's own model, in the mean, or the most frequent class for
    every record where that is more often right; pooled: of all records without privacy; best: the best possible model;
    guessing: the most frequent class; gain: student - alone; spread: its standard deviation over stand-ins; teachers:
    None where no study of teachers can be made; equal: whether classes are taken to be equally frequent, as nothing
    tells how frequent they are.
    """

    student: float
    alone: float
    pooled: float
    best: float
    guessing: float
    gain: float
    spread: float
    teachers: RehearsedTeachers | None
    equal: bool

    @property
    def interval(self) -> tuple[float, float]:
        """The gain of a run is expected in between, 95 times of 100."""
        within = _DEVIATIONS * float(np.hypot(self.spread, MISFIT))
        return self.gain - within, self.gain + within

    @property
    def worth(self) -> bool:
        """Whether the student is surely better than one hospital alone, by `interval`."""
        return self.interval[0] > 0

    @property
    def votes_by(self) -> str:
        """Who should vote: "record" or "teacher", by the better student."""
        return UnitSums.by if self.better is None else TeacherVotes.by

    @property
    def better(self) -> RehearsedTeachers | None:
        """The teachers, where their student is expected to be the better one."""
        return self.teachers if self.teachers is not None and self.teachers.student > self.student else None

    @property
    def verdict(self) -> str:
        """The recommendation in one sentence."""
        low, high = self.interval
        margin = f"{self.gain:+.3f} beside one hospital alone (95 %: {low:+.3f} to {high:+.3f}); " + (
            "classes are taken to be equally frequent: of a rare outcome say so (--majority), as naming the other one "
            "for everybody may leave no gain"
            if self.equal
            else f"the most frequent class for everybody is right for {self.guessing:.3f}"
        )
        if (teachers := self.better) is not None:
            return (
                f"let teachers vote: {teachers.labels} labels at sigma {teachers.sigma:g} are expected to "
                f"give a student of {teachers.student:.3f}, record votes one of {self.student:.3f}"
            )
        if self.student <= self.guessing or high < 0:
            return f"not worth its budget: the student is expected at {margin}"
        if low <= 0:
            return f"about as good as one hospital alone: the student is expected at {margin}"
        return f"let records vote: the student is expected at {margin}"


def compare(settings: Experiment, publics: Publics, rehearsed: Rehearsed) -> ForeseenAccuracies:
    """Trains what the recommendation rests on."""
    features = _narrow(rehearsed.features)
    students, alone, pooled, votes = [], [], [], []
    for number, (task, targets) in enumerate(zip(rehearsed.tasks, rehearsed.targets, strict=True)):
        rng = simulation_rng(settings.data_seed, "comparison", number)
        students.append(task.accuracy(_predicted(features, features, targets)))
        own = [_model(features, task, [party]) for party in range(min(len(task.rows), _MOST_MODELS))]
        alone.append(max(task.guessing, float(np.mean([task.accuracy(predicted) for predicted in own]))))
        pooled.append(task.accuracy(_model(features, task, range(len(task.rows)), rng=rng)))
        votes.append(np.stack(own))
    gains = np.array(students) - np.array(alone)
    return ForeseenAccuracies(
        student=float(np.mean(students)),
        alone=float(np.mean(alone)),
        pooled=float(np.mean(pooled)),
        best=float(np.mean([task.best for task in rehearsed.tasks])),
        guessing=float(np.mean([task.guessing for task in rehearsed.tasks])),
        gain=float(gains.mean()),
        spread=float(gains.std(ddof=1)),
        teachers=_teachers(settings, publics, rehearsed, features, votes),
        equal=publics.frequent is None,
    )


def _narrow(features: Float32[ndarray, "pool features"]) -> Float32[ndarray, "pool features"]:
    """The pool as models see it: where it has many features, by their principal components."""
    if features.shape[1] <= _MOST_FEATURES:
        return features
    parts = PCA(min(_MOST_FEATURES, len(features)), random_state=0).fit_transform(features)
    return (parts / parts[:, 0].std()).astype(np.float32)


def _model(
    features: Float32[ndarray, "pool features"],
    task: StandIn,
    parties: range | list[int],
    *,
    rng: np.random.Generator | None = None,
) -> Int64[ndarray, " pool"]:
    """What a model of these hospitals' stand-in records says of the pool; rng: chooses among too many records."""
    rows = np.concatenate([task.rows[party] for party in parties])
    labels = np.concatenate([task.labels[party] for party in parties])
    if rng is not None and len(rows) > _MOST_ROWS:
        kept = rng.choice(len(rows), size=_MOST_ROWS, replace=False)
        rows, labels = rows[kept], labels[kept]
    return _predicted(features, features[rows], one_hot(labels, task.chances.shape[1]))


def _predicted(
    features: Float32[ndarray, "pool features"],
    inputs: Float32[ndarray, "inputs features"],
    targets: Float32[ndarray, "inputs classes"],
) -> Int64[ndarray, " pool"]:
    seen = np.flatnonzero(targets.any(axis=0))
    if len(seen) < 2:
        return np.full(len(features), seen[0])
    kind = student_kind("logistic_regression")
    fitted = kind.fit(inputs, targets, unlabelled=features[:0], classes=targets.shape[1], seed=0)
    return fitted.predict(features)


def _teachers(
    settings: Experiment,
    publics: Publics,
    rehearsed: Rehearsed,
    features: Float32[ndarray, "pool features"],
    votes: list[Int64[ndarray, "models pool"]],
) -> RehearsedTeachers | None:
    """The best study of one teacher per hospital over the noises tried; None if none affords a label."""
    if settings.unit == "patient":
        return None
    parties, pool, classes = len(publics.sizes), len(features), publics.pool.classes
    found = []
    for share in _NOISES:
        asked_rows = pool * publics.pool.labelled.told
        made = _teacher_study(settings, parties, classes, asked_rows, sigma=share * parties)
        if made is None:
            continue
        weights, labels = made[0], made[1] // publics.pool.labelled.told  # a question per finding
        if not labels:
            continue
        accuracies = []
        for number, (task, own) in enumerate(zip(rehearsed.tasks, votes, strict=True)):
            rng = simulation_rng(settings.data_seed, "teachers", number)
            asked = rng.choice(pool, size=labels, replace=False)
            cast = own[np.arange(parties) % len(own)][:, asked]
            counts = np.stack([weights @ (cast == each) for each in range(classes)], axis=1)
            released = (counts + share * parties * rng.standard_normal(counts.shape)).argmax(axis=1)
            accuracies.append(task.accuracy(_predicted(features, features[asked], one_hot(released, classes))))
        found.append(RehearsedTeachers(share * parties, labels, float(np.mean(accuracies))))
    return max(found, key=lambda each: each.student, default=None)


def _teacher_study(
    settings: Experiment, parties: int, classes: int, pool: int, *, sigma: float
) -> tuple[Float64[ndarray, " parties"], int] | None:
    """The weights, and the labels that a study of teachers affords with this noise; None if it affords none."""
    summed = settings.confidentiality == "secure_sum"
    given = {name: getattr(settings, name) for name in ("budgets", "delta", "weights", "unit", "quorum", "colluders",
                                                        "units", "confidentiality", "data_seed")}  # fmt: skip
    try:
        asked = experiment(
            **given, parties=parties, mechanism="gnmax", sigma=sigma, view="histogram" if summed else "label"
        )
        study = make_study(asked, experiment_budgets(asked), classes=classes, queries=pool)
        labels = int(study.budgets.affordable(np.zeros(parties, dtype=np.int64), limit=pool).min())
    except InvalidInput:
        # A budget that affords nothing with so little noise.
        return None
    return (study.weights, labels) if labels else None
