"""One run, stage by stage: data -> partition -> teachers -> votes -> labels -> students -> results.

Heavy stages are cached by the hash of their inputs, so a second run with other budgets trains nothing, and an
interrupted run goes on where it stopped.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from coordinator.students import student_kind
from party.teachers import teacher_kind
from protocols.errors import InvalidInput
from protocols.study import Study
from protocols.votes import count_votes, plurality
from simulations import datasets
from simulations.budgets import Budgets
from simulations.cast import cast_votes
from simulations.datasets.dataset import Dataset, content_digest
from simulations.datasets.rendered import rendered
from simulations.datasets.request import DatasetRequest
from simulations.engines import check_engine, open_engine
from simulations.experiment import Experiment, experiment_budgets, make_study
from simulations.label import LIVE_PARTIES, SeedResult, check_live, label_seed, live_study
from simulations.partition import parse_partition, partition, teacher_shards
from simulations.progress import Reporter
from simulations.replay import StoredVotes, check_fit
from simulations.students import check_student, non_private_accuracy, student_accuracy
from simulations.votes_file import read_labels, read_votes


@dataclass(frozen=True, kw_only=True)
class Host:
    """What a run depends on but is not repeated by: where data and caches lie, which engine and workers."""

    data_dir: Path | None
    cache_dir: Path
    engine: str
    workers: int | None


@dataclass(frozen=True, eq=False)
class Inputs:
    """What a run starts from, read and checked: a data set cut into shards, or stored votes.

    shards: for each party, the private records of each of its teachers.
    """

    settings: Experiment
    dataset: Dataset | None
    shards: list[list[Int64[ndarray, " records"]]] | None
    stored: StoredVotes | None
    truth: Int64[ndarray, " queries"] | None

    @property
    def party_names(self) -> tuple[str, ...] | None:
        """The sites' names where each party is one site of the data set."""
        if self.dataset is None or parse_partition(self.settings.partition).name != "by-site":
            return None
        sites = self.dataset.site_names
        return sites if len(sites) == self.settings.parties else None

    @property
    def fingerprint(self) -> str:
        """A digest of the data or votes that the run starts from."""
        if self.dataset is not None:
            return content_digest(text=f"{self.dataset.private_digest} {self.dataset.public_digest}")
        assert self.stored is not None
        arrays = [a for a in (self.stored.votes, self.stored.counts, self.truth) if a is not None]
        return content_digest(*arrays)

    @property
    def classes(self) -> int:
        """The number of classes."""
        if self.stored is not None:
            return self.stored.classes
        assert self.dataset is not None
        return self.dataset.classes

    @property
    def queries(self) -> int:
        """The size of the public pool."""
        if self.stored is not None:
            return self.stored.queries
        assert self.dataset is not None
        return len(self.dataset.public_labels)


@dataclass(frozen=True, eq=False)
class Source:
    """Votes on a pool of queries, from parties that were simulated or from a file."""

    settings: Experiment
    dataset: Dataset | None
    stored: StoredVotes
    truth: Int64[ndarray, " queries"] | None
    party_sizes: Int64[ndarray, " parties"] | None
    party_names: tuple[str, ...] | None


@dataclass(frozen=True, eq=False)
class Baselines:
    """What the run is held against; None where it was not or cannot be measured."""

    non_private: float | None
    single_party_mean: float | None
    uniform_answered: float | None
    uniform_label_accuracy: float | None
    uniform_student: float | None


@dataclass(frozen=True, eq=False)
class RunResult:
    """Everything a report is made from. Accuracies are shares in [0, 1]."""

    settings: Experiment
    study: Study
    budgets: Budgets
    source: Source
    seeds: list[SeedResult]
    students: list[float | None]
    teacher_accuracy: Float64[ndarray, "parties teachers"] | None
    plurality_accuracy: float | None
    baselines: Baselines
    live_checked: bool


