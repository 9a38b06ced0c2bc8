"""One run, stage by stage: data -> partition -> teachers -> votes -> labels -> students -> results.

Where records vote there are no teachers: data -> partition -> record votes -> labels -> students -> results.

Heavy stages are cached by the hash of their inputs, so a second run with other budgets trains nothing, and an
interrupted run continues where it stopped.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from coordinator.labelling.soft_labels import pool_facts, pool_words
from coordinator.students import SCORES
from coordinator.students.choice import AUTO, Choice
from coordinator.students.scores import ScoresStudent
from party.asking.report import Improvement, improve
from party.data.records import Records
from protocols.budgets.planned import Budgets
from protocols.errors import InvalidInput
from protocols.labelling.replay import check_fit
from protocols.labelling.stored_votes import VoteCounts
from protocols.levels.hidden_queries.dealing import precision_of
from protocols.plural import counted
from protocols.reading import parse_json
from protocols.study.column_queries import bare_columns
from protocols.study.study import Study
from protocols.study.votes import TeacherVotes, UnitSums
from protocols.votes import plurality
from simulations.datasets.dataset import Dataset
from simulations.datasets.groups import groupings
from simulations.engines.engine import HostSpec, count_workers
from simulations.engines.in_process import beside
from simulations.findings import (
    CeilingOfFindings,
    Ceilings,
    FindingsFound,
    ReleasedStudents,
    StudentsOfFindings,
    findings_found,
    students_of,
)
from simulations.groups import ByGroup, by_group
from simulations.private import Findings, compute_findings
from simulations.progress import Reporter
from simulations.setup.accountants import check_analyses, named_accountants
from simulations.setup.experiment import Experiment, experiment, experiment_budgets, make_study
from simulations.stages.cast import teacher_seed
from simulations.stages.ceiling import Ceiling
from simulations.stages.inputs import DatasetInputs, Host, Inputs, VoteInputs, read_inputs
from simulations.stages.label import LIVE_PARTIES, SeedResult, check_live, live_study
from simulations.stages.record_cells import RecordCells
from simulations.stages.record_votes import JudgedStudent, evaluate_student, live_record_votes
from simulations.stages.students import ReleasedStudent, alone_right, foretold
from simulations.stages.vote_source import (
    VoteSource,
    labelled_source,
    record_study_of,
    study_for,
    train_between,
    votes_source,
)

# Models of fewer values than this are trained before another process has imported what it needs.
_MANY_VALUES = 10_000_000


@dataclass(frozen=True, eq=False)
class Baselines:
    """The baselines of a run; None where not measured, as all but the majority are not with baselines off.

    alone: the accuracy on the test records of what each party would train alone, of a sample of many parties
    (`measured_parties`); majority: on the same records, of always naming their most frequent class.
    """

    non_private: float | None
    alone: Float64[ndarray, " measured"] | None
    majority: float | None
    uniform_answered: float | None
    uniform_label_accuracy: float | None
    uniform_student: float | None


@dataclass(frozen=True, eq=False)
class RunResult:
    """Everything a report is made from. Accuracies are in [0, 1].

    released_student: of the first seed; None where none was trained. choices: for each seed how the kind of its student
    was chosen, None if it was named. told: of several findings, how well each is. by_group: None where no student was.
    findings: private. warned: what was said of the labels before anything was spent; foretold: of the first seed's
    labels, see `foretold`. improved: the model of the hospital that asks, before and after, for each seed; empty where
    none asks. evaluated: what judges found of each seed's student; empty where nobody judges.
    """

    settings: Experiment
    study: Study
    budgets: Budgets
    source: VoteSource
    seeds: list[SeedResult]
    students: list[float | None]
    released_student: ReleasedStudents | None
    choices: list[Choice | None]
    teacher_accuracy: Float64[ndarray, "parties teachers"] | None
    plurality_accuracy: float | None
    baselines: Baselines
    live_checked: bool
    by_group: ByGroup | None
    findings: Findings
    warned: tuple[str, ...] = ()
    foretold: int | None = None
    improved: tuple[Improvement, ...] = ()
    evaluated: tuple[JudgedStudent, ...] = ()
    told: FindingsFound | None = None


def study_of(inputs: Inputs, budgets: Budgets | None = None) -> tuple[Budgets, Study]:
    """The budgets of the parties and the study that they take part in. budgets: None takes those of the settings.

    Raises InvalidInput.
    """
    budgets = budgets or experiment_budgets(inputs.settings, inputs.party_names)
    return budgets, _STUDIES[inputs.settings.votes_by](inputs, budgets)


def _study_of_records(inputs: Inputs, budgets: Budgets) -> Study:
    if isinstance(inputs, VoteInputs):
        raise InvalidInput("votes are given; allowed where records vote: a data set")
    if (share := inputs.settings.evaluate) is not None and inputs.settings.student == "none":
        raise InvalidInput(f"evaluate is {share}; allowed with a student, which judges score")
    return record_study_of(inputs, budgets)


def _study_of_teachers(inputs: Inputs, budgets: Budgets) -> Study:
    findings = () if isinstance(inputs, VoteInputs) else inputs.dataset.findings
    study = make_study(
        inputs.settings, budgets, classes=inputs.classes, queries=inputs.queries, asks=inputs.asks, findings=findings
    )
    drops = inputs.settings.dropout > 0
    if isinstance(inputs, VoteInputs):
        check_fit(study, inputs.stored, drops=drops)
    _, analyses = named_accountants(inputs.settings.accountant)
    counted = isinstance(inputs, VoteInputs) and isinstance(inputs.stored, VoteCounts)
    check_analyses(analyses, study, drops=drops, trains=not isinstance(inputs, VoteInputs), votes_known=not counted)
    return study


_STUDIES = {TeacherVotes: _study_of_teachers, UnitSums: _study_of_records}


def run(
    inputs: Inputs, *, budgets: Budgets, study: Study, host: Host, reporter: Reporter, warned: Sequence[str] = ()
) -> RunResult:
    """Runs everything that takes time. Raises ConclaveError; what was finished before stays cached."""
    with _pooled_beside(inputs, host) as awaited:
        return _run(inputs, budgets, study, host=host, reporter=reporter, warned=warned, awaited=awaited)


def _run(
    inputs: Inputs,
    budgets: Budgets,
    study: Study,
    *,
    host: Host,
    reporter: Reporter,
    warned: Sequence[str],
    awaited: Callable[[], object] | None,
) -> RunResult:
    """`run`. awaited: see Ceiling."""
    settings = inputs.settings
    source = votes_source(inputs, host=host, reporter=reporter)
    with reporter.stage(f"labels, {counted(len(settings.seeds), 'seed')}") as stage:
        seeds = []
        for done, seed in enumerate(settings.seeds, 1):
            seeds.append(labelled_source(study, source, seed, settings, host))
            stage.update(done, len(settings.seeds))
        live = _checked_live(study, source, seeds[0], settings, host)
        answered = [len(s.answered) for s in seeds]
        stage.result = f"{answered[0] if len(seeds) == 1 else f'{np.mean(answered):.1f}'} {source.released_words}"
    for each in pool_warning(source, seeds[0]):
        reporter.warn(each)
    released = released_students(settings, source, seeds, host)
    students = _accuracies(settings, released, reporter=reporter, title="student", private=False)
    accuracy, plural = _teacher_accuracy(source)
    if settings.student == AUTO and released:
        # Baselines are of the kind that the first seed's labels chose, so that they differ in the labels alone.
        settings = settings.changed(student=released[0].kind)
    pooled = _pooled(settings, inputs, host, awaited)
    shards = inputs.shards if isinstance(inputs, DatasetInputs) else []
    baselines = _baselines(settings, budgets, source, pooled, shards, host=host, reporter=reporter)
    groups = _by_group(settings, source, released, pooled)
    first = released[0] if released else None
    choices = [student.choice for student in released] or [None] * len(seeds)
    evaluated = _evaluated(study, source, seeds, released)
    alone = first if isinstance(first, ReleasedStudent) else None
    findings = compute_findings(inputs, study, source.stored, seeds[0], alone, host=host, reporter=reporter)
    told = _told(source, seeds, released, pooled)
    return RunResult(
        inputs.settings, study, budgets, source, seeds, students, first, choices, accuracy, plural, baselines, live,
        groups, findings, tuple(warned), _foretold(inputs, seeds[0], host), _improved(inputs, study, seeds), evaluated,
        told,
    )  # fmt: skip


def _told(
    source: VoteSource, seeds: list[SeedResult], students: list[ReleasedStudents], pooled: Ceilings | None
) -> FindingsFound | None:
    """How well each of several findings is told; None of one label."""
    if source.studied is None:
        return None
    found = [
        (seed.said, student)
        for seed, student in zip(seeds, students, strict=False)
        if isinstance(student, StudentsOfFindings) and seed.said is not None
    ]
    return findings_found(source.studied, [said for said, _ in found], [student for _, student in found], pooled)


def _evaluated(
    study: Study, source: VoteSource, seeds: list[SeedResult], students: list[ReleasedStudents]
) -> tuple[JudgedStudent, ...]:
    """What judges find of each seed's student."""
    stored, studied = source.stored, source.studied
    if study.votes.evaluation is None or not isinstance(stored, RecordCells) or studied is None:
        return ()
    return tuple(
        evaluate_student(study, stored, studied, students_of(student), seed.labelling, seed=seed.seed)
        for seed, student in zip(seeds, students, strict=True)
        if student.trained_on
    )


