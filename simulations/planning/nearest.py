"""Where budgets afford nothing: the nearest settings that afford a label, each with the command that runs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, floor, log10, sqrt

import numpy as np

from protocols.errors import BudgetExceeded, InvalidInput
from protocols.features.feature_map import FeatureMap
from protocols.mechanisms import Mechanism, check_view
from protocols.study.query_map import Partition, QueryMap
from protocols.study.released_noise import thin_queries
from protocols.study.right_labels import LEAST_RIGHT, most_right
from protocols.study.study import Study
from simulations.datasets.dataset import Dataset
from simulations.planning.agreement import agreement_of
from simulations.planning.plan import StudyPlan, make_plan, must_afford
from simulations.results.text import command
from simulations.setup.experiment import Experiment, experiment, experiment_budgets, make_study
from simulations.setup.record_votes import usual_clusters
from simulations.stages.inputs import DatasetInputs, Inputs
from simulations.stages.vote_source import record_study_of

# Factors that are tried, and how near the least one is found: three parts in a hundred.
_MOST, _NEAR = 1e4, 1.03


@dataclass(frozen=True)
class Affordable:
    """Settings that afford something. words: what is different; released: what they afford, in words."""

    words: str
    settings: Experiment
    released: str

    @property
    def line(self) -> str:
        """What is different, what that affords, and the command."""
        return f"{self.words}: {self.released}\n  run it   {command(self.settings)}"


def must_afford_or_say(study: Study, given: Experiment, inputs: Inputs) -> None:
    """Raises BudgetExceeded where no label can be released, with the nearest settings that afford one.

    given: the settings as somebody chose them, from which the commands are made; inputs: what the run starts from.
    """
    budgets = experiment_budgets(inputs.settings, inputs.party_names)
    try:
        must_afford(make_plan(study, budgets))
    except BudgetExceeded as error:
        raise BudgetExceeded("\n".join([str(error), *(each.line for each in nearest(study, given, inputs))])) from None


def nearest(study: Study, given: Experiment, inputs: Inputs) -> list[Affordable]:
    """Each of the smallest changes of one kind, as far as there is one: larger budgets, more noise, more parties, one
    teacher each, record votes. Every one was checked by making its study.
    """
    found = [_budgets(given, inputs), _noise(study, given, inputs), _parties(given, inputs), _teachers(given, inputs)]
    return [each for each in (*found, _records(given, inputs)) if each is not None]


def afforded(settings: Experiment, inputs: Inputs) -> int:
    """The labels that these settings afford if every query is answered; 0 if there is no such study.

    inputs: of other settings, of whose data only the size of the pool and the classes matter.
    """
    plan = _plan(settings, inputs)
    if plan is None:
        return 0
    all_stop = plan.study.stop == "first-exhausted"
    return plan.answers_all if all_stop else max(group.answers_all for group in plan.groups)


def _plan(settings: Experiment, inputs: Inputs) -> StudyPlan | None:
    """The plan of these settings; None where nothing is afforded, or there is no such study."""
    try:
        names = inputs.party_names if settings.parties == inputs.settings.parties else None
        budgets = experiment_budgets(settings, names)
        plan = make_plan(make_study(settings, budgets, classes=inputs.classes, queries=inputs.queries), budgets)
        must_afford(plan)
    except (InvalidInput, BudgetExceeded):
        return None
    return plan


def changed(settings: Experiment, **values: object) -> Experiment:
    """The settings with others in their place, checked anew. Raises InvalidInput."""
    return experiment(**{**settings.model_dump(exclude_none=True), **values})


def wider(settings: Experiment, mechanism: Mechanism, factor: float) -> Experiment:
    """The settings with the noise and threshold of `mechanism`, their own, times `factor`, to three digits. Raises
    InvalidInput.
    """
    values: dict[str, object] = {}
    for name, each in mechanism.parameters(view=check_view(settings.view)).items():
        if each.role in ("noise", "threshold"):
            values[name] = float(f"{each.wider(mechanism.values[name], factor):.3g}")
    return changed(settings, **values)


def scaled_budgets(text: str, factor: float) -> str | None:
    """The same form of budgets with every epsilon `factor` times as large, to three digits up; None for a file."""
    if text.lower().endswith(".csv"):
        return None
    kind, colon, rest = text.partition(":")
    if kind == "lognormal":
        median, _, deviation = rest.partition(",")
        return f"{kind}:{_up(float(median) * factor)},{deviation}"
    if kind == "uniform":
        return f"{kind}:" + ",".join(_up(float(each) * factor) for each in rest.split(","))
    if not colon:
        return _up(float(text) * factor)
    pairs = (pair.partition(":") for pair in text.split(","))
    return ",".join(f"{_up(float(epsilon) * factor)}:{share}" for epsilon, _, share in pairs)


def _up(value: float) -> str:
    """Rounded up to three digits."""
    step = 10.0 ** (floor(log10(value)) - 2)
    return f"{ceil(value / step - 1e-9) * step:.6g}"


def least_factor(affords: Callable[[float], bool]) -> float | None:
    """The least factor above 1, to three parts in a hundred, for which something is afforded; None if none is."""
    low, high = 1.0, 2.0
    while not affords(high):
        low, high = high, high * 2
        if high > _MOST:
            return None
    while high / low > _NEAR:
        middle = sqrt(low * high)
        low, high = (low, middle) if affords(middle) else (middle, high)
    return high


def _labels(words: str, given: Experiment, settings: Experiment, inputs: Inputs) -> Affordable | None:
    plan, labels = _plan(settings, inputs), afforded(settings, inputs)
    if plan is None:
        return None
    said = f"{labels} {'label' if labels == 1 else 'labels'}"
    right = most_right(plan.study, agreement_of(settings, inputs))
    if right < LEAST_RIGHT:
        said += f", but at most {right:.0%} of them are then what most votes name"
    return Affordable(words, given, said)


def _budgets(given: Experiment, inputs: Inputs) -> Affordable | None:
    def with_factor(settings: Experiment, factor: float) -> Experiment:
        text = scaled_budgets(settings.budgets, factor)
        return settings if text is None else changed(settings, budgets=text)

    factor = least_factor(lambda each: afforded(with_factor(inputs.settings, each), inputs) > 0)
    if factor is None:
        return None
    settings = with_factor(inputs.settings, factor)
    return _labels(f"larger budgets, {settings.budgets}", with_factor(given, factor), settings, inputs)


def _noise(study: Study, given: Experiment, inputs: Inputs) -> Affordable | None:
    if given.individualization == "upsampling" or given.votes_by == "record":
        return None
    mechanism = study.mechanism
    factor = least_factor(lambda each: afforded(wider(inputs.settings, mechanism, each), inputs) > 0)
    if factor is None:
        return None
    settings = wider(inputs.settings, mechanism, factor)
    values = {name: value for name, value in settings.parameters.items() if name != "round_one"}
    said = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in values.items())
    return _labels(f"more noise, {said}", changed(given, **values), settings, inputs)


def _parties(given: Experiment, inputs: Inputs) -> Affordable | None:
    """More parties, where the noise grows with their number and there are records for them."""
    if not isinstance(inputs, DatasetInputs) or given.parameters or given.partition == "by-site":
        return None
    if given.budgets.lower().endswith(".csv"):
        return None
    most = len(inputs.dataset.private_labels) // given.teachers_per_party

    def with_factor(factor: float) -> Experiment:
        return changed(inputs.settings, parties=min(most, ceil(inputs.settings.parties * factor)))

    factor = least_factor(lambda each: afforded(with_factor(each), inputs) > 0)
    if factor is None:
        return None
    settings = with_factor(factor)
    return _labels(f"more parties, {settings.parties}", changed(given, parties=settings.parties), settings, inputs)


def _teachers(given: Experiment, inputs: Inputs) -> Affordable | None:
    """One teacher each, where a party's teachers all change with its data."""
    if not isinstance(inputs, DatasetInputs) or given.unit != "party" or given.teachers_per_party == 1:
        return None
    settings = changed(inputs.settings, teachers_per_party=1)
    return _labels("one teacher per party", changed(given, teachers_per_party=1), settings, inputs)


