"""What plan and run say before anything is spent, from settings and public sizes alone: where budgets afford no label,
settings that afford enough for a student, the most worth first, and a warning of labels that will mostly be wrong, each
with its command; and who votes where nobody said.

How right labels can be is the bound of protocols/study/right_labels.py, at the share of votes that is expected to
agree: see `expected_agreement`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, log10, sqrt

import numpy as np
import scipy
from jaxtyping import Float64
from numpy import ndarray

from protocols.budgets.accountant import default_accountant
from protocols.errors import BudgetExceeded, InvalidInput
from protocols.mechanisms import Mechanism, check_view
from protocols.study.plan import StudyPlan, make_plan, must_afford
from protocols.study.record_study import ANY_SIGNED
from protocols.study.released_noise import little_released, thin_queries
from protocols.study.right_labels import LEAST_RIGHT, most_right, needed_agreement, outcome_where_queries_differ
from protocols.study.study import Study
from protocols.study.units import large_delta
from protocols.study.votes import TeacherVotes, UnitSums, Votes
from simulations.progress import Reporter
from simulations.results.text import command
from simulations.setup.experiment import SETTINGS, Experiment, experiment, experiment_budgets, make_study, population_of
from simulations.setup.partition import ClassSkew, Iid, LabelSkew, parse_partition
from simulations.stages.inputs import DatasetInputs, Inputs
from simulations.stages.vote_source import record_study_of

# Factors that are tried, and how near the least one is found: three parts in a hundred.
_MOST, _NEAR = 1e4, 1.03
# By how much noise is made smaller in search of a remedy, and how near the most is found: a part in fifty.
_LEAST_NOISE, _NEAR_NOISE = 0.02, 1.02
# The odds that a teacher with k records of a class knows it, and does not guess, are _ODDS * k ** _POWER: least squares
# over the rows of docs/explanation/right-labels.md.
_ODDS, _POWER = 0.64, 0.65
_QUANTILES = 500
# Fewer labels of each class than this teach a student little, whatever their price.
_LABELS_A_CLASS = 10


def agreement_of(settings: Experiment, inputs: Inputs) -> float:
    """`expected_agreement` of these settings with the data of `inputs`; 1 for stored votes."""
    if not isinstance(inputs, DatasetInputs):
        return 1.0
    sizes: list[float] = [len(shard) for shards in inputs.shards for shard in shards]
    known = inputs.settings
    if (settings.parties, settings.teachers_per_party) != (known.parties, known.teachers_per_party):
        teachers = settings.parties * settings.teachers_per_party
        sizes = [len(inputs.dataset.private_labels) / teachers] * teachers
    return expected_agreement(settings.partition, sizes, classes=inputs.classes)


def expected_agreement(partition: str, sizes: Sequence[float], *, classes: int) -> float:
    """The share of votes that are expected to name the plurality, in [1/classes, 1]; sizes: each teacher's records.

    A teacher of m records, a share p of them of a class, knows that class with the probability s(m p), and guesses it
    with the probability p otherwise. s is measured; p is 1/classes, or has the law of the partition: under dirichlet:A
    it is Beta(A/C, A (1 - 1/C)), and under classes:K it is 1/K at a share K/C of parties and 0 at the others. Classes
    are taken to be equally frequent; how difficult they are is not known.
    """
    scheme = parse_partition(partition)
    shares: Float64[ndarray, " shares"] = np.array([1 / classes])
    weights = np.ones(1)
    if isinstance(scheme, LabelSkew):
        quantiles = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
        first, second = scheme.concentration / classes, scheme.concentration * (1 - 1 / classes)
        shares, weights = scipy.special.betaincinv(first, second, quantiles), np.full(_QUANTILES, 1 / _QUANTILES)
    elif isinstance(scheme, ClassSkew):
        held = min(scheme.classes, classes)
        shares, weights = np.array([1 / held, 0.0]), np.array([held / classes, 1 - held / classes])
    distinct, times = np.unique(np.asarray(sizes, dtype=float), return_counts=True)
    odds = _ODDS * (distinct[:, None] * shares) ** _POWER
    named = (odds + shares) / (1 + odds)
    return max(1 / classes, float(times @ (named @ weights) / times.sum()))


def expected_right(study: Study, partition: str, agreement: float) -> float:
    """The share of the released labels that are expected to be right, where a vote is right with the probability
    `agreement` in the mean, which varies over queries by the law that `plan --optimise` assumes.

    Unlike `most_right` it is no bound, and counts a label that most votes name as wrong where these are wrong. 1 where
    records are not spread evenly, of which that law was not measured, and for stored votes.
    """
    if agreement == 1.0 or not isinstance(parse_partition(partition), Iid):
        return 1.0
    right, answered = outcome_where_queries_differ(study, agreement)
    return right / answered if answered > 0 else 0.0


@dataclass(frozen=True)
class Affordable:
    """Settings that afford something. words: what is different; released: what they afford, in words; worth: how many
    labels can be right beyond guessing, as public figures bound it.
    """

    words: str
    settings: Experiment
    released: str
    worth: float

    def line(self, inputs: Inputs) -> str:
        """What is different, what that affords, and the command."""
        return f"{self.words}: {self.released}\n  run it   {_command(self.settings, inputs)}"


def _command(settings: Experiment, inputs: Inputs) -> str:
    host = inputs.host if isinstance(inputs, DatasetInputs) else None
    return command(settings, named=host.named if host else None)


def must_afford_or_say(study: Study, given: Experiment, inputs: Inputs) -> None:
    """Raises BudgetExceeded where no label can be released, with the nearest settings that afford one.

    given: the settings as somebody chose them, from which the commands are made; inputs: what the run starts from.
    """
    try:
        must_afford(make_plan(study))
    except BudgetExceeded as error:
        remedies = [each.line(inputs) for each in nearest_settings(study, given, inputs)]
        raise BudgetExceeded("\n".join([str(error), *remedies])) from None


def nearest_settings(study: Study, given: Experiment, inputs: Inputs) -> list[Affordable]:
    """Of each kind of change the smallest that affords labels enough for a student, or else one, the most worth first:
    record votes, larger budgets, more noise, more parties, one teacher each. Every one was checked by making its study.

    Those that are worth less than a label of each class are left out beside one that is worth more.
    """
    found = [each for change in _CHANGES[type(study.votes)] if (each := change(study, given, inputs)) is not None]
    found.sort(key=lambda each: -each.worth)
    return [each for each in found if each.worth >= min(inputs.classes, found[0].worth)]


def usual_votes(given: Experiment, inputs: Inputs) -> Experiment:
    """The same settings, voted on by whom public figures favour: by teachers where they afford labels enough for a
    student that can mostly be right, else by records, where the data have what those need and noise does not hide them.

    given: with teachers' votes; inputs: of these settings.
    """
    plan = _plan(inputs.settings, inputs)
    if plan is not None and afforded(inputs.settings, inputs) >= _enough(inputs):
        agreement = agreement_of(inputs.settings, inputs)
        likely = expected_right(plan.study, given.partition, agreement)
        if min(most_right(plan.study, agreement), likely) >= LEAST_RIGHT:
            return given
    records = _records(given, inputs)
    return given if records is None or records.worth < inputs.queries else records.settings


def _enough(inputs: Inputs) -> int:
    """How many labels teach a student something."""
    return max(1, min(inputs.queries, _LABELS_A_CLASS * inputs.classes))


def afforded(settings: Experiment, inputs: Inputs) -> int:
    """The labels that these settings afford if every query is answered; 0 if there is no such study.

    inputs: of other settings, of whose data only the size of the pool and the classes matter.
    """
    plan = _plan(settings, inputs)
    if plan is None:
        return 0
    all_stop = plan.study.votes.stop == "first-exhausted"
    return plan.answers_all if all_stop else max(group.answers_all for group in plan.groups)


def _plan(settings: Experiment, inputs: Inputs) -> StudyPlan | None:
    """The plan of these settings; None where nothing is afforded, or there is no such study."""
    try:
        names = inputs.party_names if settings.parties == inputs.settings.parties else None
        budgets = experiment_budgets(settings, names)
        plan = make_plan(make_study(settings, budgets, classes=inputs.classes, queries=inputs.queries))
        must_afford(plan)
    except (InvalidInput, BudgetExceeded):
        return None
    return plan


def changed(settings: Experiment, **values: object) -> Experiment:
    """The settings with others in their place, checked anew. Raises InvalidInput."""
    return experiment(**{**settings.known, **values})


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


def _factor_for(inputs: Inputs, settings: Callable[[float], Experiment]) -> float | None:
    """The least factor above 1 with which the settings afford labels enough for a student, or else a quarter of those,
    and so on down to one.
    """
    enough = _enough(inputs)
    while enough:
        if (factor := least_factor(lambda each: afforded(settings(each), inputs) >= enough)) is not None:  # noqa: B023
            return factor
        enough = enough // 4 or int(enough > 1)
    return None


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
        said += f", but at most {100 * right:.0f} % of them are then what most votes name"
    return Affordable(words, given, said, labels * max(0.0, right - 1 / inputs.classes) / (1 - 1 / inputs.classes))


def _budgets(study: Study, given: Experiment, inputs: Inputs) -> Affordable | None:
    def with_factor(settings: Experiment, factor: float) -> Experiment:
        text = scaled_budgets(settings.budgets, factor)
        return settings if text is None else changed(settings, budgets=text)

    factor = _factor_for(inputs, lambda each: with_factor(inputs.settings, each))
    if factor is None:
        return None
    settings = with_factor(inputs.settings, factor)
    return _labels(f"larger budgets, {settings.budgets}", with_factor(given, factor), settings, inputs)


def _noise(study: Study, given: Experiment, inputs: Inputs) -> Affordable | None:
    if given.individualization == "upsampling":
        return None
    mechanism = study.mechanism
    factor = _factor_for(inputs, lambda each: wider(inputs.settings, mechanism, each))
    if factor is None:
        return None
    settings = wider(inputs.settings, mechanism, factor)
    values = {name: value for name, value in settings.parameters.items() if name != "round_one"}
    said = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in values.items())
    return _labels(f"more noise, {said}", changed(given, **values), settings, inputs)


def _parties(study: Study, given: Experiment, inputs: Inputs) -> Affordable | None:
    """More parties, where the noise grows with their number and there are records for them."""
    if not isinstance(inputs, DatasetInputs) or given.parameters or given.partition == "by-site":
        return None
    if given.budgets.lower().endswith(".csv"):
        return None
    most = len(inputs.dataset.private_labels) // given.teachers_per_party

    def with_factor(factor: float) -> Experiment:
        return changed(inputs.settings, parties=min(most, ceil(inputs.settings.parties * factor)))

    factor = _factor_for(inputs, with_factor)
    if factor is None:
        return None
    settings = with_factor(factor)
    return _labels(f"more parties, {settings.parties}", changed(given, parties=settings.parties), settings, inputs)


def _teachers(study: Study, given: Experiment, inputs: Inputs) -> Affordable | None:
    """One teacher each, where a party's teachers all change with its data."""
    if not isinstance(inputs, DatasetInputs) or given.unit != "party" or given.teachers_per_party == 1:
        return None
    settings = changed(inputs.settings, teachers_per_party=1)
    return _labels("one teacher per party", changed(given, teachers_per_party=1), settings, inputs)


