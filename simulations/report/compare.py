"""Comparing two runs: which settings differ, how figures differ, and whether they are comparable.

Reads what a run wrote: summary.json and config.toml.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

import click
import numpy as np

from protocols.errors import DataCorrupt, InvalidInput
from protocols.plural import at_most
from protocols.reading import read_json
from runtime.settings import named_toml
from simulations.report.terminal import print_rows
from simulations.results.files import Summary
from simulations.results.text import MARK, not_for_release
from simulations.stages.label import mean_and_interval

# Figures of summary.json that are compared; the last entry is their name in the list of seeds, if they are there.
_FIGURES = (
    ("labels or sums released", ("answered",), "answered"),
    ("queries asked", ("asked",), "asked"),
    ("label accuracy", ("label_accuracy",), "label_accuracy"),
    ("student accuracy", ("student_accuracy",), "student_accuracy"),
    ("teacher accuracy, mean", ("teacher_accuracy_mean",), None),
    ("plurality accuracy, no noise", ("plurality_accuracy",), None),
    ("non-private model", ("baselines", "non_private_student_accuracy"), None),
    ("minimum budget for all: labels", ("baselines", "minimum_budget_uniform", "answered"), None),
    ("epsilon guaranteed, largest", ("epsilon_guaranteed_max",), None),
)
# If these differ, an epsilon or a figure of one run does not mean the same in the other.
_TERMS = (
    ("unit", "each epsilon protects another unit"),
    ("view", "each epsilon holds against another observer"),
    ("adjacency", "neighbouring data sets are not the same"),
    ("accounting", "budgets were charged by different bounds"),
    ("accountant", "budgets were charged by different accountants"),
)
_DATA = tuple(
    "dataset votes labels schema_file partition private_size queries classes imbalance mislabelled data_seed "
    "teacher teachers_per_party parties".split()
)


@dataclass(frozen=True)
class SettingDifference:
    """A setting that differs; None: determined by the data set or the number of parties."""

    name: str
    a: object
    b: object


@dataclass(frozen=True)
class FigureDifference:
    """A figure of both runs. difference: b - a; half_width: of its 95 % interval over seeds, if any."""

    name: str
    a: float | None
    b: float | None
    difference: float | None
    half_width: float | None


@dataclass(frozen=True)
class _Comparison:
    """Two runs: names, settings that differ, figures, and reasons why they should not be compared."""

    a: str
    b: str
    warnings: list[str]
    settings: list[SettingDifference]
    figures: list[FigureDifference]

    def show(self) -> None:
        """Prints the comparison: warnings first."""
        click.echo("\n".join([f"a  {self.a}", f"b  {self.b}", *(f"Not comparable: {why}." for why in self.warnings)]))
        if self.settings:
            rows: list[list[object]] = [[each.name, _shown(each.a), _shown(each.b)] for each in self.settings]
            print_rows("Settings that differ", ["setting", "a", "b"], rows)
        else:
            click.echo("All settings are the same.")
        print_rows(
            "Figures",
            ["figure", "a", "b", "b - a", "95 % interval of b - a"],
            [[figure.name, *_cells(figure)] for figure in self.figures],
        )


def compare_runs(a: Path, b: Path) -> _Comparison:
    """Compares the runs in two folders.

    The interval of a difference is Student's t over paired seeds if both runs have the same seeds; otherwise none is
    given. Raises InvalidInput for a folder without a finished run, DataCorrupt for a summary.json that no run wrote.
    """
    summary_a, config_a = _read(a)
    summary_b, config_b = _read(b)
    names = [*config_a, *(name for name in config_b if name not in config_a)]
    settings = [
        SettingDifference(name, config_a.get(name), config_b.get(name))
        for name in names
        if config_a.get(name) != config_b.get(name)
    ]
    figures = []
    for name, keys, by_seed in _FIGURES:
        before, after = _number(a, summary_a, keys), _number(b, summary_b, keys)
        marked = MARK + name if not_for_release(".".join(keys)) else name
        if before is None or after is None:
            figures.append(FigureDifference(marked, before, after, None, None))
            continue
        half = None if by_seed is None else _paired_half_width(summary_a["seeds"], summary_b["seeds"], by_seed)
        figures.append(FigureDifference(marked, before, after, after - before, half))
    warnings = _warnings((summary_a, config_a), (summary_b, config_b))
    return _Comparison(str(a), str(b), warnings, settings, [f for f in figures if (f.a, f.b) != (None, None)])


def _read(folder: Path) -> tuple[Summary, dict[str, object]]:
    path = folder / "summary.json"
    if not os.access(path, os.F_OK):
        raise InvalidInput(
            f"{folder} holds no summary.json; allowed: the folder of a finished run (its --out; "
            "--resume finishes an interrupted one)"
        )
    try:
        summary = read_json(path)
    except DataCorrupt as error:
        raise DataCorrupt(f"{error}; run it again with --resume") from None
    if not isinstance(summary, dict):
        raise DataCorrupt(
            f"{path} holds a {type(summary).__name__}; allowed: a JSON object; run it again with --resume"
        )
    missing = [name for name in ("unit", "view", "accounting", "groups", "seeds") if name not in summary]
    if missing:
        raise DataCorrupt(f"{path} has no {missing[0]!r}; run it again with --resume")
    _check_rows(path, summary, "groups", needed="delta", optional=())
    _check_rows(path, summary, "seeds", needed="seed", optional=[key for _, _, key in _FIGURES if key])
    return summary, named_toml(folder / "config.toml")


def _check_rows(path: Path, summary: Summary, name: str, *, needed: str, optional: Sequence[str]) -> None:
    """Raises DataCorrupt unless summary[name] lists objects with the needed number; others may be null."""
    rows = summary[name]
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise DataCorrupt(f"{path}: {name} is not a list of objects; run it again with --resume")
    for row in rows:
        for key in (needed, *optional):
            value = row.get(key)
            if not _is_number(value) and (key == needed or value is not None):
                raise DataCorrupt(f"{path}: {key} of {name} is {value!r}; allowed: a number")


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(folder: Path, summary: Summary, keys: tuple[str, ...]) -> float | None:
    """The number at `keys`; None where it was not measured. Raises DataCorrupt for anything else."""
    value: object = summary
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else value
    if value is None or _is_number(value):
        return value
    raise DataCorrupt(f"{folder / 'summary.json'}: {'.'.join(keys)} is {value!r}; allowed: a number or null")


def _paired_half_width(seeds_a: list[Summary], seeds_b: list[Summary], key: str) -> float | None:
    """The half-width of the mean difference's 95 % interval over the same seeds; None if the seeds differ."""
    of_a, of_b = ({seed["seed"]: seed.get(key) for seed in seeds} for seeds in (seeds_a, seeds_b))
    if set(of_a) != set(of_b):
        return None
    before, after = ([values[seed] for seed in of_a] for values in (of_a, of_b))
    if None in before or None in after:
        return None
    return mean_and_interval(np.array(after, dtype=float) - np.array(before, dtype=float))[1]