def read_inputs(settings: Experiment, *, host: Host, reporter: Reporter) -> Inputs:
    """Reads and checks everything that a run needs before anything is trained, spent or written.

    Raises InvalidInput, DataUnavailable or DataCorrupt.
    """
    check_student(settings.student)
    if settings.votes is not None:
        return _stored_inputs(settings)
    if settings.labels is not None:
        raise InvalidInput(f"labels is {settings.labels!r}; allowed: only with stored votes (--votes)")
    scheme = parse_partition(settings.partition)
    kind = teacher_kind(settings.teacher)
    check_engine(host.engine)
    if scheme.name != "by-site":
        # Budgets, noise and threshold out of range are said before any data are read; classes and queries, which the
        # data may decide, matter little to that.
        trial = make_study(
            settings, experiment_budgets(settings), classes=settings.classes or 10, queries=settings.queries or 100
        )
        _ = trial.budgets
    with reporter.stage(f"data, {settings.dataset}") as stage:
        dataset = load_dataset(settings, host)
        stage.result = (
            f"{len(dataset.private_labels)} private, {len(dataset.public_labels)} public, "
            f"{len(dataset.test_labels)} test records, {dataset.classes} classes"
        )
    student = settings.student or ("cnn" if dataset.kind == "image" else "mlp")
    for what, name, images in (
        ("teacher", settings.teacher, kind.needs_images),
        ("student", student, student != "none" and student_kind(student).needs_images),
    ):
        if images and dataset.kind != "image":
            raise InvalidInput(
                f"{what} is {name!r}, which needs images; allowed for {dataset.name}: one for tables, as mlp"
            )
    settings = settings.model_copy(update={"parties": party_count(settings, dataset), "student": student})
    holdings = partition(dataset, parties=settings.parties, scheme=scheme, seed=settings.data_seed)
    shards = [
        teacher_shards(
            records,
            None if dataset.private_patients is None else dataset.private_patients[records],
            teachers=settings.teachers_per_party,
            seed=settings.data_seed,
        )
        for records in holdings
    ]
    return Inputs(settings, dataset, shards, None, dataset.public_labels)


def study_of(inputs: Inputs) -> tuple[Budgets, Study]:
    """The budgets of the parties and the study that they take part in. Raises InvalidInput."""
    budgets = experiment_budgets(inputs.settings, inputs.party_names)
    study = make_study(inputs.settings, budgets, classes=inputs.classes, queries=inputs.queries)
    if inputs.stored is not None:
        check_fit(study, inputs.stored, drops=inputs.settings.dropout > 0)
    return budgets, study


def run(inputs: Inputs, *, budgets: Budgets, study: Study, host: Host, reporter: Reporter) -> RunResult:
    """Everything that takes time. Raises ConclaveError; what was finished before stays cached."""
    settings = inputs.settings
    source = votes_source(inputs, host=host, reporter=reporter)
    with reporter.stage(f"labels, {len(settings.seeds)} seed(s)") as stage:
        seeds = []
        for done, seed in enumerate(settings.seeds, 1):
            seeds.append(_labelled(study, source, seed, settings.dropout))
            stage.update(done, len(settings.seeds))
        live = source.stored.votes is not None and len(study.roster) <= LIVE_PARTIES
        if live:
            check_live(
                live_study(study, source.stored, seed=settings.seeds[0], dropout=settings.dropout),
                seeds[0].labelling,
            )
        stage.result = f"{np.mean([len(s.answered) for s in seeds]):.1f} labels released"
    students = _students(settings, source, seeds, host=host, reporter=reporter, title="student")
    accuracy, plural = _teacher_accuracy(source)
    baselines = _baselines(settings, budgets, source, accuracy, host=host, reporter=reporter)
    return RunResult(settings, study, budgets, source, seeds, students, accuracy, plural, baselines, live)


def votes_source(inputs: Inputs, *, host: Host, reporter: Reporter) -> Source:
    """The votes of a run: those of a file, or by training teachers and casting their votes."""
    settings = inputs.settings
    if inputs.stored is not None:
        return Source(settings, None, inputs.stored, inputs.truth, None, None)
    assert inputs.dataset is not None
    assert inputs.shards is not None
    with reporter.stages() as on_stage:
        cast = cast_votes(
            inputs.dataset,
            inputs.shards,
            teacher=settings.teacher,
            seed=settings.data_seed,
            # Opened only if something is not cached: importing Flower takes seconds.
            engine=lambda: open_engine(host.engine, workers=host.workers),
            cache_dir=host.cache_dir,
            on_stage=on_stage,
        )
    reporter.say(
        f"teachers and votes: {cast.trained} of {cast.votes.shape[0] * cast.votes.shape[1]} teachers trained now, "
        "the rest from the cache"
    )
    sizes = np.array([sum(len(shard) for shard in of_party) for of_party in inputs.shards])
    return Source(
        settings,
        inputs.dataset,
        StoredVotes(inputs.dataset.classes, cast.votes, None),
        inputs.truth,
        sizes,
        inputs.party_names,
    )


def party_count(settings: Experiment, dataset: Dataset) -> int:
    """The number of parties: as given; one a site where parties are sites and no number was given."""
    by_site = parse_partition(settings.partition).name == "by-site"
    if by_site and "parties" not in settings.model_fields_set and dataset.site_names:
        return len(dataset.site_names)
    return settings.parties


