"""The files of a run: summary.json, queries.parquet, parties.csv, config.toml and env.json."""

from __future__ import annotations

import csv
import io
import json
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any  # the values of a JSON object

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Int32
from numpy import ndarray

from protocols.budgets.accountant import accountant
from protocols.installing import DISTRIBUTION
from protocols.study.released_noise import noise_in
from protocols.study.right_labels import doubtful, seldom_named
from protocols.study.study import ADJACENCY, Study
from protocols.study.votes import TeacherVotes, UnitSums, Votes, unit_sums
from runtime.files import write_atomically
from simulations.pipeline import Baselines, RunResult, pool_warning
from simulations.results.text import (
    MARK,
    NOT_FOR_RELEASE,
    baseline_groups,
    calibration_summary,
    calibration_table,
    groups_summary,
    groups_table,
)
from simulations.setup.experiment import write_config
from simulations.stages.label import SeedResult, mean_and_interval
from simulations.stages.students import measured_parties

Summary = dict[str, Any]  # Any: JSON
# A student that names fewer of the labels that it learned from did not learn them.
LEAST_AGREED = 0.5


def summary(result: RunResult) -> Summary:
    """The figures of a run. With several seeds `answered` and accuracies are means (`seeds` has each one's).

    Every epsilon says what it is: `epsilon_guaranteed` is the cap at the party's own fixed order and may be
    published; `epsilon_spent` is an operator's reading of the ledger (the largest over the seeds). `not_for_release`
    names the figures that are computed from votes or records.
    """
    study, seeds = result.study, result.seeds
    budgets = study.budgets
    answered = np.array([len(seed.answered) for seed in seeds], dtype=float)
    answered_mean, answered_ci = mean_and_interval(answered)
    label_mean, label_ci = _over([seed.label_accuracy for seed in seeds])
    student_mean, student_ci = _over(result.students)
    spent = np.max([seed.labelling.spent for seed in seeds], axis=0)
    first = _exhausted_first(result)
    accuracy, dataset = result.teacher_accuracy, result.source.dataset
    names = None if dataset is None else list(dataset.class_names)
    return {
        "not_for_release": list(NOT_FOR_RELEASE),
        "votes_by": study.votes.by,
        "parties": len(study.roster),
        "teachers_per_party": study.votes.values.get("teachers"),
        "class_names": names,
        "queries": result.source.stored.queries,
        "asked": float(np.mean([seed.asked for seed in seeds])),
        "answered": int(answered_mean) if len(seeds) == 1 else answered_mean,
        "answered_ci95": answered_ci,
        "label_accuracy": label_mean,
        "label_accuracy_ci95": label_ci,
        "student": _student(result),
        "student_accuracy": student_mean,
        "student_accuracy_ci95": student_ci,
        "reinforced": float(np.mean([(seed.labelling.reinforced >= 0).sum() for seed in seeds])),
        "teacher_accuracy_mean": None if accuracy is None else float(accuracy.mean()),
        "plurality_accuracy": result.plurality_accuracy,
        "record_votes": _FILES[type(study.votes)].figures(result),
        "by_group": groups_summary(result.by_group),
        "independent_test_records": None if result.by_group is None else result.by_group.independent,
        "calibration": calibration_summary(result.by_group),
        "findings": None if result.told is None else result.told.summary,
        "evaluation": result.evaluated[0].summary() if result.evaluated else None,
        "asker": _asker(result),
        "baselines": {
            **_baselines(result.baselines, student_mean),
            **baseline_groups(result.by_group),
            "findings_auroc": None if result.told is None else result.told.pooled,
            "findings_auroc_macro": None if result.told is None else result.told.pooled_macro,
        },
        "stop": seeds[0].labelling.stop.reason,
        "exhausted_first": first,
        "epsilon_max": float(budgets.epsilon_of(spent).max()),
        "epsilon_guaranteed_max": float(budgets.epsilon_guaranteed.max()),
        "accounting": accountant(study.accountant_name).statement,
        "accountant": study.accountant_name,
        "unit": study.unit,
        "adjacency": ADJACENCY,
        "view": study.view,
        "mechanism": _FILES[type(study.votes)].mechanism(study),
        "noise_by_default": result.settings.usual_noise,
        "individualization": result.settings.individualization,
        "participation": study.votes.participation_name,
        "confidentiality": study.confidentiality.name,
        "units": study.confidentiality.units,
        "pooled_teachers": study.votes.values.get("pooled_teachers"),
        "weights": result.settings.weight_rule if result.settings.individualization == "weighting" else None,
        "stop_rule": study.votes.stop,
        "groups": _groups(result),
        "warnings": _warnings(result, names),
        "live_checked": result.live_checked,
        "study_digest": study.digest.hex(),
        "seeds": _seeds(result),
    }


