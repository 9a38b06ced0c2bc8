"""Small finished runs from stored votes, drawn from a seed: no data set and no training."""

import dataclasses
from pathlib import Path

import numpy as np

from simulations.pipeline import RunResult, run, study_of
from simulations.progress import Reporter
from simulations.setup.experiment import experiment
from simulations.stages.inputs import Host, read_inputs


def write_votes(folder: Path, *, parties: int, queries: int, classes: int, teachers: int = 1) -> dict[str, object]:
    """Votes that are right about 7 times in 10, and the truth, as files; the settings that name them."""
    rng = np.random.default_rng(parties + queries + classes)
    truth = rng.integers(classes, size=queries)
    right = rng.random((parties, teachers, queries)) < rng.uniform(0.5, 0.9, size=(parties, 1, 1))
    votes = np.where(right, truth, rng.integers(classes, size=(parties, teachers, queries))).astype(np.int16)
    np.save(folder / "votes.npy", votes)
    np.save(folder / "truth.npy", truth)
    return {
        "votes": str(folder / "votes.npy"),
        "votes_kind": "ids",
        "labels": str(folder / "truth.npy"),
        "classes": classes,
    }


def stored_run(
    folder: Path, *, parties: int = 40, pool: int = 300, classes: int = 4, teachers: int = 1, **settings: object
) -> RunResult:
    """A run over such votes: Confident-GNMax, Gaussian accountant, proportional weights, unless given."""
    given = {
        **write_votes(folder, parties=parties, queries=pool, classes=classes, teachers=teachers),
        "mechanism": "confident_gnmax",
        "accountant": "gaussian",
        "weights": "proportional",
        "budgets": "2:0.5,6:0.5",
        **settings,
    }
    host = Host(data_dir=None, cache_dir=folder / "cache", engine="in_process", workers=1)
    reporter = Reporter(quiet=True)
    settings_given = experiment(**{name: value for name, value in given.items() if value is not None})
    inputs = read_inputs(settings_given, host=host, reporter=reporter)
    budgets, study = study_of(inputs)
    return run(inputs, budgets=budgets, study=study, host=host, reporter=reporter)


def with_students(result: RunResult, accuracies: list[float | None]) -> RunResult:
    """The same run as if students of these accuracies had been trained, and a non-private model of 0.98."""
    baselines = dataclasses.replace(result.baselines, non_private=0.98, uniform_student=0.61)
    return dataclasses.replace(result, students=accuracies, baselines=baselines)
