"""What there would be without a federation, or without privacy: majority class, parties alone, all data pooled.

PATE at one epsilon of every party: votes of teachers, or of records themselves, and the student of the labels.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

import numpy as np
from jaxtyping import Bool, Float64, Int64
from numpy import ndarray

from coordinator.queries.choice import GRADED
from coordinator.students import EQUAL, SCORES, student_kind
from coordinator.students.choice import ToLearn, usual_student
from party.teachers import teacher_kind
from protocols.budgets.accountant import ExactComposition
from protocols.errors import BudgetExceeded, InvalidInput
from protocols.study.findings import NOT_KNOWN
from protocols.study.plan import make_plan, must_afford
from protocols.study.several_findings import Powerset
from protocols.study.votes import TeacherVotes, UnitSums, Votes
from protocols.votes import default_concentration
from simulations.baselines.method import Score, Task
from simulations.datasets.dataset import Dataset
from simulations.findings import StudentsOfFindings, auroc_on_tests, students_of
from simulations.pipeline import released_students, study_of
from simulations.planning.grid import Optimum, optimise_each
from simulations.planning.objective import OBJECTIVES
from simulations.planning.predict import AssumedVotes, Planner
from simulations.setup.experiment import OF_RECORDS, OF_TEACHERS, Experiment, experiment, usual_cells
from simulations.stages.inputs import DatasetInputs, with_settings
from simulations.stages.record_cells import RecordCells
from simulations.stages.students import ReleasedStudent, alone_right, pooled_student
from simulations.stages.vote_source import labelled_source, votes_source

# Of each test record whether a model is right, or which share of several is.
Right = Bool[ndarray, " test"] | Float64[ndarray, " test"]


def majority(task: Task) -> Score:
    """The accuracy of saying the private records' most frequent class every time."""
    most = [np.bincount(each.private_labels, minlength=each.classes).argmax() for each in task.dataset.tasks]
    right = [each.test_labels == named for each, named in zip(task.dataset.tasks, most, strict=True)]
    return Score(_together(task.dataset, right))


def single_party(task: Task) -> Score:
    """The mean of what parties reach with a teacher of their own records, and what each reaches."""
    settings, dataset = task.settings, task.seen_by(teacher_kind(task.settings.teacher)).dataset
    found = [
        alone_right(
            each, shards, teacher=settings.teacher, seed=settings.data_seed, cache_dir=task.host.cache_dir, trained=None
        )
        for each, shards in zip(dataset.tasks, _shards_of_tasks(dataset, task.inputs.shards), strict=True)
    ]
    right = _together(dataset, [each.mean(axis=0) for each in found])
    if len({len(each) for each in found}) > 1:  # a party without records of a finding has no model of it
        return Score(right)
    own = np.mean([each.mean(axis=1) for each in found], axis=0)
    return Score(right, details={"best": float(own.max())}, by_party=tuple(own.tolist()))


def pooled(task: Task) -> Score:
    """The accuracy of the student's kind of model, of all private records."""
    return _pooled(task, str(task.settings.student))


def pooled_linear(task: Task) -> Score:
    """The accuracy of a logistic regression of all private records: what linear methods could reach.

    Its classes count the same where the student's do.
    """
    equal = str(task.settings.student).endswith(EQUAL)
    return _pooled(task, f"logistic_regression{EQUAL * equal}")


def _pooled(task: Task, student: str) -> Score:
    dataset = task.seen_by(student_kind(student)).dataset
    return _of_students(
        dataset,
        [
            pooled_student(each, student=student, seed=task.seed, cache_dir=task.host.cache_dir)
            for each in dataset.tasks
        ],
    )


def _together(dataset: Dataset, right: Sequence[Right]) -> Float64[ndarray, " test"]:
    """Of each test record the mean of what is right of its tasks, NaN where it belongs to none."""
    if not dataset.findings:
        return np.asarray(right[0], dtype=np.float64)
    of_all = np.full(dataset.test_labels.shape, np.nan)
    for at, each in enumerate(right):
        of_all[dataset.test_labels[:, at] != NOT_KNOWN, at] = each
    known = (dataset.test_labels != NOT_KNOWN).sum(axis=1)
    return np.where(known > 0, np.nansum(of_all, axis=1), np.nan) / np.maximum(known, 1)


