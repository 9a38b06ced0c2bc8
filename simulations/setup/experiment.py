"""Experiment: everything needed to repeat a run, as one validated value; its TOML file; and the study it describes.

Only the simulator's command line has defaults for unit, view and delta; they are defined here and printed first. Noise
and threshold scale with the number of votes unless they are given.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tomli_w
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from coordinator.queries import questions_of_a_batch
from protocols import reading
from protocols.budgets.accountant import Accountant, ExactComposition, LabelOnly, accountant, default_accountant
from protocols.budgets.individualization import vanishing, weights
from protocols.budgets.participation import Pattern
from protocols.budgets.planned import Planned
from protocols.errors import DataUnavailable, InvalidInput
from protocols.mechanisms import Mechanism, check_view, mechanism_parameters
from protocols.study.chosen import GIVEN, UNCERTAINTY
from protocols.study.study import Seat, Study
from protocols.study.votes import TeacherVotes, Unit, votes_per_unit
from protocols.votes import LATTICE
from simulations.setup.accountants import named_accountants
from simulations.setup.budgets import Budgets, group_budgets, parse_budgets, upsampling
from simulations.setup.levels import simulated_level
from simulations.setup.record_votes import VOTERS
from simulations.setup.usual_noise import check_parameters, is_usual, least_factor_for, scaled_mechanism

_PATTERNS: dict[str, Pattern] = {"vanishing": "periodic", "secret-vanishing": "secret"}


class Experiment(BaseModel):
    """The parameters of one run; see `conclave-simulate run --help` for what each means.

    None means "as the data set or the number of parties determines"; `parameters` are those of the mechanism, which a
    file holds beside the other settings. `experiment` raises InvalidInput.
    """

    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, int | float]

    parties: int = Field(250, ge=1)
    dataset: str = "glyphs"
    schema_file: str | None = None
    partition: str = "iid"
    teacher: str = "logistic_regression"
    teachers_per_party: int = Field(1, ge=1)
    private_size: int | None = Field(None, ge=1)
    classes: int | None = Field(None, ge=2)
    imbalance: float = Field(1.0, ge=1)
    mislabelled: float = Field(0.0, ge=0, lt=1)
    queries: int | None = Field(None, ge=1)
    questions: str = "given"
    votes_by: Literal["teacher", "record"] = "teacher"
    record_queries: str | None = None
    bins: int | None = Field(None, ge=2, le=1000)
    nearest: int | None = Field(None, ge=1)
    partitions: int | None = Field(None, ge=1, le=64)
    features: str | None = None
    teacher_features: bool = False
    student_features: bool | None = None
    votes: str | None = None
    votes_kind: Literal["ids", "counts"] | None = None
    labels: str | None = None
    budgets: Annotated[str, BeforeValidator(lambda value: str(value) if isinstance(value, int | float) else value)] = (
        "1:0.34,2:0.43,3:0.23"
    )
    delta: float = Field(1e-5, gt=0, lt=1)
    unit: Literal["record", "patient", "party"] = "record"
    view: Literal["label", "histogram"] = "label"
    accountant: str | None = None
    mechanism: str = "thresholded_gnmax"
    individualization: Literal["weighting", "upsampling", "vanishing", "secret-vanishing"] = "weighting"
    privacy_groups: bool = False
    weights: str | None = None
    stop: Literal["first-exhausted", "drop-exhausted"] = "first-exhausted"
    answer_rate: float = Field(1.0, ge=0, le=1)
    quorum: int | None = Field(None, ge=1)
    confidentiality: Literal["clear", "secure_sum", "two_server"] = "clear"
    units: int | None = Field(None, ge=2)
    colluders: int | None = Field(None, ge=0)
    dropout: float = Field(0.0, ge=0, lt=1)
    student: str | None = None
    groups: str | None = None
    baselines: bool = True
    attack: bool = False
    retrainings: int = Field(10, ge=2)
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field((0,), min_length=1)
    data_seed: int = Field(0, ge=0)

    @property
    def usual_noise(self) -> bool:
        """Whether noise and threshold are the usual ones, as none were given."""
        return VOTERS[self.votes_by].usual_noise and is_usual(self.mechanism, self.parameters)

    @property
    def weight_rule(self) -> str:
        """The rule by which budgets become weights, where individualization is "weighting"."""
        return self.weights or "exhaustive"

    @property
    def group_columns(self) -> tuple[str, ...]:
        """The columns by which test records are told apart, besides class and site."""
        return tuple(dict.fromkeys(name.strip() for name in (self.groups or "").split(",") if name.strip()))

    @property
    def parameters(self) -> dict[str, int | float]:
        """The parameters of the mechanism that were given, by name; the others have their defaults."""
        return dict(self.__pydantic_extra__)


def experiment(**values: object) -> Experiment:
    """An Experiment, with one clear InvalidInput for the first value out of range."""
    taken = mechanism_parameters()
    if clash := next((name for name in taken if name in Experiment.model_fields), None):
        raise InvalidInput(
            f"mechanism {taken[clash][0][0]!r} has a parameter {clash!r}; allowed: a name that no setting has"
        )
    known = [*Experiment.model_fields, *taken]
    unknown = [name for name in values if name not in known]
    if unknown:
        raise InvalidInput(f"unknown setting {unknown[0]!r}; allowed: {', '.join(known)}")
    given = {name: value for name, value in values.items() if value is not None or name in Experiment.model_fields}
    if (voters := VOTERS.get(str(given.get("votes_by")))) is not None:
        given = {**voters.assumed, **given}
    settings = _validated(given)
    VOTERS[settings.votes_by].check(settings, given)
    questions_of_a_batch(settings.questions)
    check_parameters(settings.mechanism, settings.parameters, view=check_view(settings.view))
    return settings


def setting(name: str, value: object) -> object:
    """The value as an experiment holds it, of one setting or parameter alone. Raises InvalidInput for one out of
    range.
    """
    return _validated({name: value}).model_dump()[name]


def _validated(given: dict[str, object]) -> Experiment:
    try:
        return Experiment.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "experiment"
        raise InvalidInput(f"{where} is {first.get('input')!r}; {_allowed(first['msg'])}") from None


def _allowed(message: str) -> str:
    """pydantic's 'Input should be ...' in this project's words."""
    return "allowed: " + message.removeprefix("Input should be ")


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
    """The experiment as TOML (keys that are None are left out); read_config gives it back.

    study: that of the settings; its noise and threshold are a comment where none were given.
    """
    text = tomli_w.dumps(settings.model_dump(mode="json", exclude_none=True))
    if study is None or not settings.usual_noise:
        return text
    return (
        text + f"# by default: {', '.join(f'{name} = {value:.6g}' for name, value in study.mechanism.values.items())}\n"
    )


def read_config(path: Path) -> Experiment:
    """An experiment from config.toml. Raises InvalidInput for a file or a value that cannot be read."""
    return experiment(**read_toml(path))


def read_toml(path: Path) -> dict[str, object]:
    """The table in a TOML file. Raises InvalidInput when it does not exist or is not TOML."""
    try:
        return reading.read_toml(path)
    except DataUnavailable as error:
        raise InvalidInput(f"file {error}") from None


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


def make_study(settings: Experiment, budgets: Budgets, *, classes: int, queries: int) -> Study:
    """The study of an experiment: noise and threshold scaled, weights or rates solved, one seat per budget.

    Usual noise is smaller where the budgets would outlast the pool (usual_noise.py). Raises InvalidInput for settings
    that do not go together.
    """
    exact = settings.accountant is not None and ExactComposition.name in settings.accountant
    # Exact composition affords no fewer queries than the Renyi filter, and takes a second for each noise.
    guide = settings.model_copy(update={"accountant": LabelOnly.name}) if exact else settings
    made: dict[float, Study] = {}

    def affords(factor: float) -> int:
        made[factor] = _study(guide, budgets, classes=classes, queries=queries, factor=factor)
        room = made[factor].budgets.affordable(np.zeros(len(budgets.names), dtype=np.int64), limit=queries + 1)
        return int(room.min())

    factor = least_factor_for(queries, affords) if is_usual(settings.mechanism, settings.parameters) else 1.0
    if not exact and factor in made:
        return made[factor]
    return _study(settings, budgets, classes=classes, queries=queries, factor=factor)


def _study(settings: Experiment, budgets: Budgets, *, classes: int, queries: int, factor: float) -> Study:
    """The study with usual noise and threshold times `factor`."""
    view, unit = check_view(settings.view), _unit(settings.unit)
    _check_individualization(settings)
    pooled = settings.individualization == "upsampling"
    ensemble = upsampling(settings.budgets, teachers=settings.parties) if pooled else None
    teachers = 1 if pooled else settings.teachers_per_party
    total = float(len(budgets.names) * teachers if ensemble is None else ensemble.pooled_teachers)
    seats = len(budgets.names)
    level = simulated_level(settings.confidentiality, units=settings.units, colluders=settings.colluders, seats=seats)
    quorum = settings.quorum or level.usual_quorum(seats)
    lattice = level.lattice(quorum=quorum, classes=classes)
    mechanism = scaled_mechanism(
        settings.mechanism, settings.parameters, view=view, classes=classes, votes=total,
        scale=1.0 if ensemble is None else ensemble.scale, factor=factor,
    )  # fmt: skip
    account = charging_accountant(settings, mechanism.on_lattice(lattice))
    planned = Planned(
        accountant=account,
        mechanism=mechanism.on_lattice(lattice),
        epsilon=budgets.epsilon,
        delta=budgets.delta,
        sensitivity_per_weight=votes_per_unit(unit, teachers=teachers),
        # Each party casts `teachers` votes: the ceiling of a weight sees the noise of one vote per party.
        sigma=mechanism.label_sigma / teachers**0.5,
        view=view,
        classes=classes,
        query_limit=queries,
        answer_rate=settings.answer_rate,
    )
    pattern: Pattern = _PATTERNS.get(settings.individualization, "all")
    rate, weight = np.ones(seats), np.ones(seats)
    if ensemble is not None:
        weight = ensemble.copies.astype(float)
    elif pattern != "all":
        rate, each = vanishing(pattern, planned)
        weight = np.full(seats, each)
    else:
        weight = weights(settings.weight_rule, planned, units=level.units or LATTICE)
    chosen = questions_of_a_batch(settings.questions)
    usual = level.usual_batch(queries, voters=seats * teachers, classes=classes)
    rows = zip(
        budgets.names,
        budgets.epsilon.tolist(),
        budgets.delta.tolist(),
        weight.tolist(),
        rate.tolist(),
        strict=True,
    )
    study = Study(
        name=f"{settings.dataset if settings.votes is None else Path(settings.votes).name}-{settings.parties}",
        classes=classes,
        votes=TeacherVotes(
            mechanism=mechanism,
            pooled_teachers=None if ensemble is None else ensemble.pooled_teachers,
            view=view,
            teachers=teachers,
            query_limit=queries,
            batch_limit=usual if chosen is None else min(usual, chosen),
            answer_rate=settings.answer_rate,
            stop=settings.stop,
            questions=GIVEN if chosen is None else UNCERTAINTY,
            participation_name=pattern,
        ),
        unit=unit,
        accountant_name=account.name,
        quorum=quorum,
        confidentiality=level,
        roster=tuple(Seat(party=p, epsilon=e, delta=d, weight=w, rate=r) for p, e, d, w, r in rows),
    )
    if not mechanism.interactive or "round_one" in settings.parameters:
        return study
    # Round one gets half of the queries that the poorest budget affords when all are answered.
    affordable = study.budgets.affordable(np.zeros(seats, dtype=np.int64), limit=queries)
    rounds = {**mechanism.values, "round_one": max(1, int(affordable.min()) // 2)}
    return study.voting(mechanism=type(mechanism).build(view=view, given=rounds))


def _check_individualization(settings: Experiment) -> None:
    """Raises InvalidInput for settings that do not fit the kind of individualization."""
    if settings.individualization != "weighting" and settings.weights is not None:
        raise InvalidInput(
            f"weights is {settings.weights!r}; allowed: with individualization 'weighting', not "
            f"{settings.individualization!r}"
        )
    if settings.individualization != "upsampling":
        return
    if settings.unit != "record":
        raise InvalidInput("upsampling gives budgets to records; allowed: unit 'record'")
    if settings.teachers_per_party != 1:
        raise InvalidInput("upsampling has --parties teachers of pooled data; allowed: teachers_per_party 1")


def charging_accountant(settings: Experiment, mechanism: Mechanism) -> Accountant:
    """The worst-case accountant that charges budgets. Raises InvalidInput if it is not valid for the study."""
    view = check_view(settings.view)
    charging, _ = named_accountants(settings.accountant)
    coins = settings.individualization == "secret-vanishing"
    several = (
        settings.individualization == "upsampling"
        or votes_per_unit(_unit(settings.unit), teachers=settings.teachers_per_party) > 1
    )
    if charging is None:
        return default_accountant(mechanism, view, secret_coins=coins)
    account = accountant(charging)
    account.check(mechanism, view, secret_coins=coins, several_votes=several)
    return account


def _unit(unit: str) -> Unit:
    return "party" if unit == "party" else "record"
