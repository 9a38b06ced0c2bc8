"""The runs of a sweep: every setting with every data seed, each as `run` makes it, on votes that are cast once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any  # the values of a JSON object

from protocols.errors import BudgetExceeded, InvalidInput
from protocols.plural import counted
from protocols.reading import read_json
from protocols.study.study import Study
from runtime.files import write_atomically
from simulations.datasets.dataset import content_digest
from simulations.pipeline import majority_accuracy, released_students, study_of
from simulations.planning.nearest import nearest
from simulations.planning.plan import make_plan, must_afford
from simulations.progress import Reporter
from simulations.setup.budgets import Budgets
from simulations.setup.experiment import Experiment, write_config
from simulations.source import source_digest
from simulations.stages.inputs import Host, Inputs, read_inputs, with_settings
from simulations.stages.vote_source import VoteSource, labelled, votes_source
from simulations.sweep.grid import Sweep, of_setting

Row = dict[str, Any]  # Any: JSON

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
    shared = Shared(host, reporter)
    source = source_digest("simulations.sweep", "simulations.stages", "protocols.mechanisms", "protocols.budgets")
    for number, settings in sorted(sweep.cells, key=lambda cell: votes_key(cell[1])):
        try:
            inputs = shared.inputs(settings)
            budgets, study = study_of(inputs)
        except InvalidInput as error:
            chosen = {name: settings.model_dump().get(name) for name in sweep.varied}
            raise of_setting(error, chosen) from None
        refused = ""
        try:
            must_afford(make_plan(study, budgets))
        except BudgetExceeded as error:
            refused = str(error)
            if not any(cell.refused for cell in cells):
                # Of the first alone: each takes a second.
                reporter.warn("\n".join([refused, *(each.line for each in nearest(study, settings, inputs))]))
        text = f"{write_config(inputs.settings)} {study.digest.hex()} {inputs.fingerprint} {source}"
        made = (budgets, study) if len(sweep.cells) <= _KEPT else None
        cells.append(Cell(number, settings, refused, content_digest(text=text), made))
    return cells


def run_cells(cells: list[Cell], sweep: Sweep, *, host: Host, reporter: Reporter, kept: Path) -> list[Row]:
    """One row per setting, data seed and seed, in this order. What `kept` holds of an interrupted sweep is not run
    again; each cell is kept there once it is finished.
    """
    rows, shared = [], Shared(host, reporter)
    with reporter.stage(f"sweep of {counted(len(sweep.settings), 'setting')}, {counted(len(cells), 'run')}") as stage:
        for done, cell in enumerate(cells, 1):
            path = kept / f"{cell.key}.json"
            found = read_json(path) if path.exists() else keep(cell, shared, path)
            rows += [_named(row, cell, sweep.varied) for row in found]
            stage.update(done, len(cells))
    return sorted(rows, key=lambda row: (row["setting"], row["data_seed"], row["seed"]))


def keep(cell: Cell, shared: Shared, path: Path) -> list[Row]:
    """Runs a cell and keeps its rows in the file, whole or not at all; returns them."""
    found = list(_rows(cell, shared))
    write_atomically(path, json.dumps(found))
    return found


class Shared:
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
    if settings.votes_by == "record":
        after -= {"unit", "confidentiality", "units"}
    rest = settings.model_dump(exclude={*after, *settings.parameters})
    return repr((settings.data_seed, pooled, sorted(rest.items())))


def _rows(cell: Cell, shared: Shared) -> Iterator[Row]:
    """The figures of every seed of one cell."""
    if cell.refused:
        for seed in cell.settings.seeds:
            yield {"seed": seed, "asked": 0, "answered": 0, "note": cell.refused}
        return
    inputs, source, host = shared.run(cell.settings)
    budgets, study = cell.made or study_of(inputs)
    settings, filters = inputs.settings, study.budgets
    results = [labelled(study, source, seed, settings, host) for seed in settings.seeds]
    students = [each.accuracy() for each in released_students(settings, source, results, host)]
    for result, student in zip(results, students or [None] * len(results), strict=True):
        spent = result.labelling.spent
        share = filters.share(spent)
        yield {
            "seed": result.seed,
            "asked": result.asked,
            "answered": len(result.answered),
            "label_accuracy": result.label_accuracy,
            "student_accuracy": student,
            "majority_share": _majority(source),
            "epsilon_guaranteed_max": float(filters.epsilon_guaranteed.max()),
            "epsilon_spent_max": float(filters.epsilon_of(spent).max()),
            "share_of_budget_used_min": float(share.min()),
            "share_of_budget_used_max": float(share.max()),
            **_terms(budgets, study),
            "note": "",
        }


def _terms(budgets: Budgets, study: Study) -> Row:
    return {
        "epsilon_mean": float(budgets.epsilon.mean()),
        "unit": study.unit,
        "view": study.view,
        "accountant": study.accountant_name,
        "study_digest": study.digest.hex(),
    }


def _majority(source: VoteSource) -> float | None:
    """The accuracy of the most frequent class: on the test records, or of the pool where there are none."""
    truth = source.truth if source.dataset is None else source.dataset.test_labels
    return None if truth is None else majority_accuracy(truth)


def _named(row: Row, cell: Cell, varied: tuple[str, ...]) -> Row:
    """The row with the number of its setting, the values that vary, and its seeds, in front."""
    shown = cell.settings.model_dump(mode="json")
    values = {key: str(shown[key]) if isinstance(shown.get(key), list) else shown.get(key) for key in varied}
    return {"setting": cell.number, **values, "data_seed": cell.settings.data_seed, **row}
