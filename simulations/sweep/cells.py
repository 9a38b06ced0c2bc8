"""What a sweep varies, and what it repeats: settings from a TOML file, from flags and from key=value.

The runs of a sweep: every setting with every data seed, each as `run` makes it, on votes that are cast once.

The runs of a sweep side by side: an engine's workers take the cells, as they take parties when votes are cast.

Votes are cast first, once for all cells that share them, so a worker only reads what is cached. Each cell is kept as
soon as it is finished, by the worker. On a cluster every machine needs the caller's folder, the cache and the results
at the same paths.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any  # the values of a JSON object

from protocols.budgets.planned import Budgets
from protocols.errors import BudgetExceeded, EngineFailed, InvalidInput
from protocols.plural import counted
from protocols.reading import parse_json, read_json
from protocols.study.plan import make_plan, must_afford
from protocols.study.study import Study
from runtime.files import write_atomically
from runtime.settings import named_toml
from simulations.datasets.dataset import Dataset, content_digest
from simulations.engines import open_engine
from simulations.engines.engine import Exchange, HostSpec
from simulations.findings import ReleasedStudents, auroc_of, auroc_on_tests
from simulations.pipeline import majority_accuracy, released_students, study_of
from simulations.planning.advice import nearest_settings
from simulations.progress import Reporter
from simulations.setup.accountants import named_accountants
from simulations.setup.experiment import SETTINGS, VOTERS, Experiment, experiment, parse_seeds
from simulations.source import OF_RESULTS, source_digest
from simulations.stages.inputs import Host, Inputs, read_inputs, with_settings
from simulations.stages.vote_source import VoteSource, labelled_source, votes_source

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
            (number, settings.changed(data_seed=seed))
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
    tables = named_toml(path)
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
        usual = {name: SETTINGS[name] for name in ("attack", "groups")}
        idle = [name for name, default in usual.items() if getattr(settings, name) != default]
        if analyses or idle:
            raise InvalidInput(
                f"{idle[0] if idle else analyses[0]} adds figures that a sweep does not have; allowed: an accountant "
                "that charges, and no attack or groups (give them to `run`, setting by setting)"
            )
    except InvalidInput as error:
        raise of_setting(error, chosen) from None
    return settings


def of_setting(error: InvalidInput, chosen: Mapping[str, object]) -> InvalidInput:
    """The error, with the values of the setting that it is about."""
    return InvalidInput(f"{cell_words(chosen)}: {error}")


def cell_words(chosen: Mapping[str, object]) -> str:
    """What tells a setting from the others: `weights = uniform, sigma = 4`."""
    return ", ".join(f"{key} = {value}" for key, value in chosen.items())


CellRow = dict[str, Any]  # Any: JSON

# Settings that affect neither data nor teachers. Runs that differ only in these and in the mechanism's parameters
# share their votes.
_AFTER_VOTES = frozenset(
    "budgets delta unit view accountant mechanism individualization weights stop answer_rate quorum confidentiality "
    "units colluders dropout student baselines seeds".split()
)
# Studies of a sweep that are kept between its checks and its runs.
_KEPT = 1000


@dataclass(frozen=True, eq=False)
class Cell:
    """One setting with one data seed. refused: why it affords nothing, "" if it does; key: a digest of all that
    determines its rows; made: its budgets and study, None where a sweep has too many to keep.
    """

    number: int
    settings: Experiment
    refused: str
    key: str
    made: tuple[Budgets, Study] | None


def prepared(sweep: Sweep, *, host: Host, reporter: Reporter) -> list[Cell]:
    """Every cell of a sweep, those that share their votes side by side. Nothing is trained yet.

    Raises InvalidInput for the first setting that `run` would not take, DataUnavailable or DataCorrupt.
    """
    cells: list[Cell] = []
    doubted: dict[str, None] = {}
    shared = _Shared(host, reporter)
    source = source_digest(*OF_RESULTS, "simulations.sweep")
    for number, settings in sorted(sweep.cells, key=lambda cell: votes_key(cell[1])):
        try:
            inputs = shared.inputs(settings)
            doubted.update(dict.fromkeys(inputs.doubts))
            budgets, study = study_of(inputs)
        except InvalidInput as error:
            chosen = {name: settings.values.get(name) for name in sweep.varied}
            raise of_setting(error, chosen) from None
        refused = ""
        try:
            must_afford(make_plan(study))
        except BudgetExceeded as error:
            refused = str(error)
            if not any(cell.refused for cell in cells):
                # Of the first alone: each takes a second.
                settings_beside = nearest_settings(study, settings, inputs)
                reporter.warn("\n".join([refused, *(each.line(inputs) for each in settings_beside)]))
        # Settings that differ in what one study does not show, as weights of equal budgets, are one run.
        beside = [inputs.settings.values[name] for name in ("dropout", "student", "baselines", "seeds")]
        votes = votes_key(settings.changed(weights=SETTINGS["weights"]))  # the study's digest has its weights
        text = f"{votes} {beside} {study.digest.hex()} {inputs.fingerprint} {source}"
        made = (budgets, study) if len(sweep.cells) <= _KEPT else None
        cells.append(Cell(number, settings, refused, content_digest(text=text), made))
    for doubt in doubted:
        reporter.warn(doubt)
    for same in _same(cells):
        reporter.say(f"settings {', '.join(map(str, same))} are the same study, which is run once")
    return cells


def _same(cells: Iterable[Cell]) -> list[tuple[int, ...]]:
    """The numbers of settings that are the same study, in ascending order, each group once."""
    numbers: dict[str, set[int]] = {}
    for cell in cells:
        numbers.setdefault(cell.key, set()).add(cell.number)
    return sorted({tuple(sorted(each)) for each in numbers.values() if len(each) > 1})


def run_cells(cells: list[Cell], sweep: Sweep, *, host: Host, reporter: Reporter, kept: Path) -> list[CellRow]:
    """One row per setting, data seed and seed, in this order. What `kept` holds of an interrupted sweep is not run
    again; each cell is kept there once it is finished.
    """
    rows, shared = [], _Shared(host, reporter)
    with reporter.stage(f"sweep of {counted(len(sweep.settings), 'setting')}, {counted(len(cells), 'run')}") as stage:
        for done, cell in enumerate(cells, 1):
            path = kept / f"{cell.key}.json"
            found = read_json(path) if path.exists() else keep(cell, shared, path)
            rows += [_named(row, cell, sweep.varied) for row in found]
            stage.update(done, len(cells))
    return sorted(rows, key=lambda row: (row["setting"], row["data_seed"], row["seed"]))


def keep(cell: Cell, shared: _Shared, path: Path) -> list[CellRow]:
    """Runs a cell and keeps its rows in the file, whole or not at all; returns them."""
    found = list(_rows(cell, shared))
    write_atomically(path, json.dumps(found))
    return found


class _Shared:
    """Inputs and votes of the cells at hand: those of one kind at a time, as they may be large."""

    def __init__(self, host: Host, reporter: Reporter) -> None:
        self._host, self._reporter = host, reporter
        self._key = ""
        self._inputs: Inputs | None = None
        self._source: VoteSource | None = None

    def inputs(self, settings: Experiment) -> Inputs:
        """What a run with these settings starts from."""
        if self._inputs is None or self._key != votes_key(settings):
            self._key, self._source = votes_key(settings), None
            self._inputs = read_inputs(settings, host=self._host, reporter=self._reporter)
            return self._inputs
        return with_settings(self._inputs, settings, reporter=self._reporter)

    def run(self, settings: Experiment) -> tuple[Inputs, VoteSource, Host]:
        """The same, with the votes; teachers are trained for them."""
        inputs = self.inputs(settings)
        if self._source is None:
            self._source = votes_source(inputs, host=self._host, reporter=self._reporter)
        return inputs, self._source, self._host


def votes_key(settings: Experiment) -> str:
    """The settings that determine the votes, as text. Budgets of records determine which teacher learns which
    record; where records vote, the unit and the level determine what is counted.
    """
    pooled = settings.individualization == "upsampling"
    after = _AFTER_VOTES - {"budgets"} if settings.privacy_groups or pooled else _AFTER_VOTES
    after -= VOTERS[settings.votes_by].counted
    rest = {name: value for name, value in settings.values.items() if name not in {*after, *settings.parameters}}
    return repr((settings.data_seed, pooled, settings.askers, sorted(rest.items())))


def _rows(cell: Cell, shared: _Shared) -> Iterator[CellRow]:
    """The figures of every seed of one cell."""
    if cell.refused:
        for seed in cell.settings.seeds:
            yield {"seed": seed, "asked": 0, "answered": 0, "note": cell.refused}
        return
    inputs, source, host = shared.run(cell.settings)
    budgets, study = cell.made or study_of(inputs)
    settings, filters = inputs.settings, study.budgets
    results = [labelled_source(study, source, seed, settings, host) for seed in settings.seeds]
    students = released_students(settings, source, results, host)
    for at, result in enumerate(results):
        spent = result.labelling.spent
        share = filters.share(spent)
        yield {
            "seed": result.seed,
            "asked": result.asked,
            "answered": len(result.answered),
            "label_accuracy": result.label_accuracy,
            **_of_student(students[at] if students else None, source.studied),
            "majority_share": _majority(source),
            "epsilon_guaranteed_max": float(filters.epsilon_guaranteed.max()),
            "epsilon_spent_max": float(filters.epsilon_of(spent).max()),
            "share_of_budget_used_min": float(share.min()),
            "share_of_budget_used_max": float(share.max()),
            **_terms(budgets, study),
            "note": "",
        }


def _of_student(student: ReleasedStudents | None, studied: Dataset | None) -> CellRow:
    if student is None or studied is None:
        return dict.fromkeys(("student_accuracy", "student_auroc", "auroc_of"))
    of = {"student_auroc": auroc_on_tests(student, studied), "auroc_of": auroc_of(studied)}
    return {"student_accuracy": student.accuracy(), **of}


def _terms(budgets: Budgets, study: Study) -> CellRow:
    return {
        "epsilon_mean": float(budgets.epsilon.mean()),
        "unit": study.unit,
        "view": study.view,
        "accountant": study.accountant_name,
        "study_digest": study.digest.hex(),
    }


def _majority(source: VoteSource) -> float | None:
    """The accuracy of the most frequent class: on the test records, or of the pool where there are none."""
    truth = [source.truth] if source.dataset is None else [task.test_labels for task in source.dataset.tasks]
    known = [labels for labels in truth if labels is not None]
    return majority_accuracy(known) if known else None


def _named(row: CellRow, cell: Cell, varied: tuple[str, ...]) -> CellRow:
    """The row with the number of its setting, the values that vary, and its seeds, in front."""
    shown = cell.settings.values
    values = {key: str(list(shown[key])) if isinstance(shown.get(key), tuple) else shown.get(key) for key in varied}
    return {"setting": cell.number, **values, "data_seed": cell.settings.data_seed, **row}


def run_apart(cells: Sequence[Cell], *, host: Host, reporter: Reporter, kept: Path) -> None:
    """Runs the cells that `kept` does not hold in the workers of the host's engine, and keeps their rows there.

    The rows are those that one process makes, cell by cell. Raises what a cell raises, and EngineFailed; what was
    finished before is kept.
    """
    wanted = {cell.key: cell for cell in cells if not cell.refused and not (kept / f"{cell.key}.json").exists()}
    if not wanted:
        return
    _cast(wanted.values(), host=host, reporter=reporter)
    requests = {
        # What was not given stays so: it may follow from the data.
        key: json.dumps(cell.settings.chosen).encode()
        for key, cell in wanted.items()
    }
    with reporter.stage(f"{len(wanted)} runs, side by side") as stage:

        def body(exchange: Exchange) -> None:
            if None in exchange(requests, stage.update).values():
                raise EngineFailed("a worker left out a run of the sweep")

        spec = HostSpec("simulations.sweep.cells:SweepHost", {"kept": str(kept.absolute()), **host.folders})
        open_engine(host.engine, workers=host.workers).run(spec, list(requests), body)


def _cast(cells: Iterable[Cell], *, host: Host, reporter: Reporter) -> None:
    """Makes sure that the votes of all cells are cached; those of one kind at a time are in memory."""
    shared = _Shared(host, reporter)
    for cell in {votes_key(cell.settings): cell for cell in cells}.values():
        shared.run(cell.settings)


class SweepHost:
    """The cells of one worker."""

    def __init__(self, *, kept: str, **folders: str) -> None:
        self._kept = Path(kept)
        self._shared = _Shared(Host.in_worker(**folders), Reporter(quiet=True))

    def handle(self, requests: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        """Runs each cell (its key, and its settings as JSON) and keeps its rows; the reply is empty."""
        for key, request in requests.items():
            settings = experiment(**parse_json(request, where="the settings of a run"))
            keep(Cell(0, settings, "", key, None), self._shared, self._kept / f"{key}.json")
            yield key, b""