def pool_warning(source: VoteSource, seed: SeedResult) -> list[str]:
    """A warning that the pool is unlike the records, which follows from the noisy sums of one seed alone."""
    if seed.soft is None or source.dataset is None:
        return []
    pool, columns = source.dataset.public_inputs, source.dataset.columns
    if source.dataset.kind == "table":
        columns = columns or bare_columns(pool.shape[1])
    said = pool_words(pool_facts(seed.soft.compared, pool), columns)
    return [said] if said else []


def _foretold(inputs: Inputs, first: SeedResult, host: Host) -> int | None:
    if isinstance(inputs, VoteInputs) or inputs.settings.votes_by.once or not find_spec("sklearn"):
        return None
    if first.told is not None:
        return None
    labels, named = first.labelling.labels, inputs.rows_named
    return foretold(lambda: inputs.as_rows, labels, named=named, cache_dir=host.cache_dir)


def _improved(inputs: Inputs, study: Study, seeds: list[SeedResult]) -> tuple[Improvement, ...]:
    if isinstance(inputs, VoteInputs) or inputs.asker is None:
        return ()
    taught, fixed_point = inputs.taught, precision_of(study)
    return tuple(
        improve(
            inputs.settings.teacher,
            Records(taught.private_inputs[inputs.asker], taught.private_labels[inputs.asker]),
            Records(taught.test_inputs, taught.test_labels),
            np.clip(taught.public_inputs, -fixed_point.input_bound, fixed_point.input_bound),
            seed.labelling.labels,
            classes=inputs.classes,
            seed=teacher_seed(inputs.settings.data_seed, len(study.roster), 0),
            precision=fixed_point,
        )
        for seed in seeds
    )