def _warnings(a: tuple[Summary, dict[str, object]], b: tuple[Summary, dict[str, object]]) -> list[str]:
    """Why the two should not be compared, one reason per difference."""
    (summary_a, config_a), (summary_b, config_b) = a, b
    warnings = [
        f"{name} is {summary_a.get(name)} in a, {summary_b.get(name)} in b: {why}"
        for name, why in _TERMS
        if summary_a.get(name) != summary_b.get(name)
    ]
    deltas_a, deltas_b = _deltas(summary_a), _deltas(summary_b)
    if deltas_a != deltas_b:
        shown = [", ".join(at_most(delta) for delta in deltas) for deltas in (deltas_a, deltas_b)]
        warnings.append(f"delta is {shown[0]} in a, {shown[1]} in b: an epsilon holds at its own delta only")
    for name in _DATA:
        if config_a.get(name) != config_b.get(name):
            values = f"{_shown(config_a.get(name))} in a, {_shown(config_b.get(name))} in b"
            warnings.append(f"{name} is {values}: the votes are not the same")
    return warnings


def _deltas(summary: Summary) -> list[float]:
    return sorted({float(group["delta"]) for group in summary["groups"]})


def _cells(figure: FigureDifference) -> list[str]:
    values = ["not measured" if value is None else f"{value:.5g}" for value in (figure.a, figure.b)]
    if figure.difference is None:
        return [*values, "", ""]
    if figure.half_width is None:
        return [*values, f"{figure.difference:+.4g}", "none"]
    low, high = figure.difference - figure.half_width, figure.difference + figure.half_width
    return [*values, f"{figure.difference:+.4g}", f"{low:+.4g} to {high:+.4g}"]


def _shown(value: object) -> str:
    return "the default" if value is None else str(value)