def _asker(result: RunResult) -> Summary | None:
    """What a hospital that asks gains: its own model before and after; agreement: of votes in fixed point with floating
    point. None where nobody asks."""
    if not result.improved:
        return None
    after = np.array([each.accuracy_after for each in result.improved])
    first = result.improved[0]
    mean, half = mean_and_interval(after)
    return {
        "model": first.model,
        "own_records": first.own_records,
        "input_bound": result.settings.input_bound,
        "before": first.accuracy_before,
        "after": mean,
        "gain": mean - first.accuracy_before,
        "gain_ci95": half,
        "agreement": result.source.agreement,
    }


def _warnings(result: RunResult, names: list[str] | None) -> list[str]:
    """What casts doubt on the first seed's labels and student, from public terms and released labels alone."""
    first, student = result.seeds[0], result.released_student
    found = [*result.warned, *doubtful(result.study, first.labelling.labels, result.foretold)]
    if first.soft is not None:
        # A finding has a threshold of its own, so that one that few have is named.
        seldom = [] if first.soft.findings else seldom_named(first.soft.probabilities, names)
        return found + pool_warning(result.source, first) + seldom
    agreed = None if student is None else student.agreement()
    if agreed is not None and agreed < LEAST_AGREED:
        found.append(f"the student names the released label for {100 * agreed:.0f} % of the queries it learned from")
    return found


def _baselines(measured: Baselines, student: float | None) -> Summary:
    gain = None if measured.alone is None or student is None else int((measured.alone < student).sum())
    return {
        "non_private_student_accuracy": measured.non_private,
        "single_party_accuracy_mean": None if measured.alone is None else float(measured.alone.mean()),
        "single_party_accuracy_best": None if measured.alone is None else float(measured.alone.max()),
        "single_parties_measured": None if measured.alone is None else len(measured.alone),
        "single_parties_that_gain": gain,
        "majority_class_accuracy": measured.majority,
        "minimum_budget_uniform": {
            "answered": measured.uniform_answered,
            "label_accuracy": measured.uniform_label_accuracy,
            "student_accuracy": measured.uniform_student,
        },
    }


def _record_votes(result: RunResult) -> Summary:
    """What only a study of record votes has."""
    sums, soft = unit_sums(result.study), result.seeds[0].soft
    return {
        "queries": sums.queries,
        "votes_per_record": sums.votes,
        "graded": sums.signed,
        "sums": 1 + sums.residuals,
        "second_sums": sum(seed.labelling.again is not None for seed in result.seeds),
        "protected_units": sums.population,
        "noise_in_votes": noise_in(result.study, voted=int((result.seeds[0].labelling.spent > 0).sum())),
        "pool_records_labelled": 0 if soft is None else len(soft.probabilities),
        "reliability_mean": None if soft is None else float(soft.reliability.mean()),
    }


def _seeds(result: RunResult) -> list[Summary]:
    return [
        {
            "seed": seed.seed,
            "asked": seed.asked,
            "answered": len(seed.answered),
            "label_accuracy": seed.label_accuracy,
            "student_accuracy": student,
            "student_choice": None if choice is None else asdict(choice),
            "stop": seed.labelling.stop.reason,
            "batches": len(seed.labelling.batches),
        }
        for seed, student, choice in zip(result.seeds, result.students, result.choices, strict=True)
    ]