def _shards_of_tasks(
    dataset: Dataset, shards: list[list[Int64[ndarray, " records"]]]
) -> Iterator[list[list[Int64[ndarray, " records"]]]]:
    """Which private records of each task each party has; without parties that have none of a finding."""
    for at in range(len(dataset.findings)):
        known = dataset.private_labels[:, at] != NOT_KNOWN
        place = np.cumsum(known) - 1
        found = [[place[each[known[each]]] for each in of_party] for of_party in shards]
        yield [of_party for of_party in found if sum(map(len, of_party))]
    if not dataset.findings:
        yield shards


def _of_students(
    dataset: Dataset, students: Sequence[ReleasedStudent], *, note: str = "", details: dict[str, float] | None = None
) -> Score:
    """What the students of a data set's tasks get right; of findings the mean AUROC too, among the details."""
    right = [found for each in students if (found := each.right()) is not None]
    if len(right) < len(students):
        return Score(None, note=note, details=details or {})
    told = auroc_on_tests(StudentsOfFindings(tuple(students)), dataset) if dataset.findings else None
    return Score(_together(dataset, right), note, {**(details or {}), **({} if told is None else {"auroc": told})})


# Of the teachers that a plan assumes: what plans of record votes assume of tables.
ASSUMED_ACCURACY: Final = 0.8
# Queries whose votes are planned: enough to rank noises, and quick.
_PLANNED_QUERIES: Final = 500
# Records of the pool below which a student of records' votes is a logistic regression, where no kind was named.
FEW_LABELS: Final = 250


def labels_of_teachers(task: Task) -> Score:
    """The student of the labels that teachers' votes release.

    Mechanism, noise, threshold and number of queries are those that `plan --optimise --accuracy 0.8` chooses with the
    exact composition, unless a mechanism is named: then they are those of `run` with the same settings. A plan reads no
    private record.
    """
    inputs = task.seen_by(teacher_kind(task.settings.teacher))
    settings = _changed(task, left_out={*OF_RECORDS, "votes_by"}, votes_by=TeacherVotes)
    if task.dataset.findings:  # plans assume one class per record
        settings = settings.changed(findings_by=settings.findings_by or Powerset.by)
    elif "mechanism" not in settings.given and not settings.parameters:
        if settings.accountant is None and settings.view == "label":
            settings = settings.changed(accountant=ExactComposition.name)
        public = settings.changed(classes=inputs.classes, data_seed=0, seeds=(0,))
        chosen = _plan(tuple(public.chosen.items()), inputs.queries)
        if isinstance(chosen, str):
            return Score(None, note=chosen)
        found = chosen.chosen
        inputs = _with_pool(inputs, found.queries)
        settings = experiment(
            **{
                **settings.chosen,
                "mechanism": chosen.mechanism,
                "answer_rate": found.answer_rate,
                **dict(found.noise.values),
            }
        )
    return _score(task, inputs, settings)


def record_votes(task: Task) -> Score:
    """The student of the soft labels of records that vote in cells: of columns, of clusters, or those named."""
    settings = _of_records(task, record_queries=task.settings.record_queries or usual_cells(task.inputs.dataset))
    try:
        return _score(task, task.inputs, settings)
    except InvalidInput as error:
        return Score(None, note=str(error))


def graded_votes(task: Task) -> Score:
    """The usual student of graded votes; where a kind is named, the scores that they release."""
    return graded_scores(task, budgets=repr(task.budget))


def graded_twice(task: Task) -> Score:
    """The same where units are asked once more how far the first sum's scores are from their labels."""
    return graded_scores(task, budgets=repr(task.budget), residuals=True)


def graded_scores(task: Task, *, budgets: str, residuals: bool = False) -> Score:
    """The same under these budgets of the parties."""
    queries = {"record_queries": GRADED, "bins": None, "nearest": None, "partitions": None}
    settings = _of_records(task, **queries, budgets=budgets, residuals=residuals)
    try:
        given = with_settings(task.inputs, settings.changed(student="none"), reporter=task.reporter)
        _, study = study_of(given)
        source = votes_source(given, host=task.host, reporter=task.reporter)
        result = labelled_source(study, source, task.seed, given.settings, task.host)
    except InvalidInput as error:
        return Score(None, note=str(error))
    if result.soft is None or any(each.scores is None for each in result.soft.each):
        return Score(None, note=f"no sum was released: {result.labelling.stop.reason}")
    assert isinstance(source.stored, RecordCells)  # records voted
    dataset = task.inputs.dataset
    details = {"features": float(source.stored.queries), "right": float(result.label_accuracy or 0.0)}
    given_labels = ToLearn.of(dataset.public_inputs, labels=len(dataset.public_labels), graded=True)
    usual = usual_student(UnitSums, given_labels).kind
    kind = usual if task.usual_student else SCORES
    trained = released_students(given.settings.changed(student=kind), source, [result], task.host)[0]
    return _of_students(dataset, students_of(trained), details=details)


