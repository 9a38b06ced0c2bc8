"""Experiment: everything that repeats a run, as one validated value; its TOML file; and the study it makes.

The simulator's command line, and it alone, has defaults for unit, view and delta; they stand here and are printed
first. Noise and threshold scale with the number of votes unless they are given.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Literal

import tomli_w
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from protocols.accounting.accountant import accountant, default_accountant
from protocols.errors import InvalidInput
from protocols.individualization import weights
from protocols.mechanisms import check_view, make_mechanism, mechanism_class
from protocols.schedule import check_stop
from protocols.study import Seat, Study, Unit, votes_per_unit
from simulations.budgets import Budgets, parse_budgets

# Papernot et al. 2018, Table 1, MNIST with 250 teachers: T = 200, sigma1 = 150, sigma2 = 40, per vote.
SHARES = {"sigma": 0.16, "sigma_threshold": 0.6, "threshold": 0.8}


class Experiment(BaseModel):
    """The parameters of one run; see `conclave-simulate run --help` for what each means.

    None stands for "as the data set or the number of parties gives it". Raises InvalidInput through `experiment`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

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
    votes: str | None = None
    votes_kind: Literal["ids", "counts"] | None = None
    labels: str | None = None
    budgets: Annotated[str, BeforeValidator(lambda value: str(value) if isinstance(value, int | float) else value)] = (
        "1:0.34,2:0.43,3:0.23"
    )
    delta: float = Field(1e-5, gt=0, lt=1)
    unit: Literal["record", "party"] = "record"
    view: Literal["label", "histogram"] = "label"
    accountant: str | None = None
    mechanism: str = "confident_gnmax"
    sigma: float | None = Field(None, gt=0)
    sigma_threshold: float | None = Field(None, gt=0)
    threshold: float | None = None
    weights: Literal["uniform", "proportional", "exhaustive"] = "exhaustive"
    stop: Literal["first-exhausted", "drop-exhausted"] = "first-exhausted"
    answer_rate: float = Field(1.0, ge=0, le=1)
    quorum: int = Field(1, ge=1)
    dropout: float = Field(0.0, ge=0, lt=1)
    student: str | None = None
    baselines: bool = True
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field((0,), min_length=1)
    data_seed: int = Field(0, ge=0)


def experiment(**values: object) -> Experiment:
    """An Experiment, with one clear InvalidInput for the first value out of range."""
    try:
        return Experiment.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "experiment"
        if first["type"] == "extra_forbidden":
            known = ", ".join(Experiment.model_fields)
            raise InvalidInput(f"unknown setting {where!r}; allowed: {known}") from None
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


def write_config(settings: Experiment) -> str:
    """The experiment as TOML (keys that are None are left out); read_config gives it back."""
    return tomli_w.dumps(settings.model_dump(mode="json", exclude_none=True))


def read_config(path: Path) -> Experiment:
    """An experiment from config.toml. Raises InvalidInput for a file or a value that cannot be read."""
    return experiment(**read_toml(path))


def read_toml(path: Path) -> dict[str, object]:
    """The table in a TOML file. Raises InvalidInput when it does not exist or is not TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidInput(f"file {path} does not exist") from None
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} is not TOML: {error}") from None


def experiment_budgets(settings: Experiment, names: tuple[str, ...] | None = None) -> Budgets:
    """Every party's budget, assigned from the data seed; names: what the parties are called, if they have names."""
    return parse_budgets(
        settings.budgets, parties=settings.parties, delta=settings.delta, seed=settings.data_seed, names=names
    )


def make_study(settings: Experiment, budgets: Budgets, *, classes: int, queries: int) -> Study:
    """The study of an experiment: noise and threshold scaled, weights solved, one seat a party."""
    view, unit = check_view(settings.view), _unit(settings.unit)
    teachers = settings.teachers_per_party
    total = float(teachers * settings.parties)
    if settings.threshold is not None and not settings.threshold <= total:
        raise InvalidInput(f"threshold is {settings.threshold:g}; allowed: at most the total weight, {total:g} votes")
    taken = mechanism_class(settings.mechanism).parameters(view=view)
    noise = {
        name: share * total if getattr(settings, name) is None and name in taken else getattr(settings, name)
        for name, share in SHARES.items()
    }
    account = default_accountant(view) if settings.accountant is None else accountant(settings.accountant)
    account.check(view)
    weight = weights(
        settings.weights,
        accountant=account,
        mechanism=make_mechanism(settings.mechanism, **noise, view=view),
        epsilon=budgets.epsilon,
        delta=budgets.delta,
        sensitivity_per_weight=votes_per_unit(unit, teachers=teachers),
        # Each party casts `teachers` votes: the ceiling sees the noise of one vote per party.
        sigma=noise["sigma"] / teachers**0.5,
        view=view,
        classes=classes,
        query_limit=queries,
        answer_rate=settings.answer_rate,
    )
    # Rounding weights down to the lattice must not push a threshold at the very top above the total.
    if noise["threshold"] is not None:
        noise["threshold"] = min(noise["threshold"], float(teachers * weight.sum()))
    seats = zip(budgets.names, budgets.epsilon.tolist(), budgets.delta.tolist(), weight.tolist(), strict=True)
    return Study(
        name=f"{settings.dataset if settings.votes is None else Path(settings.votes).name}-{settings.parties}",
        classes=classes,
        mechanism_name=settings.mechanism,
        **noise,
        unit=unit,
        view=view,
        accountant_name=account.name,
        teachers=teachers,
        query_limit=queries,
        batch_limit=queries,
        answer_rate=settings.answer_rate,
        stop=check_stop(settings.stop),
        quorum=settings.quorum,
        roster=tuple(Seat(party=p, epsilon=e, delta=d, weight=w) for p, e, d, w in seats),
    )


def _unit(unit: str) -> Unit:
    return "party" if unit == "party" else "record"