# What votes of records have no use for.
_OF_TEACHERS = (
    "teacher teachers_per_party accountant mechanism individualization weights stop answer_rate view"
).split()


def _records(given: Experiment, inputs: Inputs) -> Affordable | None:
    """Record votes, charged once, where the data have what they need; worth nothing where noise hides them."""
    pooled = given.individualization == "upsampling" or given.privacy_groups
    if given.unit == "party" or pooled:
        return None
    if not isinstance(inputs, DatasetInputs):
        return None
    said = {
        name: value
        for name, value in given.values.items()
        if value != SETTINGS.get(name) and name not in {*_OF_TEACHERS, *given.parameters}
    }
    try:
        chosen = experiment(**said, votes_by="record")
        of_records = replace(inputs, settings=chosen.changed(parties=inputs.settings.parties, residuals=False))
        # The noise hardly depends on features, which take a second to choose.
        vars(of_records).update(query_map=ANY_SIGNED)
        made = record_study_of(of_records, experiment_budgets(of_records.settings, inputs.party_names))
    except InvalidInput:
        return None
    sums = f"labels for all of the pool, with noise of {made.gaussian.label_sigma:.3g} votes on each sum"
    if (thin := thin_queries(made)) is not None:
        return Affordable("record votes", chosen, f"{sums}, but {thin}", 0.0)
    return Affordable("record votes", chosen, sums, inputs.queries)


