"""What every epsilon of `ask` means, in words: who is protected against whom, and what no epsilon covers.

Figures of `ask`: accuracy before and after, overall and by class.

What `ask` writes: summary.json, queriers.csv, parties.csv, labels.parquet, config.toml and env.json.

report.html of `ask`: one self-contained page; all its numbers come from the summary.
"""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any  # the values of a JSON object

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Bool, Float64, Int64
from markupsafe import Markup
from matplotlib.axes import Axes
from numpy import ndarray

from protocols.budgets.accountant import accountant
from protocols.claims.coverage import ANY_VOTES, ONE_SERVER, OWN_RECORDS, OWN_TRAINING, SEVERAL, SEVERAL_COST, SIMULATED
from protocols.claims.protection import Protection
from protocols.claims.strength import Figure, strength
from protocols.claims.who_sees import guardian_sees, not_protected_from
from protocols.labelling.schedule import STOP_MEANINGS
from protocols.plural import at_most
from protocols.study.protection import protection_of
from protocols.study.study import ADJACENCY, Study
from runtime.files import write_atomically
from runtime.page import document, verdict
from runtime.templates import templates
from simulations.ask.settings import AskSettings, write_ask_config
from simulations.ask.stages import AskResult, per_class
from simulations.plots.style import COLOURS, Drawing, inline_svg, light_grid, new_figure, percent_axis, style
from simulations.results.files import environment
from simulations.results.text import count, interval, parties_words, percent, seeds_text
from simulations.stages.label import mean_and_interval


@dataclass(frozen=True)
class Statement:
    """Who is protected against whom, and by what; epsilon and delta are None where cryptography, or nothing,
    protects.
    """

    protected: str
    against: str
    epsilon: float | None
    delta: float | None
    words: str


def statements(study: Study, *, queriers: int) -> list[Statement]:
    """Every statement of a run; those about differential privacy give the largest cap, at the largest delta."""
    guaranteed = study.budgets.epsilon_guaranteed
    epsilon, delta = float(guaranteed.max()), max(seat.delta for seat in study.roster)
    one = "one record of an answering party" if study.unit == "record" else "all data of an answering party"
    everyone = "the querying party" if queriers == 1 else f"all {queriers} querying parties together, colluding"
    cap = (
        "The cap of its own party: one ledger per party holds every query of every querying party, and stops before "
        f"the cap. Worst case, label only; adjacency {ADJACENCY}. Each party's own cap is in parties.csv; this is "
        "the largest."
    )
    return [
        Statement(
            one, f"{everyone}, and anyone who gets the labels or their models from them: they see labels and which "
            "queries were refused", epsilon, delta, cap,
        ),
        Statement(
            one, "other answering parties that collude with them and show them their own votes", epsilon, delta,
            ANY_VOTES,
        ),
        Statement(
            one, "one of the two servers (a querying party, or the guardian) that runs the software unchanged, even if "
            "it subtracts its own noise from what it sees",
            epsilon, delta, f"{ONE_SERVER} Not protected against: {not_protected_from(protection_in_ask(study))}",
        ),
        Statement(
            "a person known to several answering parties", "anybody", None, None, f"{SEVERAL} {SEVERAL_COST}",
        ),
        Statement(
            "a querying party's unlabelled records, and the answering parties' models", "each other and the guardian",
            None, None, f"{OWN_RECORDS} The guardian sees {guardian_sees(protection_in_ask(study))}.",
        ),
        Statement(
            "a querying party's own labelled records", "whoever gets its retrained model", None, None, OWN_TRAINING,
        ),
    ]  # fmt: skip


def protection_in_ask(study: Study) -> Protection:
    """What sentences about such a run depend on: a querying party takes the coordinator's place."""
    return replace(protection_of(study), level="hidden_queries", asks="the querying party")


def rule_words(study: Study, *, queriers: int) -> str:
    """The public rule by which querying parties share what the budgets afford."""
    whose = "the querying party asks" if queriers == 1 else f"each of the {queriers} querying parties, in turn, asks"
    ends = (
        "The first party whose cap does not fit a whole round ends the study"
        if study.votes.stop == "first-exhausted"
        else "A party whose cap does not fit a whole round stops answering, and the others go on"
    )
    refused = (
        "What refused queries save pays for further rounds"
        if study.budgets.settles
        else "Refused queries cost as much as answered ones"
    )
    return (
        f"In every round {whose} the same number of queries, {study.batch_limit} at most, fewer if the worst case "
        f"of the whole round would not fit a cap. {ends}. {refused}. A querying party does not answer itself. Sizes of "
        "rounds depend on public ledgers only."
    )


