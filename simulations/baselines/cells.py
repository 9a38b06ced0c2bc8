"""The table of methods, cell by cell: every method at every epsilon with every seed; finished cells are kept."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tomli_w
from jaxtyping import Bool, Float64
from numpy import ndarray

from coordinator.students import SCORES, usual_table_student
from coordinator.students.choice import AUTO, USUAL
from protocols.errors import InvalidInput
from protocols.plural import counted
from protocols.reading import read_json
from runtime.files import write_atomically
from simulations.baselines import METHODS, OF_STUDY
from simulations.baselines.method import Row, Score, Task, encoded_inputs, method_of
from simulations.datasets.dataset import content_digest
from simulations.datasets.groups import Grouping, groupings
from simulations.progress import Reporter
from simulations.setup.experiment import OF_RECORDS, Experiment, experiment, setting, write_config
from simulations.source import OF_RESULTS, source_digest
from simulations.stages.inputs import DatasetInputs, Host, read_inputs

# Settings that a comparison does not have, and what it has instead.
_NOT_HERE = {
    "budgets": "every party has each of --epsilons",
    "data_seed": "each of --seeds draws the data anew",
    "votes": "methods learn from records",
    "votes_by": "--methods names who votes",
    "teacher_features": "linear teachers see --features of images",
    "student_features": "linear students see --features of images",
    "privacy_groups": "every party has one budget",
    "baselines": "--methods names them",
    "attack": "a comparison has no private figures",
}


@dataclass(frozen=True)
class Comparison:
    """What is compared. Each seed draws the split, the parties, the teachers, the noise and the student anew, but
    no test part that a data set has of its own, as pneumoniamnist has.

    features: what linear models see of images, and what records are compared by (coordinator.queries.features).
    """

    settings: Experiment
    methods: tuple[str, ...]
    epsilons: tuple[float, ...]
    features: str

    @property
    def config(self) -> str:
        """The comparison as TOML."""
        said = {name: value for name, value in self.settings.known.items() if name not in _NOT_HERE}
        return tomli_w.dumps(
            {"methods": list(self.methods), "epsilons": list(self.epsilons), "features": self.features, **said}
        )

    @property
    def cells(self) -> list[tuple[int, str, float | None]]:
        """Seed, method and epsilon (None without privacy) of every cell; those of one seed lie together."""
        return [
            (seed, name, epsilon)
            for seed in self.settings.seeds
            for name in self.methods
            for epsilon in (self.epsilons if METHODS[name].private else (None,))
        ]


def comparison_settings(given: Mapping[str, object]) -> Experiment:
    """The settings of all methods: those of teachers' votes, with those of records' votes beside them.

    One experiment of `run` never has both. Raises InvalidInput for a value out of range.
    """
    of_records = {name: value for name, value in given.items() if name in OF_RECORDS}
    if given.get("unit") == "patient":
        of_records["unit"] = "patient"
    settings = experiment(**{name: value for name, value in given.items() if name not in of_records})
    return settings.changed(**{name: setting(name, value) for name, value in of_records.items()})


def parse_methods(text: str | None) -> tuple[str, ...]:
    """The methods that a list between commas names, all for None. Raises InvalidInput."""
    names = tuple(METHODS) if text is None else tuple(name.strip() for name in text.split(","))
    if unknown := [name for name in names if name not in METHODS]:
        raise InvalidInput(f"method {unknown[0]!r} is unknown; allowed: {', '.join(METHODS)}")
    if len(set(names)) < len(names):
        raise InvalidInput(f"methods are {text!r}; allowed: each once")
    return names


def parse_epsilons(text: str) -> tuple[float, ...]:
    """The epsilons of a list between commas, in ascending order. Raises InvalidInput."""
    try:
        found = sorted({float(part) for part in text.split(",")})
    except ValueError:
        found = []
    if not found or not all(0.01 <= each <= 100 for each in found):
        raise InvalidInput(f"epsilons are {text!r}; allowed: numbers from 0.01 to 100 between commas, as 0.5,1,2,8")
    return tuple(found)


def check_comparison(comparison: Comparison, given: Sequence[str]) -> None:
    """Raises InvalidInput for settings that a comparison does not have. given: the names of those that somebody chose.

    Imports what the methods need, so that a package which is not installed is missed before anything runs.
    """
    for name, instead in _NOT_HERE.items():
        if name in given:
            raise InvalidInput(f"--{name.replace('_', '-')} has no effect on a comparison: {instead}; leave it out")
    settings = comparison.settings
    if settings.individualization != "weighting":
        raise InvalidInput(
            f"individualization is {settings.individualization!r}; allowed in a comparison, where all budgets are "
            "equal: weighting"
        )
    if settings.unit == "patient" and "pate" in comparison.methods:
        raise InvalidInput("unit is 'patient'; allowed where teachers vote: record, party (or --methods without pate)")
    of_records = [*(name for name in OF_RECORDS if name in given), *(["unit"] if settings.unit == "patient" else [])]
    if of_records and "record_votes" not in comparison.methods:
        raise InvalidInput(
            f"{of_records[0]} is {getattr(settings, of_records[0])!r}; allowed with the method record_votes only: "
            "leave it out"
        )
    if settings.student in ("none", AUTO, SCORES, USUAL):
        raise InvalidInput(f"student is {settings.student!r}; allowed in a comparison: a kind of student")
    for name in comparison.methods:
        method_of(name)


def run_comparison(comparison: Comparison, *, host: Host, reporter: Reporter, kept: Path) -> list[Row]:
    """One row for each cell, in the order of the methods. Cells that `kept` holds are not run again.

    Raises ConclaveError; each cell is kept there once it is finished.
    """
    rows: list[Row] = []
    read: tuple[int, DatasetInputs, DatasetInputs, list[Grouping]] | None = None
    there = 0
    first: list[Grouping] = []  # numbers are cut where those of the first seed are, so that seeds have the same groups
    with reporter.stage(counted(len(comparison.cells), "cell")) as stage:
        for done, (seed, name, epsilon) in enumerate(comparison.cells, 1):
            if read is None or read[0] != seed:
                found = _inputs(comparison, seed, host=host, reporter=reporter)
                groups = groupings(found.dataset, comparison.settings.group_columns, like=first)
                first = first or groups
                read = (seed, found, encoded_inputs(found, comparison.features), groups)
            _, inputs, features, groups = read
            usual = comparison.settings.student is None
            about = (
                f"{name} {epsilon} {write_config(inputs.settings)} {usual} {inputs.fingerprint} {comparison.features} "
                f"{features.fingerprint} {[(each.attribute, each.names) for each in groups]} "
                f"{source_digest(*OF_RESULTS, 'simulations.baselines', _package(METHODS[name].where))}"
            )
            path = kept / f"{content_digest(text=about)}.json"
            if path.exists():
                row, there = read_json(path), there + 1
            else:
                task = Task(
                    inputs=inputs, encoded=features, usual_student=usual, epsilon=epsilon, seed=seed, host=host,
                    reporter=reporter,
                )  # fmt: skip
                at = "" if epsilon is None else f", epsilon {epsilon:g}"
                cell = f"{name}{at}, seed {seed}"
                stage.update(done - 1, len(comparison.cells), kept=there, doing=cell)
                with reporter.stage(cell):
                    row = _row(name, task, groups)
                write_atomically(path, json.dumps(row))
            rows.append(row)
    place = {name: at for at, name in enumerate(comparison.methods)}
    return _with_gains(sorted(rows, key=lambda row: (place[row["method"]], row["epsilon"] or 0.0, row["seed"])))


def _package(where: str) -> str:
    """What a method's own code imports lies beside it. where: module:name."""
    module = where.partition(":")[0]
    return module.rpartition(".")[0] or module