def _records_and_budgets(study: Study, given: Experiment, inputs: Inputs) -> Affordable | None:
    """Record votes, with the least multiple of the budgets at which noise does not hide them."""

    def with_factor(factor: float) -> Affordable | None:
        text = scaled_budgets(given.budgets, factor)
        return None if text is None else _records(changed(given, budgets=text), inputs)

    now = _records(given, inputs)
    if now is None or now.worth:
        return None
    factor = least_factor(lambda each: (found := with_factor(each)) is not None and found.worth > 0)
    found = None if factor is None else with_factor(factor)
    return found and replace(found, words=f"record votes and larger budgets, {found.settings.budgets}")


_CHANGES: dict[type[Votes], tuple[Callable[[Study, Experiment, Inputs], Affordable | None], ...]] = {
    TeacherVotes: (
        lambda _, given, inputs: _records(given, inputs),
        _records_and_budgets,
        _budgets,
        _noise,
        _parties,
        _teachers,
    ),
    UnitSums: (_budgets, _parties),
}


def warnings_of(study: Study, given: Experiment, inputs: Inputs, reporter: Reporter) -> list[str]:
    """The warnings that public terms and data give of a study, each printed: what makes its figures doubtful, that it
    releases little, or wrong labels. The first line of each is the warning, the others a remedy."""
    of_terms = [little_released(study), *(warn(study, given, inputs) for warn in _OF_LABELS[type(study.votes)])]
    warnings = [*inputs.doubts, _large_delta(study, inputs), *of_terms]
    found = [each for each in warnings if each]
    for each in found:
        reporter.warn(each)
    return found