def _checked_live(study: Study, source: VoteSource, first: SeedResult, settings: Experiment, host: Host) -> bool:
    """Compares the first seed's replay with a live study; False where the study can only be replayed."""
    if isinstance(source.stored, VoteCounts) or len(study.roster) > LIVE_PARTIES or study.votes.pooled:
        return False
    if study.confidentiality.asked_by:  # A live one takes minutes a query; its ballots' own tests compare them.
        return False
    train = train_between(study, source, first.seed, settings, host)
    if isinstance(source.stored, RecordCells):
        stored, scores = source.stored, first.first
        again = None if scores is None else (scores, stored.residuals(study, scores))
        live = live_record_votes(study, stored.sums(study), seed=first.seed, dropout=settings.dropout, again=again)
    else:
        live = live_study(
            study, source.stored, seed=first.seed, dropout=settings.dropout, train=train, choose=source.choose
        )
    check_live(live, first.labelling)
    return True


def released_students(
    settings: Experiment, source: VoteSource, seeds: list[SeedResult], host: Host
) -> list[ReleasedStudents]:
    """One untrained student per seed, or one for each finding; empty if none was requested."""
    if settings.student in (None, "none") or source.studied is None:
        return []
    studied, found = source.studied, []
    for result in seeds:
        each = tuple(
            ReleasedStudent(
                task,
                *labels.training_set(task.classes),
                student=str(settings.student),
                seed=result.seed,
                cache_dir=host.cache_dir,
                noise=labels.noise,
                linear=source.linear,
                scores=_scores(source, labels) if settings.student == SCORES else None,
            )
            for task, labels in zip(studied.tasks, result.of_findings(len(studied.tasks)), strict=True)
        )
        found.append(StudentsOfFindings(each) if studied.findings else each[0])
    return found