# Querying parties with a row; the rest is in summary.json.
_MOST_ROWS = 24
# Querying parties with a panel of classes.
_MOST_PANELS = 6
_MOST_CLASSES = 40


def ask_drawings(figures: Summary) -> list[Drawing]:
    """The figures of a run, in the order of a report; figures: as returned by `ask_summary`."""
    drawn = [before_and_after(figures)]
    if len(figures["queriers"][0]["classes"]) <= _MOST_CLASSES:
        drawn.append(by_class(figures))
    return drawn


def before_and_after(figures: Summary) -> Drawing:
    """Each querying party's accuracy on test data before and after: on all classes, and on those it lacks."""
    queriers = figures["queriers"][:_MOST_ROWS]
    note = _note(figures)
    with style():
        figure = new_figure(height=1.3 + 0.62 * len(queriers))
        axes = figure.add_subplot()
        rows = np.arange(len(queriers))[::-1].astype(float)
        for row, querier in zip(rows.tolist(), queriers, strict=True):
            _arrow(axes, row + 0.15, querier["before"], querier["after"], querier["after_ci95"], COLOURS["blue"])
            if querier["before_lacked"] is not None:
                before, after, half = (querier[k] for k in ("before_lacked", "after_lacked", "after_lacked_ci95"))
                _arrow(axes, row - 0.2, before, after, half, COLOURS["vermillion"])
        axes.set_yticks(rows, [f"{q['party']}\n{q['model'].replace('_', ' ')}" for q in queriers])
        axes.set_ylim(-0.6, len(queriers) - 0.4)
        axes.set_xlim(0, 1)
        percent_axis(axes.xaxis)
        axes.set_xlabel(f"test records that are right ({note})")
        axes.set_title("Accuracy before and after")
        for colour, words in ((COLOURS["blue"], "all classes"), (COLOURS["vermillion"], "classes it lacks")):
            axes.plot([], [], color=colour, marker="o", label=words)
        axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2)
        light_grid(axes, "x")
    spoken = "; ".join(f"{q['party']} from {percent(q['before'])} to {percent(q['after'])}" for q in queriers)
    return Drawing(
        "before_after",
        "Each querying party's own model on test data, before it asked (ring) and after it was retrained with the "
        f"labels it was given (dot). {note[0].upper()}{note[1:]}. A party lacks a class of which it holds less than "
        "half of an equal share of its records.",
        f"Accuracy before and after: {spoken}.",
        figure,
    )


def by_class(figures: Summary) -> Drawing:
    """Accuracy on each class before and after, above the party's own records of that class."""
    queriers = figures["queriers"][:_MOST_PANELS]
    with style():
        figure = new_figure(height=0.5 + 1.75 * len(queriers))
        panels = np.atleast_1d(figure.subplots(len(queriers), 1))
        for axes, querier in zip(panels.tolist(), queriers, strict=True):
            classes = querier["classes"]
            place = np.arange(len(classes))
            for key, shift, colour in (("before", -0.2, "grey"), ("after", 0.2, "blue")):
                heights = [one[key] or 0.0 for one in classes]
                halves = [one["after_ci95"] for one in classes if key == "after"]
                errors = _reach(heights, halves) if any(half is not None for half in halves) else None
                axes.bar(
                    place + shift, heights, width=0.38, color=COLOURS[colour], yerr=errors, label=key,
                    error_kw={"elinewidth": 0.9, "capsize": 2},
                )  # fmt: skip
            names = [f"{one['class']}\n{one['own_records']} own\n+{one['labels_given']:.0f}" for one in classes]
            axes.set_xticks(place, names, fontsize=7)
            axes.set_ylim(0, 1.05)
            percent_axis(axes.yaxis)
            axes.set_title(f"{querier['party']}, {querier['model'].replace('_', ' ')}")
            light_grid(axes, "y")
        panels[0].legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2)
    return Drawing(
        "by_class",
        "The same by class. Under each class: how many labelled records of that class the party has itself, and "
        f"how many such labels it was given. {_note(figures).capitalize()}.",
        "Accuracy by class before and after, one panel per querying party; the figures are in queriers.csv.",
        figure,
    )


