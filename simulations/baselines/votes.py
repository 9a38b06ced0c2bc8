"""PATE at one epsilon of every party: votes of teachers, or of records themselves, and the student of the labels."""

from __future__ import annotations

from protocols.errors import BudgetExceeded, InvalidInput
from simulations.baselines.method import Score, Task
from simulations.pipeline import released_students, study_of
from simulations.planning.plan import make_plan, must_afford
from simulations.setup.experiment import Experiment, experiment
from simulations.setup.record_votes import OF_RECORDS, OF_TEACHERS
from simulations.stages.inputs import with_settings
from simulations.stages.vote_source import labelled, votes_source


def teacher_votes(task: Task) -> Score:
    """The student of the labels that teachers' votes release, as `run` makes it with the same settings."""
    left_out = {*OF_RECORDS, "votes_by"}
    return _student(task, _changed(task, left_out=left_out, votes_by="teacher"))


def record_votes(task: Task) -> Score:
    """The student of the soft labels that records' votes release, as `run --votes-by record` makes it."""
    left_out = {*OF_TEACHERS, *task.settings.parameters, "votes_by", "view"}
    try:
        return _student(task, _changed(task, left_out=left_out, votes_by="record"))
    except InvalidInput as error:
        return Score(None, note=str(error))


def _changed(task: Task, *, left_out: set[str], votes_by: str) -> Experiment:
    """The task's settings with its epsilon and its seed, for this kind of votes."""
    given = task.settings.model_dump(exclude_unset=True, exclude=left_out)
    own = {"budgets": repr(task.budget), "seeds": (task.seed,), "baselines": False, "votes_by": votes_by}
    return experiment(**{**given, **own, "student": task.settings.student, "parties": len(task.inputs.shards)})


def _student(task: Task, settings: Experiment) -> Score:
    """The accuracy of the student; none, with the reason, where the epsilon affords no label."""
    inputs = with_settings(task.inputs, settings, reporter=task.reporter)
    budgets, study = study_of(inputs)
    try:
        must_afford(make_plan(study, budgets))
    except BudgetExceeded as error:
        return Score(None, note=str(error))
    source = votes_source(inputs, host=task.host, reporter=task.reporter)
    result = labelled(study, source, task.seed, inputs.settings, task.host)
    found = released_students(inputs.settings, source, [result], task.host)[0].accuracy()
    details = {"labels": float(len(result.training_set(inputs.classes)[0]))}
    return Score(found, note="" if found is not None else "no label was released", details=details)