def _scores(source: VoteSource, result: SeedResult) -> ScoresStudent | None:
    """The scores of the sums that a seed released; None where it released none."""
    if result.soft is None or not isinstance(source.stored, RecordCells):
        return None
    return ScoresStudent.of(source.stored.map, result.soft.scores)


def _accuracies(
    settings: Experiment, students: list[ReleasedStudents], *, reporter: Reporter, title: str, private: bool
) -> list[float | None]:
    """Test accuracy of each student; None for each seed where there is none. private: not for release, so that the
    closing line has no figure."""
    if not students:
        return [None] * len(settings.seeds)
    accuracies = []
    with reporter.stage(f"{title}, {settings.student}") as stage:
        for done, student in enumerate(students, 1):
            accuracies.append(student.accuracy())
            stage.update(done, len(students))
        if private:
            return accuracies
        known = [a for a in accuracies if a is not None]
        chosen = {student.kind: None for student in students if student.choice and student.trained_on}
        words = f"test accuracy {np.mean(known):.4f}" if known else "no label was released"
        stage.result = ", ".join([*chosen, words])
    return accuracies


def _teacher_accuracy(source: VoteSource) -> tuple[Float64[ndarray, "parties teachers"] | None, float | None]:
    """Each teacher's accuracy on the public queries that were voted on, and that of the unweighted plurality."""
    stored, truth = source.stored, source.truth
    if truth is None or isinstance(stored, RecordCells):
        return None, None
    histogram = stored.histogram()
    truth = truth[: len(histogram)]
    plural = float((plurality(histogram) == truth).mean())
    if isinstance(stored, VoteCounts):
        return None, plural
    return np.array([(votes == truth).mean(axis=1) for votes in stored.votes]), plural


def _pooled(
    settings: Experiment, inputs: Inputs, host: Host, awaited: Callable[[], object] | None = None
) -> Ceilings | None:
    """The untrained models of all data without privacy; None if no student or no baseline was requested."""
    if not settings.baselines or settings.student in (None, "none") or isinstance(inputs, VoteInputs):
        return None
    pixels = inputs.dataset if inputs.dataset.kind == "image" else inputs.studied
    each = tuple(
        Ceiling(
            task, partial(_rows_of_task, inputs, at), inputs.rows_named, str(settings.student), settings.data_seed,
            host.cache_dir, awaited,
        )
        for at, task in enumerate(pixels.tasks)
    )  # fmt: skip
    return CeilingOfFindings(each) if pixels.findings else each[0]


@contextmanager
def _pooled_beside(inputs: Inputs, host: Host) -> Iterator[Callable[[], object] | None]:
    """While this is open, a process of its own trains the network of all data, if these are large and there are several
    cores; the function waits for it. None: nobody does."""
    settings = inputs.settings
    pooled = None if settings.student == AUTO else _pooled(settings, inputs, host)
    large = isinstance(pooled, Ceiling) and pooled.pixels.private_inputs.size >= _MANY_VALUES and pooled.needs_network
    if not large or count_workers(host.workers, 2) < 2:
        yield None
        return
    chosen = json.dumps(settings.chosen).encode()
    with beside(HostSpec("simulations.pipeline:PooledHost", host.folders), chosen) as awaited:
        yield awaited