def _large_delta(study: Study, inputs: Inputs) -> str | None:
    """A warning of a delta above 1/units: a mechanism that gives one unit away at random has it, too."""
    delta = max(seat.delta for seat in study.roster)
    seats = len(study.roster)
    units = population_of(study.unit, inputs.dataset, seats) if isinstance(inputs, DatasetInputs) else None
    return large_delta(delta, study.unit, units, parties=seats)


def mostly_wrong(study: Study, given: Experiment, inputs: Inputs) -> str | None:
    """A warning where at most LEAST_RIGHT of the released labels can be the plurality, or are expected to be right,
    with a remedy; else None.

    given: the settings as somebody chose them, of which the remedy's command is made.
    """
    if study.labelled.names:  # the votes that are expected to agree are on classes
        return None
    agreement = agreement_of(inputs.settings, inputs)
    right, likely = most_right(study, agreement), expected_right(study, inputs.settings.partition, agreement)
    if right >= LEAST_RIGHT:
        return None if likely >= LEAST_RIGHT else _votes_wrong(given, inputs, agreement, likely)
    needed = needed_agreement(study)
    expected = f"about {100 * agreement:.0f} % of the votes are expected to agree, by the records of each party"
    if agreement == 1.0:
        expected = "even where all votes agree"
    lines = [
        f"many labels will be wrong: {expected}, and with {study.mechanism.noise_words} at most {100 * right:.0f} % of "
        "the "
        "released labels are then what most votes name"
        + ("" if needed is None else f"; for {100 * LEAST_RIGHT:.0f} %, {100 * needed:.0f} % must agree")
    ]
    return "\n".join([*lines, _remedy(study, given, inputs, agreement)])


