"""What a sweep varies, and what it repeats: settings from a TOML file, from flags and from key=value."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

from protocols.errors import InvalidInput
from simulations.setup.accountants import named_accountants
from simulations.setup.experiment import Experiment, experiment, parse_seeds, read_toml

_MOST = 10_000
# Settings whose values repeat a setting, rather than make another.
_REPEATED = ("seeds", "data_seed")


@dataclass(frozen=True)
class Sweep:
    """The settings of a sweep, in order; which of their keys vary; and the seeds of the partitions over which each
    setting is repeated. The settings have the first of these as their data_seed.
    """

    settings: list[Experiment]
    varied: tuple[str, ...]
    data_seeds: tuple[int, ...]
    document: dict[str, object]

    @property
    def cells(self) -> list[tuple[int, Experiment]]:
        """Every setting, by its number, with every data seed: each is one run."""
        return [
            (number, settings.model_copy(update={"data_seed": seed}))
            for number, settings in enumerate(self.settings)
            for seed in self.data_seeds
        ]


def read_sweep(path: Path, *, given: Mapping[str, object], overrides: Mapping[str, object]) -> Sweep:
    """A sweep from TOML: a table [base] of settings, and [grid], a table of lists, all combinations of which are run,
    or several such tables ([[grid]]), one after the other.

    A file without these tables, as config.toml of a run, is the base. given: settings of flags; overrides: of
    `key=value`. Both come before [base]; a list of an override replaces or adds a list of every grid. `seeds` and
    `data_seed` ("0-4" or a list) repeat every setting. A sweep trains no student unless told to. Raises InvalidInput
    for an unknown table or setting, an empty list, settings that are out of range, or more than 10,000 of them.
    """
    base, grids = _tables(path)
    lists = {key: value for key, value in overrides.items() if isinstance(value, list) and key not in _REPEATED}
    scalars = {key: value for key, value in overrides.items() if key not in lists}
    common = {"student": "none", "baselines": False, **base, **scalars, **given}
    fixed = {*scalars, *given}
    checked = [
        _checked(path, {**{key: value for key, value in grid.items() if key not in fixed}, **lists}) for grid in grids
    ]
    total = sum(prod(len(values) for values in grid.values()) for grid in checked)
    if total > _MOST:
        raise InvalidInput(f"{path} makes {total} settings; allowed: at most {_MOST}")
    repeated = {key: _seeds(key, common[key]) for key in _REPEATED if key in common}
    data_seeds = repeated.pop("data_seed", (0,))
    settings = []
    for grid in checked:
        for combination in itertools.product(*grid.values()):
            chosen = dict(zip(grid, combination, strict=True))
            settings.append(_setting({**common, **chosen, **repeated, "data_seed": data_seeds[0]}, chosen))
    varied = tuple(dict.fromkeys(key for grid in checked for key in grid))
    said = {**common, **{key: list(seeds) for key, seeds in repeated.items()}, "data_seed": [*data_seeds]}
    document: dict[str, object] = {"base": said, "grid": checked if len(checked) > 1 else checked[0]}
    return Sweep(settings, varied, data_seeds, document)


def _tables(path: Path) -> tuple[dict[str, object], list[dict[str, object]]]:
    """The base and the grids of a file."""
    tables = read_toml(path)
    if not {"base", "grid"} & set(tables):
        return tables, [{}]
    if unknown := set(tables) - {"base", "grid"}:
        raise InvalidInput(f"{path} has {sorted(unknown)} beside its tables; allowed: [base] and [grid]")
    base, grid = tables.get("base", {}), tables.get("grid", {})
    grids = [each for each in (grid if isinstance(grid, list) else [grid]) if isinstance(each, dict)]
    if not isinstance(base, dict) or not grids or (isinstance(grid, list) and len(grids) < len(grid)):
        raise InvalidInput(f"{path}: base and grid must be tables")
    return base, grids


def _checked(path: Path, grid: Mapping[str, object]) -> dict[str, list[object]]:
    """The grid, all of whose values are lists. Raises InvalidInput."""
    if not grid:
        raise InvalidInput(f"{path} varies nothing; allowed: a table [grid] of lists, or key=[a,b] after the file")
    for key, values in grid.items():
        if key in _REPEATED:
            raise InvalidInput(f"{path}: grid.{key}; allowed: {key} in [base], whose values repeat every setting")
        if not isinstance(values, list) or not values:
            raise InvalidInput(f"{path}: grid.{key} is {values!r}; allowed: a list of at least one value")
    return {key: values for key, values in grid.items() if isinstance(values, list)}


def _seeds(key: str, said: object) -> tuple[int, ...]:
    if isinstance(said, list | tuple) and said and all(isinstance(seed, int) for seed in said):
        return parse_seeds(",".join(map(str, said)))
    if isinstance(said, str | int):
        return parse_seeds(str(said))
    raise InvalidInput(f"{key} is {said!r}; allowed: integers >= 0 as a list, or as 3, 0-9 or 0,2,5-7")


def _setting(values: dict[str, object], chosen: Mapping[str, object]) -> Experiment:
    """One setting of the sweep; an error says which."""
    try:
        settings = experiment(**values)
        _, analyses = named_accountants(settings.accountant)
        # A run's config.toml, which may be the base, names those that were not asked for, too.
        usual = {name: Experiment.model_fields[name].default for name in ("attack", "retrainings", "groups")}
        idle = [name for name, default in usual.items() if getattr(settings, name) != default]
        if analyses or idle:
            raise InvalidInput(
                f"{idle[0] if idle else analyses[0]} adds figures that a sweep does not have; allowed: an accountant "
                "that charges, and no attack, retrainings or groups (give them to `run`, setting by setting)"
            )
    except InvalidInput as error:
        raise of_setting(error, chosen) from None
    return settings


def of_setting(error: InvalidInput, chosen: Mapping[str, object]) -> InvalidInput:
    """The error, with the values of the setting that it is about."""
    return InvalidInput(f"{words(chosen)}: {error}")


def words(chosen: Mapping[str, object]) -> str:
    """What tells a setting from the others: `weights = uniform, sigma = 4`."""
    return ", ".join(f"{key} = {value}" for key, value in chosen.items())
