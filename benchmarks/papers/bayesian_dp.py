"""Bayesian Differential Privacy for Machine Learning, as far as PATE: what labels cost a typical record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from benchmarks.papers.paper import Cell, Paper, PaperTable, Part, Task, over_seeds
from protocols.labelling.stored_votes import CastVotes
from simulations.datasets.sources import published
from simulations.setup.experiment import experiment
from simulations.stages.inputs import DatasetInputs, read_inputs
from simulations.stages.label import label_seed
from simulations.stages.vote_source import votes_source

NAME: Final = "bayesian_dp"
_DATASET: Final = "mnist"
_PARTIES, _EPSILON, _QUERIES = 250, 2.0, 1000
# Parties whose records are replaced, and how many of each.
_ANALYSED, _RETRAININGS = 5, 10
# 1 - confidence is the part of delta that the estimate takes up.
_CONFIDENCE: Final = 1 - 5e-6
_TYPICAL: Final = (
    "an estimate for a record drawn like the others, from teachers that were trained again: private, no guarantee, and "
    "never in place of the worst case (benchmarks/typical-case.md)"
)
_PROVED: Final = "what the same retrainings prove of a typical record, whatever the distribution: private itself"
_GUARANTEED: Final = "the worst case, for every record; it may be published"


def paper() -> Paper:
    """What is computed of the paper."""
    return Paper(
        name=NAME,
        title="Bayesian Differential Privacy for Machine Learning",
        citation="Triastcyn & Faltings, ICML 2020",
        link="https://arxiv.org/abs/1901.09697",
        about=(
            "The paper's accountant, which it applied to gradient descent, applied to PATE: Confident-GNMax with the "
            f"settings of Papernot et al. 2018, {_PARTIES} teachers of logistic regression, a budget of {_EPSILON:g}; "
            f"{_RETRAININGS} records of each of {_ANALYSED} parties are replaced, one at a time, and the teacher is "
            "trained again. Seeds draw the noise alone.",
        ),
        tables=(
            PaperTable(
                "pate",
                "Epsilon of a PATE study at delta 1e-5, of every record and of a typical one",
                (Part("MNIST", _typical, (published("mnist").source,)),),
            ),
        ),
    )


def _typical(task: Task) -> Sequence[Cell]:
    from benchmarks.typical_case import retraining
    from simulations.pipeline import study_of

    settings = experiment(
        dataset=_DATASET, parties=_PARTIES, queries=_QUERIES, budgets=_EPSILON, weights="uniform", student="none",
        mechanism="confident_gnmax", sigma=40.0, sigma_threshold=150.0, threshold=200.0,
    )  # fmt: skip
    inputs = read_inputs(settings, host=task.host, reporter=task.reporter)
    _, study = study_of(inputs)
    source = votes_source(inputs, host=task.host, reporter=task.reporter)
    assert isinstance(inputs, DatasetInputs)  # no votes were named
    assert isinstance(source.stored, CastVotes)  # every teacher's are known
    answered, rows = [], []
    for seed in task.seeds:
        result = label_seed(study, source.stored, seed=seed, dropout=0.0, truth=source.truth)
        found = retraining(
            study, inputs.dataset, inputs.shards, source.stored.votes, result, teacher=settings.teacher,
            seed=settings.data_seed, parties=range(_ANALYSED), retrainings=_RETRAININGS, confidence=_CONFIDENCE,
            population="federation",
        )  # fmt: skip
        answered.append(len(result.answered))
        # Only shown, and said to be private.
        rows.append(found.for_research().rows)

    def mean(name: str) -> list[float]:
        return [sum(getattr(row, name) for row in of_seed) / len(of_seed) for of_seed in rows]

    moved = [100 * share for share in mean("moved_share")]
    return [
        Cell(row="MNIST", figure="labels", unit="count", printed=None, **over_seeds(answered)),
        Cell(row="MNIST", figure="epsilon, every record", unit="epsilon", printed=None, means=_GUARANTEED,
             **over_seeds(mean("epsilon_guaranteed"))),
        Cell(row="MNIST", figure="epsilon, typical record", unit="epsilon", printed=None, means=_TYPICAL,
             **over_seeds(mean("epsilon_typical"))),
        Cell(row="MNIST", figure="epsilon, typical record, proved", unit="epsilon", printed=None, means=_PROVED,
             **over_seeds(mean("epsilon_proved"))),
        Cell(row="MNIST", figure="replaced records that move a vote", unit="percent", printed=None,
             **over_seeds(moved)),
    ]  # fmt: skip
