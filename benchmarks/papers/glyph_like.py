"""PATE 2018's Glyph at its own size, 5,000 teachers of 150 classes, on rendered characters: Glyph is not published.

The votes, labels and ledgers are those of an ordinary run: teachers are trained and vote through an engine, and the
study is replayed, and run live between 5,000 parties with a ledger each for its first queries.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any  # Any: rows of a JSON file

import numpy as np
from jaxtyping import Float64, Int64, Integer
from numpy import ndarray

from benchmarks.papers.paper import Cell, Task, points
from benchmarks.papers.students import counts_of, ensemble_votes, released, student_accuracy
from benchmarks.papers.votes import DATA_DEPENDENT_MEANS, WORST_CASE_MEANS, confident_figures, worst_case
from protocols.labelling.stored_votes import CastVotes
from protocols.mechanisms.confident_gnmax import ConfidentGNMax
from protocols.research.data_dependent import answer_probability
from protocols.votes import plurality
from simulations import datasets
from simulations.datasets.dataset import DatasetRequest
from simulations.datasets.rendered import rendered
from simulations.setup.experiment import experiment, experiment_budgets, make_study
from simulations.stages.label import check_live, label_seed, live_study


@dataclass(frozen=True)
class Size:
    """records: of each teacher; live: how many queries the live study asks, in which every party has a ledger of its
    own; student: as the table of students names it.
    """

    teachers: int = 5000
    records: int = 200
    queries: int = 12_000
    live: int = 1000
    student: str = "cnn"


# What an ordinary study of the same votes has; at the paper's delta, 1e-8, the float64 noise of 12,000 queries with 150
# classes could not be covered.
_BUDGET, _DELTA, _ONE_DRAW_SIGMA = 4.0, 1e-5, 150.0
_STUDY_MEANS = (
    f"in a study of budgets epsilon {_BUDGET:g}, delta {_DELTA:g}, one draw of noise of {_ONE_DRAW_SIGMA:g} votes per "
    "query, the same threshold"
)
_WHY = "other characters and teachers"


def glyph_like(row: dict[str, Any], size: Size, task: Task) -> Sequence[Cell]:
    """The figures of the paper's row of Glyph, at a size; of the first seed alone. The paper's noise and threshold, of
    5,000 votes, are scaled to the teachers. Raises ConclaveError; EngineFailed where a ledger differs.
    """
    teachers, queries = size.teachers, size.queries
    where, seed = f"{teachers:,} teachers, {queries:,} queries", task.seeds[0]
    released_means = f"under the paper's noise, as released with the noise of one seed; student: a {size.student}"
    request = DatasetRequest(
        seed=seed, classes=row["classes"], private_size=teachers * size.records, public_size=queries, test_size=2000
    )
    dataset = rendered("clear_glyphs", request, load=datasets.load, cache_dir=task.host.cache_dir)
    started = time.perf_counter()
    votes = ensemble_votes(task, dataset, teachers=teachers, kind="nearest_centroid", seed=seed)
    cast_s = time.perf_counter() - started
    counts, truth = counts_of(votes, classes=dataset.classes), dataset.public_labels
    scale = teachers / row["teachers"]
    mechanism = ConfidentGNMax(
        sigma=row["sigma2"] * scale, sigma_threshold=row["sigma1"] * scale, threshold=row["T"] * scale
    )
    answer = answer_probability(
        counts.max(axis=1), sigma_threshold=row["sigma1"] * scale, threshold=row["T"] * scale
    ).for_research()
    least = confident_figures(counts, mechanism, delta=row["delta"]).expected_mironov
    assert least is not None  # the accountant's mechanism has a threshold
    labels = released(mechanism, counts, seed=seed)
    answered = labels >= 0

    data = f"clear_glyphs, each teacher nearest centroids of {size.records} records"

    def cell(figure: str, unit: Any, ours: float | None, printed: float | None = None, means: str = "") -> Cell:
        return Cell(row=where, figure=figure, unit=unit, printed=printed, ours=ours, other=data, means=means, why=_WHY)

    worst = worst_case(mechanism, classes=dataset.classes, queries=queries, delta=row["delta"])
    return [
        cell("teachers, mean", "percent", _right_votes(votes, truth)),
        cell("plurality of votes", "percent", 100 * float((plurality(counts) == truth).mean())),
        cell("answered", "count", float(answer.sum()), row["answered"]),
        cell("epsilon", "epsilon", float(least.epsilon[0]), row["table2_eps"], DATA_DEPENDENT_MEANS),
        cell("order", "order", float(least.order[0]), row["order"]),
        cell("epsilon, worst case", "epsilon", worst, means=WORST_CASE_MEANS),
        cell("labels that are right", "percent", 100 * float((labels == truth)[answered].mean()),
             means=released_means),
        cell("student", "percent", student_accuracy(task, dataset, labels, kind=size.student, seed=seed),
             points(row["student"]), released_means),
        *_study(cell, task, size, votes, truth, classes=dataset.classes, scale=scale, threshold=row["T"]),
        cell("training and voting", "seconds", cast_s, means="a moment where teachers and votes are in the cache"),
        cell("peak memory", "mebibytes", _peak_mebibytes(), means="of the largest process, with mapped files"),
    ]  # fmt: skip


def _study(
    cell: Any,  # makes a Cell, see glyph_like
    task: Task,
    size: Size,
    votes: Integer[ndarray, "teachers one queries"],
    truth: Int64[ndarray, " queries"],
    *,
    classes: int,
    scale: float,
    threshold: float,
) -> list[Cell]:
    """A study of one party for each teacher; raises EngineFailed unless all ledgers of a live one agree."""
    settings = experiment(
        parties=size.teachers, budgets=f"{_BUDGET:g}", delta=_DELTA, mechanism="thresholded_gnmax", weights="uniform",
        student="none", sigma=_ONE_DRAW_SIGMA * scale, threshold=threshold * scale,
    )  # fmt: skip
    budgets, stored, seed = experiment_budgets(settings), CastVotes(classes, votes), task.seeds[0]
    study = make_study(settings, budgets, classes=classes, queries=stored.queries)
    started = time.perf_counter()
    whole = label_seed(study, stored, seed=seed, dropout=0.0, truth=truth)
    replay_s = time.perf_counter() - started
    right = None if whole.label_accuracy is None else 100 * whole.label_accuracy
    first = stored.first(min(size.live, stored.queries))
    small = make_study(settings, budgets, classes=classes, queries=first.queries)
    started = time.perf_counter()
    check_live(
        live_study(small, first, seed=seed, dropout=0.0),
        label_seed(small, first, seed=seed, dropout=0.0, truth=None).labelling,
    )
    live_s = time.perf_counter() - started
    ledgers = f"the first {first.queries:,} queries live: the same labels, and every party's ledger agrees"
    return [
        cell("labels of a study", "count", float(len(whole.answered)), means=_STUDY_MEANS),
        cell("of these right", "percent", right, means=_STUDY_MEANS),
        cell("ledgers checked", "count", float(size.teachers), means=ledgers),
        cell("replay of the study", "seconds", replay_s),
        cell("live study", "seconds", live_s, means=ledgers),
    ]


def _right_votes(votes: Integer[ndarray, "teachers one queries"], truth: Int64[ndarray, " queries"]) -> float:
    """The mean accuracy of the teachers in percent; teacher by teacher, so that no array of all votes is copied."""
    right: Float64[ndarray, " teachers"] = np.array([(each[0] == truth).mean() for each in votes])
    return 100 * float(right.mean())


def _peak_mebibytes() -> float:
    peak = max(resource.getrusage(whose).ru_maxrss for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
