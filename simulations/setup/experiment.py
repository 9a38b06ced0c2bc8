"""Experiment: everything needed to repeat a run, as one validated value; its TOML file; and the study it describes.

With it what an experiment fixes where records vote. Only the simulator's command line has defaults for unit, view and
delta; they are defined here and printed first. Noise and threshold not given scale with the number of votes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints  # Any: of a setting's own kind

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from coordinator.queries import questions_of_a_batch
from coordinator.queries.choice import BOTH, COLUMNS, GRADED, QueryChoice, make_queries
from protocols.budgets.individualization import USUAL_RULE
from protocols.budgets.planned import Budgets
from protocols.errors import InvalidInput
from protocols.levels.simulated import simulated_level
from protocols.mechanisms import Number, TauVoting, View
from protocols.study.chosen import GIVEN
from protocols.study.column_queries import bare_columns
from protocols.study.findings import Labelled
from protocols.study.levels import LEVELS
from protocols.study.record_study import ANY_SIGNED, RecordVotesPlan, record_study
from protocols.study.released_noise import noise_of_mean
from protocols.study.settings import read_setting, read_settings
from protocols.study.several_findings import ONE_CLASS, Asked, Tau
from protocols.study.study import Study
from protocols.study.teacher_study import TERMS, Dropout, TeacherTerms, TeacherVotesPlan, teacher_study
from protocols.study.units import Unit
from protocols.study.usual_noise import is_usual
from protocols.study.votes import StopRule, TeacherVotes, UnitSums, Votes
from protocols.sums.blocks import Blocks
from protocols.sums.judging import Evaluation, usual_score_bins
from runtime.settings import named_toml
from simulations.datasets.dataset import Dataset
from simulations.setup.accountants import named_accountants
from simulations.setup.budgets import group_budgets, parse_budgets, upsampling

# Settings that have a meaning for teachers' votes only, and those for record votes only.
OF_TEACHERS = (
    "questions teachers_per_party votes votes_kind labels accountant mechanism individualization stop answer_rate "
    "teacher_features findings_by"
).split()
OF_RECORDS = "record_queries bins nearest partitions features evaluate residuals".split()
# Settings that say how votes are made; they do not apply to stored votes.
DATA_SETTINGS = (
    "dataset schema_file partition teacher findings_by teachers_per_party private_size imbalance mislabelled student "
    "privacy_groups votes_by groups questions features".split()
)


@dataclass(frozen=True)
class Voters:
    """What the settings of an experiment mean with one kind of voters.

    check: raises InvalidInput for a setting that has no effect, or no meaning, with them, given the settings that
    somebody chose, by name; assumed: settings that are not given; usual_noise: whether noise that is not given is the
    usual one; counted: settings on which their votes depend; idle: those that mean nothing; curve: whether a plan has a
    curve of labels; rehearsed: flags of --optimise that a plan has without it.
    """

    check: Callable[[Experiment, dict[str, object]], None]
    assumed: Mapping[str, object]
    usual_noise: bool
    counted: frozenset[str]
    idle: Sequence[str]
    curve: bool
    rehearsed: tuple[str, ...]


def check_teachers(settings: Experiment, given: dict[str, object]) -> None:
    """Raises InvalidInput for a setting that has no effect, or no meaning, where teachers vote."""
    if settings.unit == "patient":
        raise InvalidInput("unit is 'patient'; allowed where teachers vote: record, party (or votes_by 'record')")
    learns = settings.teacher_features or settings.student_features
    if learns and settings.features is None:
        both = "teacher_features or student_features"
        raise InvalidInput(f"features is not given; allowed with {both}: what they learn from, such as auto")
    of_records = [name for name in OF_RECORDS if name != "features" or (settings.questions == GIVEN and not learns)]
    idle = [name for name in of_records if given.get(name) is not None]
    if idle:
        more = ", or with questions that are chosen, teacher_features or student_features"
        only = f"only{more if idle[0] == 'features' else ''}"
        raise InvalidInput(f"{idle[0]} is {given[idle[0]]!r}; allowed with votes_by 'record' {only}: leave it out")
    if settings.features is not None and settings.votes is not None:
        raise InvalidInput(f"features is {settings.features!r}; allowed: none with stored votes, which are cast")


def _check_records(settings: Experiment, given: dict[str, object]) -> None:
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


_BUDGETED = "unit confidentiality units budgets delta weights colluders quorum evaluate residuals".split()
VOTERS: Mapping[type[Votes], Voters] = {
    TeacherVotes: Voters(
        check=check_teachers, assumed={}, usual_noise=True, counted=frozenset(), idle=(), curve=True, rehearsed=()
    ),
    # What is released are sums: there is no other view.
    UnitSums: Voters(
        check=_check_records, assumed={"view": UnitSums.view}, usual_noise=False, counted=frozenset(_BUDGETED),
        idle=OF_TEACHERS, curve=False, rehearsed=("accuracy",),
    ),
}  # fmt: skip


def is_graded(settings: Experiment) -> bool:
    """Whether records vote with graded features, as they do if nothing else is named."""
    of_cells = (settings.bins, settings.nearest, settings.partitions)
    return settings.record_queries in (None, GRADED) and of_cells == (None, None, None)


def query_map(settings: Experiment, dataset: Dataset, *, population: int, budgets: Budgets | None = None) -> Blocks:
    """The public features or queries of the experiment, made of the public pool, public figures and constants alone:
    those of make_queries. budgets: None: those of the settings. Raises InvalidInput for queries that the data do not
    have, and for settings that do not go with them."""
    images = dataset.kind == "image"
    kind = settings.record_queries or (GRADED if is_graded(settings) else usual_cells(dataset))
    if kind.partition(":")[0] in (COLUMNS, BOTH) and not dataset.has_cells:
        has = "images" if images else "text"
        raise InvalidInput(f"record_queries is {kind!r}; allowed for {dataset.name}, which has {has}: clusters:N")
    pool = dataset.public_inputs
    columns = () if images else dataset.columns or bare_columns(pool.shape[1])
    given = {name: getattr(settings, name) for name in ("bins", "nearest", "partitions", "features")}
    choice = QueryChoice(kind=kind, seed=None if kind == COLUMNS else settings.data_seed, **given)
    noise, labelled = None, dataset.labelled
    if kind == GRADED:
        budgets = budgets or experiment_budgets(settings)
        study = make_record_study(settings, budgets, labelled=labelled, queries=ANY_SIGNED, population=population)
        # A label of several is shorter by the root of their number.
        noise = noise_of_mean(study) * labelled.told**0.5
    return make_queries(pool, columns, choice, population=population, classes=dataset.classes, noise=noise)


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
    settings: Experiment, budgets: Budgets, *, labelled: Labelled, queries: Blocks, population: int, pool: int = 0
) -> Study:
    """The study of an experiment in which records vote. pool: as in its plan. Raises InvalidInput for bad settings."""
    seats = len(budgets.names)
    units = settings.units or (LEVELS[settings.confidentiality].graded_units(population) if queries.signed else None)
    level = simulated_level(settings.confidentiality, units=units, colluders=settings.colluders, seats=seats)
    classes = labelled.columns(signed=queries.signed)
    plan = RecordVotesPlan(
        name=f"{settings.dataset}-{settings.parties}",
        classes=classes,
        findings=labelled.names,
        unit=settings.unit,
        population=population,
        queries=queries,
        rule=settings.weight_rule,
        level=level,
        quorum=settings.quorum or level.usual_quorum(seats),
        evaluation=_judges(
            settings.evaluate, population, classes=classes, findings=len(labelled.names), seed=settings.data_seed
        ),
        residuals=settings.residuals,
        pool=pool,
    )
    return record_study(plan, names=budgets.names, epsilon=budgets.epsilon, delta=budgets.delta)


def _judges(share: float | None, population: int, *, classes: int, findings: int, seed: int) -> Evaluation | None:
    """What a simulated study fixes about judges; None where none are asked for."""
    if share is None:
        return None
    key = hashlib.sha256(b"conclave simulated judges %d" % seed).digest()
    bins = usual_score_bins(share * population)
    return Evaluation.of(share=share, key=key, bins=bins, classes=classes, threshold=0.5, findings=findings)


def usual_cells(dataset: Dataset) -> str:
    """Cells of columns; or one centre for about six public records: a cluster's records mostly share a class."""
    return COLUMNS if dataset.has_cells else f"clusters:{max(2, len(dataset.public_labels) // 6)}"


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """The parameters of one run; see `conclave-simulate run --help` for what each means.

    None means "as the data set or the number of parties determines"; `parameters` are those of the mechanism that were
    given, by name, which a file holds beside the other settings; the others have their defaults. given: the names of
    what somebody chose. `experiment` raises InvalidInput.
    """

    parties: Annotated[int, (">=", 1)] = 250
    dataset: str = "glyphs"
    schema_file: str | None = None
    partition: str = "iid"
    teacher: str = "logistic_regression"
    teachers_per_party: Annotated[int, (">=", 1)] = 1
    private_size: Annotated[int | None, (">=", 1)] = None
    classes: Annotated[int | None, (">=", 2)] = None
    imbalance: Annotated[float, (">=", 1)] = 1.0
    mislabelled: Annotated[float, (">=", 0), ("<", 1)] = 0.0
    queries: Annotated[int | None, (">=", 1)] = None
    questions: str = "given"
    findings_by: Literal["binary", "powerset", "tau"] | None = None
    votes_by: type[Votes] = TeacherVotes
    record_queries: str | None = None
    bins: Annotated[int | None, (">=", 2), ("<=", 1000)] = None
    nearest: Annotated[int | None, (">=", 1)] = None
    partitions: Annotated[int | None, (">=", 1), ("<=", 64)] = None
    features: str | None = None
    evaluate: float | None = None
    residuals: bool | None = None
    teacher_features: bool = False
    student_features: bool | None = None
    votes: str | None = None
    votes_kind: Literal["ids", "counts"] | None = None
    labels: str | None = None
    budgets: str = "1:0.34,2:0.43,3:0.23"
    delta: Annotated[float, (">", 0), ("<", 1)] = 1e-5
    unit: Unit = "record"
    view: View = "label"
    accountant: str | None = None
    mechanism: str = TeacherTerms.mechanism
    individualization: str = TeacherTerms.individualization
    privacy_groups: bool = False
    weights: str | None = None
    stop: StopRule = TeacherTerms.stop
    answer_rate: float = TeacherTerms.answer_rate
    quorum: int | None = None
    confidentiality: str = TeacherTerms.confidentiality
    input_bound: float | None = None
    units: int | None = None
    colluders: int | None = None
    dropout: Dropout = 0.0
    student: str | None = None
    groups: str | None = None
    baselines: bool = True
    attack: bool = False
    seeds: tuple[int, ...] = (0,)
    data_seed: Annotated[int, (">=", 0)] = 0
    parameters: Mapping[str, int | float] = field(default_factory=dict, hash=False)
    given: frozenset[str] = field(default=frozenset(), compare=False)

    @property
    def usual_noise(self) -> bool:
        """Whether noise and threshold are the usual ones, as none were given."""
        return VOTERS[self.votes_by].usual_noise and is_usual(self.mechanism, self.parameters)

    @property
    def askers(self) -> int:
        """How many hospitals ask about records of their own: 1 where queries are hidden, otherwise none."""
        return int(LEVELS[self.confidentiality].asking_role == "party")

    @property
    def weight_rule(self) -> str:
        """The rule by which budgets become weights, where individualization is "weighting"."""
        return self.weights or USUAL_RULE

    @property
    def group_columns(self) -> tuple[str, ...]:
        """The columns by which test records are told apart, besides class and site."""
        return tuple(dict.fromkeys(name.strip() for name in (self.groups or "").split(",") if name.strip()))

    @property
    def terms(self) -> TeacherTerms:
        """What is chosen of a study in which teachers vote."""
        own = {name: getattr(self, name) for name in TERMS if name != "accountant"}
        return TeacherTerms(**own, accountant=named_accountants(self.accountant)[0], parameters=self.parameters)

    @property
    def values(self) -> dict[str, Any]:
        """Every setting and parameter by name, as `experiment` takes them and files hold them."""
        own = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in ("parameters", "given")}
        return {**own, "votes_by": self.votes_by.by, **self.parameters}

    @property
    def known(self) -> dict[str, Any]:
        """The same without those that are None, or mean nothing with these voters."""
        idle = VOTERS[self.votes_by].idle
        return {name: value for name, value in self.values.items() if value is not None and name not in idle}

    @property
    def chosen(self) -> dict[str, Any]:
        """The same of those that somebody chose."""
        return {name: value for name, value in self.values.items() if name in self.given}

    def changed(self, **values: object) -> Experiment:
        """The same with other values, which are not checked."""
        own: dict[str, Any] = {name: value for name, value in values.items() if name in SETTINGS}
        rest: dict[str, Any] = {name: value for name, value in values.items() if name not in own}
        return replace(self, **own, parameters={**self.parameters, **rest}, given=self.given | set(values))