# What votes of records have no use for.
_OF_TEACHERS = (
    "teacher teachers_per_party accountant mechanism individualization weights stop answer_rate retrainings view"
).split()


def _records(given: Experiment, inputs: Inputs) -> Affordable | None:
    """Record votes, which are charged once, where the data have what they need."""
    pooled = given.individualization == "upsampling" or given.privacy_groups
    if given.votes_by == "record" or given.unit == "party" or pooled:
        return None
    if not isinstance(inputs, DatasetInputs):
        return None
    said = given.model_dump(exclude_defaults=True, exclude={*_OF_TEACHERS, *given.parameters})
    try:
        chosen = experiment(**said, votes_by="record")
        of_records = replace(inputs, settings=chosen.model_copy(update={"parties": inputs.settings.parties}))
        if not inputs.dataset.has_cells:
            vars(of_records).update(query_map=_as_many_queries(inputs.dataset))
        study = record_study_of(of_records, experiment_budgets(of_records.settings, inputs.party_names))
    except InvalidInput:
        return None
    sums = f"labels for all of the pool, with noise of {study.gaussian.label_sigma:.3g} votes on each sum"
    return Affordable("record votes", chosen, sums if (thin := thin_queries(study)) is None else f"{sums}, but {thin}")


def _as_many_queries(dataset: Dataset) -> QueryMap:
    """As many queries as a study of images or text has by default, but not where they are: clusters take seconds to
    find, and the noise depends on their number alone.
    """
    points = np.arange(usual_clusters(dataset), dtype=np.float32)[:, None]
    return QueryMap(FeatureMap((1,)), (Partition.of(points, columns=np.zeros(1, dtype=np.int64)),))
