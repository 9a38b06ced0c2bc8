"""What `ask` writes: summary.json, queriers.csv, parties.csv, labels.parquet, config.toml and env.json."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any  # the values of a JSON object

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Bool, Float64, Int64
from numpy import ndarray

from protocols.budgets.accountant import accountant
from protocols.study.study import ADJACENCY
from runtime.files import write_atomically
from simulations.ask.retraining import per_class
from simulations.ask.settings import write_ask_config
from simulations.ask.stages import AskResult
from simulations.ask.text import rule_words, statements
from simulations.results.files import environment
from simulations.stages.label import mean_and_interval

Summary = dict[str, Any]  # Any: JSON

# A party lacks a class if it has less than this fraction of an equal share of its records in it.
LACKS = 0.5
# Computed from votes, models or records, not from released labels: no budget pays for it.
NOT_FOR_RELEASE = (
    "plurality_accuracy",
    "models[].agreement",
    "models[].test_accuracy_mean",
    "with_true_labels",
    "queriers[].with_true_labels",
)


def ask_summary(result: AskResult) -> Summary:
    """The figures of a run: means over the seeds, with `_ci95` the half-width of their 95 % interval (Student's t)."""
    inputs = result.inputs
    settings, study, who = inputs.settings, inputs.study, inputs.who
    asked = result.asked
    given = np.array([(one.labels >= 0).sum() for one in asked], dtype=float)
    queriers = [_querier(result, place) for place in range(len(who.queriers))]
    right = _label_accuracy(result, slice(None))
    tests = inputs.dataset.test_labels
    after = (result.retrained.after == tests).mean(axis=(1, 2))
    before = float((result.cast.own_on_test == tests).mean())
    truth = result.retrained.with_truth
    return {
        "not_for_release": list(NOT_FOR_RELEASE),
        "parties": settings.parties,
        "dataset": settings.dataset,
        "skew": settings.skew,
        "unlabelled": settings.unlabelled,
        "asked": float(np.mean([sum(turn.asked for turn in one.turns) for one in asked])),
        **_mean("answered", given),
        **_mean("label_accuracy", right),
        "before": before,
        **_mean("after", after),
        **_mean("gain", after - before),
        "with_true_labels": None if truth is None else float((truth == tests).mean()),
        "plurality_accuracy": float((result.plurality == result.truth).mean()),
        "models": _models(result),
        "queriers": queriers,
        "rule": rule_words(study, queriers=len(who.queriers)),
        "rounds": float(np.mean([1 + max((turn.number for turn in one.turns), default=-1) for one in asked])),
        "stop": asked[0].stop.reason,
        "stop_rule": study.stop,
        "statements": [asdict(one) for one in statements(study, queriers=len(who.queriers))],
        "epsilon_guaranteed_max": float(study.budgets.epsilon_guaranteed.max()),
        "groups": _groups(result),
        "accounting": accountant(study.accountant_name).statement,
        "accountant": study.accountant_name,
        "unit": study.unit,
        "adjacency": ADJACENCY,
        "view": study.view,
        "confidentiality": {"level": study.confidentiality.name, "units": study.confidentiality.units},
        "mechanism": {"name": study.mechanism.name, **study.mechanism.values},
        "weights": settings.weights,
        "seeds": list(settings.seeds),
        "study_digest": study.digest.hex(),
    }


def write_ask_results(result: AskResult, out: Path) -> Summary:
    """Writes the data files of a run into `out`, each whole or not at all; returns the summary."""
    figures = ask_summary(result)
    write_atomically(out / "config.toml", write_ask_config(result.inputs.settings))
    write_atomically(out / "env.json", json.dumps(environment(), indent=2) + "\n")
    write_atomically(out / "parties.csv", _parties(result))
    write_atomically(out / "queriers.csv", _queriers(figures))
    write_atomically(out / "labels.parquet", _labels(result))
    write_atomically(out / "summary.json", json.dumps(figures, indent=2) + "\n")
    return figures


def own_records(result: AskResult, place: int) -> Int64[ndarray, " classes"]:
    """How many labelled records of each class a querying party has itself."""
    dataset, who = result.inputs.dataset, result.inputs.who
    own = dataset.private_labels[who.shards[who.queriers[place]]]
    return np.bincount(own, minlength=dataset.classes)


def lacking(result: AskResult, place: int) -> Bool[ndarray, " classes"]:
    """The classes of which a querying party has less than half of an equal share."""
    own = own_records(result, place)
    return own < LACKS * own.sum() / len(own)


def _mean(name: str, values: Float64[ndarray, " seeds"]) -> Summary:
    """The mean of the known values over the seeds, and the half-width of its interval; None if there are none."""
    known = values[~np.isnan(values)]
    mean, half = mean_and_interval(known) if len(known) else (None, None)
    return {name: mean, f"{name}_ci95": half}


def _label_accuracy(result: AskResult, places: int | slice) -> Float64[ndarray, " seeds"]:
    """The share of released labels that are right; NaN for a seed without any."""
    shares = []
    for one in result.asked:
        labels, truth = one.labels[places], result.truth[places]
        shares.append((labels == truth)[labels >= 0].mean() if (labels >= 0).any() else np.nan)
    return np.array(shares)


def _querier(result: AskResult, place: int) -> Summary:
    inputs, retrained = result.inputs, result.retrained
    dataset, who = inputs.dataset, inputs.who
    party = int(who.queriers[place])
    tests = dataset.test_labels
    own, lacks = own_records(result, place), lacking(result, place)
    before = result.cast.own_on_test[place]
    after = retrained.after[:, place]
    given = np.array([(one.labels[place] >= 0).sum() for one in result.asked], dtype=float)
    of_lacking = lacks[tests]
    names = [name for name, lack in zip(dataset.class_names, lacks, strict=True) if lack]
    accuracy = (after == tests).mean(axis=1)
    truth = retrained.with_truth
    figures: Summary = {
        "party": inputs.study.roster[party].party,
        "model": who.kinds[party],
        "records": int(own.sum()),
        "asked": float(
            np.mean([sum(turn.asked for turn in one.turns if turn.querier == place) for one in result.asked])
        ),
        **_mean("answered", given),
        **_mean("label_accuracy", _label_accuracy(result, place)),
        "before": float((before == tests).mean()),
        **_mean("after", accuracy),
        **_mean("gain", accuracy - (before == tests).mean()),
        "with_true_labels": None if truth is None else float((truth[:, place] == tests).mean()),
        "lacks": names,
    }
    for name, chosen in (("lacked", of_lacking), ("held", ~of_lacking)):
        known = chosen.any()
        figures[f"before_{name}"] = float((before == tests)[chosen].mean()) if known else None
        rows = (after == tests)[:, chosen].mean(axis=1) if known else np.full(len(after), np.nan)
        figures |= _mean(f"after_{name}", rows)
    classes_before = per_class(before, tests, classes=dataset.classes)
    classes_after = per_class(after, tests, classes=dataset.classes)
    figures["classes"] = [
        {
            "class": name,
            "own_records": int(own[label]),
            "labels_given": float(np.mean([(one.labels[place] == label).sum() for one in result.asked])),
            "before": None if np.isnan(classes_before[label]) else float(classes_before[label]),
            **_mean("after", classes_after[:, label]),
        }
        for label, name in enumerate(dataset.class_names)
    ]
    return figures


def _models(result: AskResult) -> list[Summary]:
    who = result.inputs.who
    return [
        {
            "kind": kind,
            "parties": len(who.of_kind(kind)),
            "agreement": result.cast.agreement[kind],
            "test_accuracy_mean": float(result.cast.test_accuracy[who.of_kind(kind)].mean()),
        }
        for kind in dict.fromkeys(who.kinds)
    ]


def _groups(result: AskResult) -> list[Summary]:
    """One entry per distinct budget and weight: what may be published, and what was used."""
    study, filters = result.inputs.study, result.inputs.study.budgets
    spent = np.array([one.spent for one in result.asked])
    reading = np.max([filters.epsilon_of(row) for row in spent], axis=0)
    share = filters.share(spent).mean(axis=0)
    budgets = result.inputs.budgets
    distinct, member = np.unique(np.stack([budgets.epsilon, budgets.delta, study.weights]), axis=1, return_inverse=True)
    return [
        {
            "size": int((member == index).sum()),
            "budget": float(epsilon),
            "delta": float(delta),
            "weight": float(weight),
            "order": float(filters.order[member == index][0]),
            "epsilon_guaranteed": float(filters.epsilon_guaranteed[member == index].max()),
            "epsilon_spent": float(reading[member == index].max()),
            "epsilon_spent_is": "an operator's reading of the ledger, not a guarantee",
            "share_of_budget_used": float(share[member == index].mean()),
        }
        for index, (epsilon, delta, weight) in enumerate(distinct.T)
    ]


def _parties(result: AskResult) -> str:
    """One row per party: its budget, weight and ledger after the first seed, and whether it asks."""
    inputs, filters = result.inputs, result.inputs.study.budgets
    spent = result.asked[0].spent
    columns: dict[str, Any] = {  # Any: one array per column
        "party": [seat.party for seat in inputs.study.roster],
        "model": inputs.who.kinds,
        "asks": np.isin(np.arange(len(spent)), inputs.who.queriers),
        "records": [len(shard) for shard in inputs.who.shards],
        "epsilon": inputs.budgets.epsilon,
        "delta": inputs.budgets.delta,
        "weight": inputs.study.weights,
        "order": filters.order,
        "cap": filters.spend(filters.cap),
        "spent": filters.spend(spent),
        "epsilon_guaranteed": filters.epsilon_guaranteed,
        "epsilon_spent": filters.epsilon_of(spent),
        "share_of_budget_used": filters.share(spent),
    }
    return _table(list(columns), [list(row) for row in zip(*(list(c) for c in columns.values()), strict=True)])


def _queriers(figures: Summary) -> str:
    """One row per querying party and class."""
    columns = ["party", "model", "class", "own_records", "labels_given", "before", "after", "after_ci95"]
    rows = [
        [{**querier, **one}[name] for name in columns] for querier in figures["queriers"] for one in querier["classes"]
    ]
    return _table(columns, rows)


def _labels(result: AskResult) -> bytes:
    """One row per seed, querying party and record: label (-1 refused, -2 not asked), true label."""
    names = [result.inputs.study.roster[querier].party for querier in result.inputs.who.queriers.tolist()]
    tables = []
    for seed, one in zip(result.inputs.settings.seeds, result.asked, strict=True):
        for place, name in enumerate(names):
            records = one.labels.shape[1]
            tables.append(
                pa.table(
                    {
                        "seed": np.full(records, seed, dtype=np.int64),
                        "party": [name] * records,
                        "record": np.arange(records, dtype=np.int64),
                        "label": one.labels[place].astype(np.int32),
                        "true_label": result.truth[place].astype(np.int32),
                    }
                )
            )
    sink = pa.BufferOutputStream()
    pq.write_table(pa.concat_tables(tables), sink, compression="zstd")
    return bytes(sink.getvalue())


def _table(columns: list[str], rows: list[list[object]]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return buffer.getvalue()