def _arrow(axes: Axes, row: float, before: float, after: float, half: float | None, colour: str) -> None:
    axes.plot([before, after], [row, row], color=colour, linewidth=1.2)
    axes.plot(before, row, marker="o", markerfacecolor="white", markeredgecolor=colour)
    reach = None if half is None else _reach([after], [half])
    axes.errorbar(after, row, xerr=reach, fmt="o", color=colour, ecolor=COLOURS["ink"], elinewidth=1.0, capsize=3)


def _reach(values: list[float], halves: list[float | None]) -> Float64[ndarray, "sides bars"]:
    """How far whiskers extend down and up; shares stay within 0 and 1."""
    half = np.array([0.0 if one is None else one for one in halves])
    return np.stack([np.minimum(half, values), np.minimum(half, 1 - np.array(values))])


def _note(figures: Summary) -> str:
    seeds = len(figures["seeds"])
    return f"whiskers: 95 % interval over {seeds} seeds" if seeds > 1 else "one seed: no interval"


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
        "stop_rule": study.votes.stop,
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


_MOST_GROUPS = 300


def write_ask_report(figures: Summary, settings: AskSettings, drawn: Sequence[Drawing], out: Path) -> Path:
    """Writes out/report.html and returns its path. Raises StorageFailed; the file is whole or absent."""
    path = out / "report.html"
    write_atomically(path, render_ask_report(figures, settings, drawn))
    return path


def render_ask_report(figures: Summary, settings: AskSettings, drawn: Sequence[Drawing]) -> str:
    """The page as HTML. figures: what `ask_summary` gives; drawn: what `ask_drawings` gives."""
    pages = templates(
        "simulations.report", autoescape=True, count=count, percent=percent, at_most=at_most, spread=_spread
    )
    seeds = len(figures["seeds"])
    body = pages.get_template("ask.html.j2").render(
        verdict=Markup(_verdict(figures)),
        figures=figures,
        simulated=SIMULATED,
        seeds=seeds,
        stop=STOP_MEANINGS[figures["stop"]],
        interval=lambda half, points: interval(half, seeds=seeds, points=points),
        groups=figures["groups"][:_MOST_GROUPS],
        drawings=[{"svg": Markup(inline_svg(one)), "caption": one.caption} for one in drawn],
        command=ask_command_line(settings),
        config=write_ask_config(settings),
        environment=environment(),
    )
    return document(
        title=f"{parties_words(figures['parties'])}, {len(figures['queriers'])} of them ask, {figures['dataset']}",
        kind="report of simulated confidential queries",
        body=body,
        footer=pages.get_template("ask_footer.html.j2").render(figures=figures),
    )


def _verdict(figures: Summary) -> str:
    """What asking brought, before anything else is said."""
    epsilon, delta = figures["epsilon_guaranteed_max"], max(group["delta"] for group in figures["groups"])
    change, half = figures["after"] - figures["before"], figures["after_ci95"]
    alone, together = percent(figures["before"]), percent(figures["after"])
    certain = half is not None and abs(change) > half
    return verdict(
        f"One party alone {alone}, with the answers of the others {together}, on the same test records.",
        [
            (
                "Is that more?",
                "Yes, by more than chance explains." if certain and change > 0
                else "No: it is less." if certain
                else "One seed cannot tell: run several (--seeds)." if half is None
                else "The interval includes no change: it may be chance.",
            ),
            (
                "What it cost those who answered:",
                f"ε of at most {at_most(epsilon)} each. {strength(Figure(epsilon, delta))}",
            ),
        ],
        tone="good" if certain and change > 0 else "plain",
    )  # fmt: skip


def ask_command_line(settings: AskSettings) -> str:
    """The command that repeats a run: every setting that is not the default."""
    words = ["conclave-simulate", "ask"]
    for name, field in AskSettings.model_fields.items():
        value = getattr(settings, name)
        if value == field.default or value is None:
            continue
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        elif name == "seeds":
            words += [flag, seeds_text(value)]
        else:
            words += [flag, ",".join(value) if isinstance(value, tuple) else str(value)]
    return shlex.join(words)


def _spread(mean: float | None, half: float | None) -> str:
    """A share with its interval."""
    if mean is None:
        return "none"
    return percent(mean) if half is None else f"{percent(mean)} ± {100 * half:.1f}"
