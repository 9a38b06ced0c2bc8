"""Sweep: many settings on votes that are cast once; one row per setting in a CSV table."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from protocols.errors import BudgetExceeded, InvalidInput
from simulations.progress import Reporter
from simulations.setup.accountants import named_accountants
from simulations.setup.experiment import (
    Experiment,
    experiment,
    experiment_budgets,
    parse_seeds,
    read_toml,
)
from simulations.stages.inputs import Host, read_inputs
from simulations.stages.label import mean_and_interval
from simulations.stages.students import ReleasedStudent
from simulations.stages.vote_source import VoteSource, labelled, study_for, votes_source

# Settings that affect neither data nor teachers. Experiments that differ only in these and in the mechanism's
# parameters share their votes.
_AFTER_VOTES = frozenset(
    "budgets delta unit view accountant mechanism weights stop answer_rate quorum dropout student baselines "
    "seeds".split()
)
_LARGEST = 100_000


@dataclass(frozen=True)
class Sweep:
    """The settings of a sweep, in order, and which of their keys vary."""

    settings: list[Experiment]
    varied: tuple[str, ...]
    document: dict[str, object]


def read_sweep(path: Path, *, given: dict[str, object]) -> Sweep:
    """A sweep from TOML: a table [base] of settings, and a table [grid] of lists, all combinations of which are run.

    given: settings of the command line, which override [base]. A sweep trains no student unless told to. Raises
    InvalidInput for an unknown table or setting, an empty list, or more than 100,000 settings.
    """
    tables = read_toml(path)
    unknown = set(tables) - {"base", "grid"}
    if unknown or "grid" not in tables:
        raise InvalidInput(f"{path} has the tables {sorted(tables)}; allowed: [base] and [grid]")
    base, grid = tables.get("base", {}), tables["grid"]
    if not isinstance(base, dict) or not isinstance(grid, dict):
        raise InvalidInput(f"{path}: base and grid must be tables")
    for key, values in grid.items():
        if not isinstance(values, list) or not values:
            raise InvalidInput(f"{path}: grid.{key} is {values!r}; allowed: a list of at least one value")
    total = int(np.prod([len(values) for values in grid.values()]))
    if total > _LARGEST:
        raise InvalidInput(f"{path} makes {total} settings; allowed: at most {_LARGEST}")
    common = {"student": "none", "baselines": False, **base, **given}
    settings = []
    for combination in itertools.product(*grid.values()):
        values = {**common, **dict(zip(grid, combination, strict=True))}
        if isinstance(values.get("seeds"), str):
            values["seeds"] = parse_seeds(str(values["seeds"]))
        settings.append(experiment(**values))
        _, analyses = named_accountants(settings[-1].accountant)
        idle = [name for name in ("attack", "retrainings") if name in values]
        if analyses or idle:
            raise InvalidInput(
                f"{path}: {idle[0] if idle else analyses[0]} analyses private votes or records, and a sweep has "
                "no private figures; allowed: an accountant that charges (analyse single settings with `run`)"
            )
        if settings[-1].votes is None and not settings[-1].partition.startswith("by-site"):
            experiment_budgets(settings[-1])
    return Sweep(settings, tuple(grid), {"base": common, "grid": grid})


def run_sweep(sweep: Sweep, *, host: Host, reporter: Reporter) -> pd.DataFrame:
    """One row per setting: what varied, answers, accuracies, and the largest guaranteed epsilon.

    A setting in which no budget affords an answer, or with a parameter that its mechanism does not take, is not run: it
    has `answered` 0 and the reason in `note`.
    """
    sources: dict[str, VoteSource] = {}
    rows = []
    for settings in sweep.settings:
        key = _votes_key(settings)
        if key not in sources:
            inputs = read_inputs(settings, host=host, reporter=reporter)
            sources[key] = votes_source(inputs, host=host, reporter=reporter)
    with reporter.stage(f"sweep of {len(sweep.settings)} settings") as stage:
        for done, settings in enumerate(sweep.settings, 1):
            rows.append(_row(settings, sweep.varied, sources[_votes_key(settings)], host))
            stage.update(done, len(sweep.settings))
    return pd.DataFrame(rows)


def _votes_key(settings: Experiment) -> str:
    """The settings that determine the votes, as text. Budgets of records determine which teacher learns which
    record.
    """
    of_records = settings.privacy_groups or settings.individualization == "upsampling"
    after = _AFTER_VOTES - {"budgets"} if of_records else _AFTER_VOTES
    return repr(sorted(settings.model_dump(exclude={*after, *settings.parameters}).items()))


def _row(settings: Experiment, varied: tuple[str, ...], source: VoteSource, host: Host) -> dict[str, object]:
    shown = settings.model_dump(mode="json")
    row: dict[str, object] = {key: str(shown[key]) if isinstance(shown[key], list) else shown[key] for key in varied}
    # What the votes determine (parties, teachers) comes from their source; the rest from this setting.
    merged = source.settings.model_copy(update=settings.model_dump(include={*_AFTER_VOTES, *settings.parameters}))
    try:
        budgets = experiment_budgets(merged, source.party_names)
        study = study_for(merged, budgets, source)
        filters = study.budgets
        if merged.stop == "first-exhausted" and (filters.affordable(filters.cap * 0, limit=1) < 1).any():
            raise BudgetExceeded("a budget does not afford one query")
    except (BudgetExceeded, InvalidInput) as error:
        return {**row, "answered": 0.0, "note": str(error)}
    student = str(merged.student)
    seeds = [labelled(study, source, seed, merged, host) for seed in merged.seeds]
    answered, answered_ci = mean_and_interval(np.array([len(seed.answered) for seed in seeds], dtype=float))
    accuracies = [seed.label_accuracy for seed in seeds if seed.label_accuracy is not None]
    row |= {
        "epsilon_mean": float(budgets.epsilon.mean()),
        "epsilon_guaranteed_max": float(filters.epsilon_guaranteed.max()),
        "answered": answered,
        "answered_ci95": answered_ci,
        "asked": float(np.mean([seed.asked for seed in seeds])),
        "label_accuracy": float(np.mean(accuracies)) if accuracies else None,
        "share_of_budget_used_min": float(np.mean([filters.share(s.labelling.spent).min() for s in seeds])),
        "share_of_budget_used_max": float(np.mean([filters.share(s.labelling.spent).max() for s in seeds])),
        "unit": study.unit,
        "view": study.view,
        "accountant": study.accountant_name,
        "note": "",
    }
    if merged.student not in (None, "none") and source.dataset is not None:
        students = [
            ReleasedStudent(
                source.dataset,
                *seed.training_set(source.dataset.classes),
                student=student,
                seed=seed.seed,
                cache_dir=host.cache_dir,
            ).accuracy()
            for seed in seeds
        ]
        known = [accuracy for accuracy in students if accuracy is not None]
        row["student_accuracy"] = float(np.mean(known)) if known else None
    return row