def _inputs(comparison: Comparison, seed: int, *, host: Host, reporter: Reporter) -> DatasetInputs:
    """The data of one seed. Raises InvalidInput, also for queries of record votes that they do not have."""
    settings = comparison.settings
    changes = {"data_seed": seed} | ({} if comparison.features == "auto" else {"features": comparison.features})
    found = read_inputs(settings.changed(**changes), host=host, reporter=reporter)
    assert isinstance(found, DatasetInputs)  # stored votes are refused
    if any(getattr(settings, name) is not None for name in OF_RECORDS) or settings.unit == "patient":
        _ = found.query_map
    if settings.student is not None:
        return found
    usual = "cnn" if found.dataset.kind == "image" else usual_table_student(found.population)
    return replace(found, settings=found.settings.changed(student=usual))


def _row(name: str, task: Task, groups: Sequence[Grouping]) -> Row:
    method = METHODS[name]
    if task.dataset.findings and not method.findings:
        score = Score(None, note=f"{name} learns one class of a record, and {task.dataset.name} has several findings")
    else:
        score = method_of(name)(task)
    protects = task.settings.unit if method.protects == OF_STUDY else method.protects
    return {
        "method": name,
        "epsilon": task.epsilon,
        "delta": task.settings.delta if method.private else None,
        "protects": protects,
        "adjacency": "replace-one" if method.private else "",
        "seed": task.seed,
        "accuracy": score.accuracy,
        "details": score.details,
        "by_party": list(score.by_party),
        "groups": of_groups(score.right, groups),
        "note": score.note,
    }


def of_groups(
    right: Bool[ndarray, " test"] | Float64[ndarray, " test"] | None, groupings: Sequence[Grouping]
) -> list[Row]:
    """The records and the accuracy of every group, of a method that is right on these test records; none for None."""
    if right is None:
        return []
    return [
        {"attribute": each.attribute, "group": name, "records": int(of.sum()), "accuracy": float(np.nanmean(right[of]))}
        for each in groupings
        for number, name in enumerate(each.names)
        if (of := each.member == number).any()
    ]


def _with_gains(rows: list[Row]) -> list[Row]:
    """The rows, each with the share of the measured parties whose own model is less often right than the method."""
    own = {row["seed"]: row["by_party"] for row in rows if row["method"] == "alone"}
    for row in rows:
        alone, reached = own.get(row["seed"]), row["accuracy"]
        known = bool(alone) and reached is not None and row["method"] != "alone"
        row["parties_that_gain"] = sum(each < reached for each in alone) / len(alone) if known and alone else None
    return rows
