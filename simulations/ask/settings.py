"""The settings of `ask`: everything needed to repeat a run, as one validated value, and its TOML file."""

from __future__ import annotations

from typing import Annotated, Literal

import tomli_w
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from party.teachers.teacher import PRIVATE
from protocols.errors import InvalidInput
from protocols.mechanisms import ThresholdedGNMax
from simulations.ask.kinds import SHARES, askable
from simulations.setup.experiment import Experiment, experiment
from simulations.setup.partition import parse_partition

# Settings of data and budgets that mean the same in `run`.
_SHARED = (
    "parties", "dataset", "schema_file", "private_size", "classes", "budgets", "delta", "unit", "seeds", "data_seed",
)  # fmt: skip


class AskSettings(BaseModel):
    """The parameters of one run of `ask`; see `conclave-simulate ask --help` for what each means.

    None means "as the data set or the number of parties determines". `ask_settings` raises InvalidInput.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    parties: int = Field(250, ge=2)
    queriers: int = Field(3, ge=1)
    dataset: str = "glyphs"
    schema_file: str | None = None
    models: tuple[str, ...] | None = Field(None, min_length=1)
    skew: float | None = None
    private_size: int | None = Field(None, ge=1)
    classes: int | None = Field(None, ge=2)
    unlabelled: int = Field(200, ge=1)
    turn: int = Field(10, ge=1)
    budgets: Annotated[str, BeforeValidator(lambda value: str(value) if isinstance(value, int | float) else value)] = (
        "1:0.34,2:0.43,3:0.23"
    )
    delta: float = Field(1e-5, gt=0, lt=1)
    unit: Literal["record", "party"] = "record"
    mechanism: str = ThresholdedGNMax.name
    sigma: float | None = None
    threshold: float | None = None
    units: int = 64
    weights: str = "exhaustive"
    stop: Literal["first-exhausted", "drop-exhausted"] = "first-exhausted"
    answer_rate: float = Field(1.0, ge=0, le=1)
    quorum: int = Field(1, ge=1)
    baselines: bool = True
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field((0,), min_length=1)
    data_seed: int = Field(0, ge=0)

    @property
    def common(self) -> Experiment:
        """The settings that `run` has too, for the stages that both share."""
        return experiment(
            **{name: getattr(self, name) for name in _SHARED},
            partition="iid" if self.skew is None else f"dirichlet:{self.skew!r}",
            queries=self.queriers * self.unlabelled,
            mechanism=self.mechanism,
            **{name: value for name in SHARES if (value := getattr(self, name)) is not None},
        )


def ask_settings(**values: object) -> AskSettings:
    """The settings, with one clear InvalidInput for the first value out of range."""
    try:
        settings = AskSettings.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "settings"
        if first["type"] == "extra_forbidden":
            raise InvalidInput(f"unknown setting {where!r}; allowed: {', '.join(AskSettings.model_fields)}") from None
        allowed = first["msg"].removeprefix("Input should be ")
        raise InvalidInput(f"{where} is {first.get('input')!r}; allowed: {allowed}") from None
    if settings.queriers > settings.parties:
        raise InvalidInput(f"queriers is {settings.queriers}; allowed: 1 to the {settings.parties} parties")
    if settings.mechanism not in (mechanisms := askable()):
        raise InvalidInput(f"mechanism is {settings.mechanism!r}; allowed: {', '.join(mechanisms)}")
    for kind in settings.models or ():
        if kind not in PRIVATE:
            raise InvalidInput(f"model is {kind!r}; allowed, as private inference computes it: {', '.join(PRIVATE)}")
    if settings.models is not None and len(set(settings.models)) < len(settings.models):
        raise InvalidInput(f"models are {','.join(settings.models)}; allowed: each kind once")
    others = settings.parties - 1
    if settings.quorum > others:
        raise InvalidInput(f"quorum is {settings.quorum}; allowed: 1 to {others}, as nobody answers itself")
    parse_partition(settings.common.partition)
    return settings


def write_ask_config(settings: AskSettings) -> str:
    """The settings as TOML (keys that are None are left out); ask_settings takes them."""
    return tomli_w.dumps(settings.model_dump(mode="json", exclude_none=True))