def _votes_wrong(given: Experiment, inputs: Inputs, agreement: float, likely: float) -> str:
    said = (
        f"many labels will be wrong: about {100 * agreement:.0f} % of the votes are expected to be right, by the "
        f"records of each party, on some queries fewer than half: so are {100 * likely:.0f} % of the released labels"
    )
    records = _records(given, inputs)
    return said if records is None else f"{said}\nremedy: {records.line(inputs)}"


def _remedy(study: Study, given: Experiment, inputs: Inputs, agreement: float) -> str:
    """The most noise with which enough labels can be right, and what that affords, or costs."""
    if given.individualization == "upsampling":
        return "less noise and larger budgets help"

    def enough(factor: float) -> bool:
        less = _with_noise(study, inputs.settings, factor)
        likely = expected_right(less, inputs.settings.partition, agreement)
        return min(most_right(less, agreement), likely) >= LEAST_RIGHT

    low, high = _LEAST_NOISE, 1.0
    if not enough(low):
        return "no noise helps, as the votes themselves are nearly even: let records vote (--votes-by record)"
    while high / low > _NEAR_NOISE:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if enough(middle) else (low, middle)
    settings = wider(inputs.settings, study.mechanism, low)
    values = {name: settings.parameters[name] for name in settings.parameters if name != "round_one"}
    words = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in values.items())
    labels = afforded(settings, inputs)
    budgets = None
    if not labels:
        budgets = _budgets_for(settings, inputs)
        if budgets is None:
            return f"{words} would be enough, which no budgets afford that were tried; let records vote"
        settings = changed(settings, budgets=budgets)
        labels = afforded(settings, inputs)
    remedy = changed(given, **values) if budgets is None else changed(given, **values, budgets=budgets)
    said = "these budgets" if budgets is None else f"budgets {budgets}"
    return f"remedy: {words}, with which {said} afford at most {labels} labels\n  run it   {_command(remedy, inputs)}"


def _with_noise(study: Study, settings: Experiment, factor: float) -> Study:
    """The same study with other noise and threshold, of which its budgets are not asked."""
    values = {**study.mechanism.values, **wider(settings, study.mechanism, factor).parameters}
    view = check_view(study.view)
    mechanism = type(study.mechanism).build(view=view, given=values)
    # Not every accountant of the study holds for so little noise.
    account = default_accountant(mechanism.on_lattice(study.lattice), view, secret_coins=study.votes.secret_coins)
    return replace(study, accountant_name=account.name).voting(mechanism=mechanism)


def _budgets_for(settings: Experiment, inputs: Inputs) -> str | None:
    """The least multiple of the budgets with which a label is afforded; None where they are in a file, or none is."""

    def affords(factor: float) -> bool:
        text = scaled_budgets(settings.budgets, factor)
        return text is not None and afforded(changed(settings, budgets=text), inputs) > 0

    factor = least_factor(affords)
    return None if factor is None else scaled_budgets(settings.budgets, factor)


# Further warnings; sums have no labels that could be wrong.
_OF_LABELS: dict[type[Votes], tuple[Callable[[Study, Experiment, Inputs], str | None], ...]] = {
    TeacherVotes: (mostly_wrong,),
    UnitSums: (),
}