class PooledHost:
    """Trains the network of all data of a run, and leaves what it says in the cache."""

    def __init__(self, **folders: str) -> None:
        self._host = Host.in_worker(**folders)

    def handle(self, requests: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        """Each request is the settings of a run, as JSON."""
        for name, request in requests.items():
            settings = experiment(**parse_json(request, where="the settings of a run"))
            inputs = read_inputs(settings, host=self._host, reporter=Reporter(quiet=True, stream=io.StringIO()))
            pooled = _pooled(settings, inputs, self._host)
            if isinstance(pooled, Ceiling):
                _ = pooled.network_said
            yield name, b""


def _rows_of_task(inputs: DatasetInputs, at: int) -> Dataset:
    """What linear models see of a task."""
    return inputs.as_rows.tasks[at]


def _by_group(
    settings: Experiment, source: VoteSource, released: list[ReleasedStudents], pooled: Ceilings | None
) -> ByGroup | None:
    """What the students do on each group of the test records; None where none was trained, and of several findings."""
    trained = [student for student in released if isinstance(student, ReleasedStudent) and student.trained_on]
    if source.dataset is None or source.studied is None or not trained:
        return None
    inputs = source.studied.test_inputs
    return by_group(
        groupings(source.dataset, settings.group_columns),
        [student.probabilities(inputs) for student in trained],
        pooled.test_probabilities if isinstance(pooled, Ceiling) else None,
        source.dataset.test_labels,
        patients=source.dataset.test_patients,
    )


def majority_accuracy(labels: Sequence[Int64[ndarray, " records"]]) -> float:
    """The accuracy of always naming the most frequent class: of one label, or of each of several findings."""
    return float(sum(np.bincount(each).max() for each in labels) / sum(map(len, labels)))


def _baselines(
    settings: Experiment,
    budgets: Budgets,
    source: VoteSource,
    pooled: Ceilings | None,
    shards: list[list[Int64[ndarray, " records"]]],
    *,
    host: Host,
    reporter: Reporter,
) -> Baselines:
    """The non-private model, parties alone, and the study in which everyone has the smallest budget.

    Upsampled teachers learn records several times, so their votes cannot serve that study: it is left out.
    """
    alone = None
    tested = [] if source.dataset is None else [task.test_labels for task in source.dataset.tasks]
    majority = majority_accuracy(tested) if tested else None
    if not settings.baselines:
        return Baselines(None, None, majority, None, None, None)
    # Where a record is learned by several teachers, the shards are not those of parties; of several findings a party
    # has as many models.
    if source.taught is not None and not source.taught.findings and settings.individualization != "upsampling":
        with reporter.stage(f"baseline, single parties, {settings.teacher}"):
            alone = alone_right(
                source.taught, shards, teacher=settings.teacher, seed=settings.data_seed,
                cache_dir=host.cache_dir, trained=source.teachers,
            ).mean(axis=1)  # fmt: skip
    seeds: list[SeedResult] = []
    students: list[float | None] = []
    if settings.individualization != "upsampling":
        plain = settings.changed(weights="uniform", stop="first-exhausted", individualization="weighting")
        study = study_for(plain, budgets, source)
        seeds = [labelled_source(study, source, seed, plain, host) for seed in settings.seeds]
        trained = released_students(settings, source, seeds, host)
        students = _accuracies(settings, trained, reporter=reporter, title="baseline, minimum budget", private=True)
    accuracies = [s.label_accuracy for s in seeds if s.label_accuracy is not None]
    non_private = None
    if pooled is not None:
        with reporter.stage("baseline, all data pooled without privacy"):
            non_private = pooled.accuracy()
    known = [a for a in students if a is not None]
    return Baselines(
        non_private,
        alone,
        majority,
        float(np.mean([len(s.answered) for s in seeds])) if seeds else None,
        float(np.mean(accuracies)) if accuracies else None,
        float(np.mean(known)) if known else None,
    )