def _of_records(task: Task, **queries: object) -> Experiment:
    left_out = {*OF_TEACHERS, *task.settings.parameters, "votes_by", "view"}
    settings = _changed(task, left_out=left_out, votes_by=UnitSums)
    return experiment(**{**settings.chosen, **queries})


def _changed(task: Task, *, left_out: set[str], votes_by: type[Votes]) -> Experiment:
    """The task's settings with its epsilon and its seed, for this kind of votes."""
    left_out = {*left_out, "teacher_features", "student_features"}  # linear models see those of the task
    given = {name: value for name, value in task.settings.chosen.items() if name not in left_out}
    own = {"budgets": repr(task.budget), "seeds": (task.seed,), "baselines": False, "votes_by": votes_by}
    return experiment(**{**given, **own, "student": task.settings.student, "parties": len(task.inputs.shards)})


@lru_cache(maxsize=64)
def _plan(settings: tuple[tuple[str, Hashable], ...], pool: int) -> Optimum | str:
    """The best setting of any mechanism for an experiment of these settings, and a pool of at most so many queries; or
    why there is none.
    """
    said = experiment(**dict(settings)).changed(queries=pool)
    assert said.classes is not None  # as the data determine
    votes = AssumedVotes(
        classes=said.classes, accuracy=ASSUMED_ACCURACY, concentration=default_concentration(said.classes)
    )
    planner = Planner.of(said, votes, OBJECTIVES["information"], pool=pool, bank=_PLANNED_QUERIES)
    try:
        return optimise_each(planner, min_accuracy=ASSUMED_ACCURACY, first=None)[0][0]
    except (BudgetExceeded, InvalidInput) as error:
        return str(error)


def _with_pool(inputs: DatasetInputs, queries: int) -> DatasetInputs:
    """The inputs with the first queries of the pool alone."""
    dataset = inputs.dataset
    first = replace(
        dataset, public_inputs=dataset.public_inputs[:queries], public_labels=dataset.public_labels[:queries]
    )
    return replace(inputs, dataset=first)


def _student(task: Task, labels: int, *, votes_by: type[Votes]) -> str:
    """The named kind of student, or the usual one: of records' votes, whose labels are soft and of the whole pool, a
    logistic regression of a small pool, and else that of all other methods."""
    if not task.usual_student:
        return str(task.settings.student)
    return _USUAL[votes_by](task, labels)


_USUAL: dict[type[Votes], Callable[[Task, int], str]] = {
    TeacherVotes: lambda task, labels: (
        usual_student(TeacherVotes, ToLearn.of(task.inputs.dataset.public_inputs, labels=labels)).kind
    ),
    UnitSums: lambda task, labels: "logistic_regression" if labels < FEW_LABELS else str(task.settings.student),
}


def _score(task: Task, inputs: DatasetInputs, settings: Experiment) -> Score:
    """The accuracy of the student; none, with the reason, where the epsilon affords no label."""
    # Of a mechanism of two rounds alone: the student between them sees what teachers see.
    between = str(task.settings.student)
    if task.seen_by(student_kind(between)) is not task.seen_by(teacher_kind(task.settings.teacher)):
        between = "logistic_regression"
    given = with_settings(inputs, settings.changed(student=between), reporter=task.reporter)
    _, study = study_of(given)
    try:
        must_afford(make_plan(study))
    except BudgetExceeded as error:
        return Score(None, note=str(error))
    source = votes_source(given, host=task.host, reporter=task.reporter)
    result = labelled_source(study, source, task.seed, given.settings, task.host)
    tasks = task.dataset.tasks
    sets = [one.training_set(each.classes) for one, each in zip(result.of_findings(len(tasks)), tasks, strict=True)]
    labels = max(len(targets) for _, targets in sets)
    student = _student(task, labels, votes_by=settings.votes_by)
    dataset = task.seen_by(student_kind(student)).dataset
    trained = [
        ReleasedStudent(each, positions, targets, student=student, seed=task.seed, cache_dir=task.host.cache_dir)
        for each, (positions, targets) in zip(dataset.tasks, sets, strict=True)
    ]
    right = result.label_accuracy
    details = {"labels": float(labels)} | ({} if right is None else {"right": float(right)})
    return _of_students(dataset, trained, note="" if labels else "no label was released", details=details)