def _student(result: RunResult) -> str | None:
    """The kind of student; with several seeds that chose different ones, all of them."""
    chosen = {choice.kind: None for choice in result.choices if choice is not None}
    return ", ".join(chosen) or result.settings.student


def write_results(result: RunResult, out: Path) -> Summary:
    """Atomically writes the data files of a run into `out`; returns the summary."""
    figures = summary(result)
    for name, content in _FILES[type(result.study.votes)].tables.items():
        write_atomically(out / name, content(result))
    write_atomically(out / "parties.csv", _parties(result))
    if result.by_group is not None:
        write_atomically(out / "by_group.csv", groups_table(result.by_group))
        write_atomically(out / "calibration.csv", calibration_table(result.by_group))
    write_atomically(out / "env.json", json.dumps(environment(), indent=2) + "\n")
    write_atomically(out / "config.toml", write_config(result.settings, result.study))
    write_atomically(out / "summary.json", json.dumps(figures, indent=2) + "\n")
    return figures


def environment() -> Summary:
    """The machine and the versions that a run used; no user, host name or path."""
    versions = {}
    for package in (DISTRIBUTION, "numpy", "scipy", "scikit-learn", "torch", "flwr", "ray", "pyarrow", "matplotlib"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "absent"
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "versions": versions,
    }


def _over(values: list[float | None]) -> tuple[float | None, float | None]:
    known = np.array([value for value in values if value is not None])
    return mean_and_interval(known) if len(known) else (None, None)


def _exhausted_first(result: RunResult) -> list[str]:
    """The parties whose budgets were the first not to fit one more query (seed 0 of the run); empty if none."""
    seed = result.seeds[0]
    budgets = result.study.budgets
    for spent in seed.spent_after:
        out = budgets.affordable(spent, limit=1) < 1
        if out.any():
            return [result.study.roster[i].party for i in np.flatnonzero(out)]
    return [result.study.roster[i].party for i in np.flatnonzero(seed.labelling.stop.exhausted)]


def _groups(result: RunResult) -> list[Summary]:
    """One entry per distinct budget: who has it, what may be published, what was used."""
    study, filters = result.study, result.study.budgets
    spent = np.array([seed.labelling.spent for seed in result.seeds])
    guaranteed = filters.epsilon_guaranteed
    epsilon_spent = np.max([filters.epsilon_of(row) for row in spent], axis=0)
    share = filters.share(spent).mean(axis=0)
    given = np.stack([result.budgets.epsilon, result.budgets.delta, study.weights])
    distinct, member = np.unique(given, axis=1, return_inverse=True)
    groups = []
    for index in range(distinct.shape[1]):
        of_group = np.flatnonzero(member == index)
        order = float(filters.order[of_group[0]])
        groups.append(
            {
                "size": len(of_group),
                "budget": float(distinct[0, index]),
                "delta": float(distinct[1, index]),
                "weight": float(distinct[2, index]),
                "rate": float(study.rates[of_group[0]]),
                "order": order if np.isfinite(order) else None,
                "epsilon_guaranteed": float(guaranteed[of_group].max()),
                "epsilon_spent": float(epsilon_spent[of_group].max()),
                "epsilon_spent_is": "an operator's reading of the ledger, not a guarantee",
                "share_of_budget_used": float(share[of_group].mean()),
                "records_mean": None
                if result.source.party_sizes is None
                else float(result.source.party_sizes[of_group].mean()),
            }
        )
    return groups


def _sums(result: RunResult) -> bytes:
    """One row per seed, batch, query and class: the noisy sum of what all records say, in votes. It is what was
    released."""

    def columns(seed: SeedResult) -> Summary | None:
        made = seed.labelling
        if made.cells is None:
            return None
        second = None if made.again is None else made.again.cells
        cells = np.stack([made.cells, *([] if second is None else [second])])
        batch, query, label = (each.ravel() for each in np.indices(cells.shape))
        return {
            "batch": batch.astype(np.int32),
            "query": query.astype(np.int64),
            "class": label.astype(np.int32),
            "votes": cells.ravel() / result.study.units,
        }

    return _parquet(result, columns)