def load_dataset(settings: Experiment, host: Host) -> Dataset:
    """The data set of an experiment; private part as large as asked."""
    request = DatasetRequest(
        seed=settings.data_seed,
        data_dir=host.data_dir,
        private_size=settings.private_size,
        public_size=settings.queries,
        classes=settings.classes,
        imbalance=settings.imbalance,
        mislabelled=settings.mislabelled,
        schema=None if settings.schema_file is None else Path(settings.schema_file),
    )
    if settings.dataset == "glyphs":
        return rendered(settings.dataset, request, load=datasets.load, cache_dir=host.cache_dir)
    return datasets.load(settings.dataset, request)


def _stored_inputs(settings: Experiment) -> Inputs:
    """Votes from a file; the number of parties is what the file holds."""
    assert settings.votes is not None
    given = settings.parties if "parties" in settings.model_fields_set else None
    stored, parties = read_votes(
        Path(settings.votes), kind=settings.votes_kind, classes=settings.classes, parties=given
    )
    queries = settings.queries or stored.queries
    if queries > stored.queries:
        raise InvalidInput(f"queries is {queries}; allowed: at most the {stored.queries} of {settings.votes}")
    if queries < stored.queries:
        stored = StoredVotes(
            stored.classes,
            None if stored.votes is None else stored.votes[:, :, :queries],
            None if stored.counts is None else stored.counts[:queries],
        )
    truth = None
    if settings.labels is not None:
        truth = read_labels(settings.labels, queries=queries, classes=stored.classes)
    teachers = 1 if stored.votes is None else stored.votes.shape[1]
    changes = {"parties": parties, "teachers_per_party": teachers, "student": "none"}
    if "weights" not in settings.model_fields_set and stored.votes is None:
        changes["weights"] = "uniform"
    return Inputs(settings.model_copy(update=changes), None, None, stored, truth)


def _labelled(study: Study, source: Source, seed: int, dropout: float) -> SeedResult:
    return label_seed(study, source.stored, seed=seed, dropout=dropout, truth=source.truth)


def _students(
    settings: Experiment, source: Source, seeds: list[SeedResult], *, host: Host, reporter: Reporter, title: str
) -> list[float | None]:
    if settings.student in (None, "none") or source.dataset is None:
        return [None] * len(seeds)
    accuracies = []
    with reporter.stage(f"{title}, {settings.student}") as stage:
        for done, result in enumerate(seeds, 1):
            accuracies.append(
                student_accuracy(
                    source.dataset,
                    result.answered,
                    result.labelling.labels[result.answered],
                    student=str(settings.student),
                    seed=result.seed,
                    cache_dir=host.cache_dir,
                )
            )
            stage.update(done, len(seeds))
        known = [a for a in accuracies if a is not None]
        stage.result = f"test accuracy {np.mean(known):.4f}" if known else "no label was released"
    return accuracies


def _teacher_accuracy(source: Source) -> tuple[Float64[ndarray, "parties teachers"] | None, float | None]:
    """Each teacher's accuracy on the public pool, and that of the unweighted plurality."""
    stored, truth = source.stored, source.truth
    if truth is None:
        return None, None
    if stored.votes is None:
        assert stored.counts is not None
        return None, float((plurality(stored.counts) == truth).mean())
    counts = count_votes(stored.votes, np.ones(len(stored.votes)), classes=stored.classes)
    each = np.array([(votes == truth).mean(axis=1) for votes in stored.votes])
    return each, float((plurality(counts) == truth).mean())


def _baselines(
    settings: Experiment,
    budgets: Budgets,
    source: Source,
    teacher_accuracy: Float64[ndarray, "parties teachers"] | None,
    *,
    host: Host,
    reporter: Reporter,
) -> Baselines:
    """The non-private model, the mean single party, and the study that binds everyone to the smallest budget."""
    single = None if teacher_accuracy is None else float(teacher_accuracy.mean())
    if not settings.baselines:
        return Baselines(None, single, None, None, None)
    plain = settings.model_copy(update={"weights": "uniform", "stop": "first-exhausted"})
    study = make_study(plain, budgets, classes=source.stored.classes, queries=source.stored.queries)
    seeds = [_labelled(study, source, seed, settings.dropout) for seed in settings.seeds]
    students = _students(settings, source, seeds, host=host, reporter=reporter, title="baseline, minimum budget")
    accuracies = [s.label_accuracy for s in seeds if s.label_accuracy is not None]
    non_private = None
    if settings.student not in (None, "none") and source.dataset is not None:
        with reporter.stage("baseline, all data pooled without privacy") as stage:
            non_private = non_private_accuracy(
                source.dataset, student=str(settings.student), seed=settings.data_seed, cache_dir=host.cache_dir
            )
            stage.result = f"test accuracy {non_private:.4f}"
    known = [a for a in students if a is not None]
    return Baselines(
        non_private,
        single,
        float(np.mean([len(s.answered) for s in seeds])),
        float(np.mean(accuracies)) if accuracies else None,
        float(np.mean(known)) if known else None,
    )