# What each setting is where nothing is given, as files hold it.
SETTINGS: Mapping[str, Any] = Experiment().values
_HINTS = get_type_hints(Experiment, include_extras=True) | dict(TERMS)


def experiment(**values: object) -> Experiment:
    """An Experiment, with one clear InvalidInput for the first value out of range."""
    given = read_settings(values, SETTINGS, setting)
    voters = VOTERS[given.get("votes_by", TeacherVotes)]
    given = {**voters.assumed, **given}
    if given.get("findings_by") == Tau.by:
        given = {"mechanism": TauVoting.name, **given}
    settings = Experiment().changed(**given)
    voters.check(settings, given)
    questions_of_a_batch(settings.questions)
    _ = settings.terms
    return settings


def setting(name: str, value: object) -> Any:  # of the setting's kind
    """The value as an experiment holds it, of one setting or parameter alone; numbers and flags may be text. Raises
    InvalidInput for one out of range.
    """
    if name == "budgets" and isinstance(value, int | float):
        value = str(value)
    return read_setting(name, value, _HINTS.get(name, Number))


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds from "0-9", "3" or "0,2,5-7": distinct integers >= 0, in the order given."""
    seeds: list[int] = []
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        try:
            first, last = int(low), int(high) if dash else int(low)
        except ValueError:
            raise InvalidInput(f"seeds are {text!r}; allowed: integers >= 0 as 3, 0-9 or 0,2,5-7") from None
        if first < 0 or last < first or last - first >= 100_000:
            raise InvalidInput(f"seeds are {text!r}; allowed: integers >= 0 as 3, 0-9 or 0,2,5-7")
        seeds.extend(range(first, last + 1))
    if len(set(seeds)) < len(seeds):
        raise InvalidInput(f"seeds are {text!r}; allowed: each seed once")
    return tuple(seeds)


def write_config(settings: Experiment, study: Study | None = None) -> str:
    """The experiment as TOML, of what is `known`; read_config gives it back.

    study: that of the settings; its noise and threshold are a comment where none were given.
    """
    import tomli_w

    text = tomli_w.dumps(settings.known)
    if study is None or not settings.usual_noise:
        return text
    usual = ", ".join(f"{name} = {value:.6g}" for name, value in study.mechanism.values.items())
    return f"{text}# by default: {usual}\n"


def read_config(path: Path) -> Experiment:
    """An experiment from config.toml. Raises InvalidInput for a file or a value that cannot be read."""
    return experiment(**named_toml(path))


def experiment_budgets(settings: Experiment, names: tuple[str, ...] | None = None) -> Budgets:
    """Every seat's budget; names: of the parties, if they have names.

    A seat is a party, with its budget assigned from the data seed; with privacy groups, a party and one budget; with
    upsampling, a group of all records.
    """
    if settings.privacy_groups and settings.individualization == "upsampling":
        raise InvalidInput("upsampling pools all data, so parties have no groups; leave out --privacy-groups")
    if settings.individualization == "upsampling":
        return upsampling(settings.budgets, teachers=settings.parties).budgets(settings.delta)
    if settings.privacy_groups:
        return group_budgets(settings.budgets, parties=settings.parties, delta=settings.delta, names=names)
    return parse_budgets(
        settings.budgets, parties=settings.parties, delta=settings.delta, seed=settings.data_seed, names=names
    )


def make_study(
    settings: Experiment, budgets: Budgets, *, classes: int, queries: int, asks: Asked = ONE_CLASS,
    findings: tuple[str, ...] = (), factor: float | None = None,
) -> Study:  # fmt: skip
    """The study of an experiment in which teachers vote, as `teacher_study` makes it. Raises InvalidInput for settings
    that do not go together.

    classes, queries: counts and number of the rows that `asks` makes of the pool, whose records have these findings.
    """
    pooled = settings.individualization == "upsampling"
    level = simulated_level(
        settings.confidentiality, units=settings.units, colluders=settings.colluders, seats=len(budgets.names),
        input_bound=settings.input_bound or 1.0,
    )  # fmt: skip
    plan = TeacherVotesPlan(
        name=f"{settings.dataset if settings.votes is None else Path(settings.votes).name}-{settings.parties}",
        terms=settings.terms,
        level=level,
        classes=classes,
        queries=queries,
        teachers=settings.teachers_per_party,
        batch=questions_of_a_batch(settings.questions),
        asks=asks,
        findings=findings,
        pooled=upsampling(settings.budgets, teachers=settings.parties).pooled if pooled else None,
    )
    return teacher_study(plan, budgets, factor=factor)