def _pool(result: RunResult) -> bytes:
    """One row per seed and pool record, and per finding where there are several: the probability of each class, the
    likeliest, and the true label (-1 unknown). Made of the released sums."""

    def columns(seed: SeedResult) -> Summary | None:
        if seed.soft is None:
            return None
        chances = np.concatenate([each.probabilities for each in seed.soft.each])
        findings, records = len(seed.soft.findings), len(seed.soft.probabilities)
        return {
            "record": np.arange(len(chances), dtype=np.int64) % records,
            **({"finding": (np.arange(len(chances)) // records).astype(np.int32)} if findings else {}),
            "label": chances.argmax(axis=1).astype(np.int32),
            "true_label": _truth(result, len(chances)),
            **{f"probability_{label}": chances[:, label] for label in range(chances.shape[1])},
        }

    return _parquet(result, columns)


def _queries(result: RunResult) -> bytes:
    """One row per seed and query: batch (-1 not asked), label (-1 abstained, -2 not asked), true label (-1 unknown)."""

    def columns(seed: SeedResult) -> Summary:
        labels = seed.labelling.labels
        return {
            "query": np.arange(len(labels), dtype=np.int64),
            "batch": seed.labelling.batch_of.astype(np.int32),
            "label": labels.astype(np.int32),
            "answered": labels >= 0,
            "true_label": _truth(result, len(labels)),
        }

    return _parquet(result, columns)


def _truth(result: RunResult, count: int) -> Int32[ndarray, " count"]:
    known = result.source.truth
    return (np.full(count, -1) if known is None else known.T.ravel()).astype(np.int32)


def _parquet(result: RunResult, columns: Callable[[SeedResult], Summary | None]) -> bytes:
    """The columns of every seed that has them, each row with its seed."""
    tables = []
    for seed in result.seeds:
        if (found := columns(seed)) is not None:
            rows = len(next(iter(found.values())))
            tables.append(pa.table({"seed": np.full(rows, seed.seed, dtype=np.int64), **found}))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.concat_tables(tables) if tables else pa.table({}), sink, compression="zstd")
    return bytes(sink.getvalue())


def _parties(result: RunResult) -> str:
    study, filters = result.study, result.study.budgets
    spent = result.seeds[0].labelling.spent
    columns: dict[str, Any] = {  # Any: one array per column
        "party": [seat.party for seat in study.roster],
        "epsilon": result.budgets.epsilon,
        "delta": result.budgets.delta,
        "weight": study.weights,
        "rate": study.rates,
        "order": filters.order,
        "cap": filters.spend(filters.cap),
        "spent": filters.spend(spent),
        "epsilon_guaranteed": filters.epsilon_guaranteed,
        "epsilon_spent": filters.epsilon_of(spent),
        "share_of_budget_used": filters.share(spent),
    }
    if result.source.party_sizes is not None:
        columns["records"] = result.source.party_sizes
    if result.teacher_accuracy is not None and not study.votes.pooled:
        columns[f"{MARK}teacher_accuracy"] = result.teacher_accuracy.mean(axis=1)
    if result.baselines.alone is not None:
        own = np.full(len(study.roster), np.nan)
        own[measured_parties(len(own))] = result.baselines.alone
        columns[f"{MARK}alone_accuracy"] = own
        student, _ = _over(result.students)
        if student is not None:
            columns[f"{MARK}gain"] = student - own
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(list(column) for column in columns.values()), strict=True))
    return buffer.getvalue()


@dataclass(frozen=True)
class _Files:
    """What only one kind of votes has: figures of the summary, a mechanism, and tables."""

    figures: Callable[[RunResult], Summary | None]
    mechanism: Callable[[Study], Summary | None]
    tables: Mapping[str, Callable[[RunResult], bytes]]


_FILES: dict[type[Votes], _Files] = {
    TeacherVotes: _Files(
        lambda result: None,
        lambda study: {"name": study.mechanism.name, **study.mechanism.values},
        {"queries.parquet": _queries},
    ),
    UnitSums: _Files(_record_votes, lambda study: None, {"sums.parquet": _sums, "pool.parquet": _pool}),
}
