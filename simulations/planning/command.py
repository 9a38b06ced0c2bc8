"""`conclave-simulate plan --optimise`: its flags, what it prints and what it writes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar  # Any: values of flags, as click gives them, and of a JSON object

import click

from coordinator.queries import questions_of_a_batch
from protocols.errors import InvalidInput
from protocols.plural import counted
from protocols.study.chosen import GIVEN
from runtime.files import write_atomically
from simulations.options import given_settings, settings_from, worded_settings
from simulations.planning.objective import (
    CONCENTRATION_OF_MORE,
    CONCENTRATION_OF_TWO,
    OBJECTIVES,
    default_concentration,
)

if TYPE_CHECKING:
    from protocols.study.votes import Votes
    from simulations.planning.grid import Optimum
    from simulations.planning.predict import PlannedVotes, Planner, Prediction
    from simulations.progress import Reporter
    from simulations.setup.experiment import Experiment

F = TypeVar("F", bound=Callable[..., object])

# The size of the pool without --queries: that of the embedded data set.
_POOL = 10_000
_FLAGS = [
    click.option("--optimise", is_flag=True, help="Choose noise, threshold, pool and batch size; reads no data."),
    click.option("--accuracy", type=float, help="--optimise: assumed mean accuracy of the teachers; --votes-by record: "
                 "assumed accuracy of the best possible model [0.8 for tables, 0.98 for images]."),
    click.option("--concentration", type=float, help="--optimise: how similar queries are in difficulty: "
                 f"small, some are easy and others hard; large, all alike [{CONCENTRATION_OF_MORE:g}; two classes: "
                 f"{CONCENTRATION_OF_TWO:g}]."),
    click.option("--pilot", type=click.Path(), help="--optimise: PUBLIC votes (.npy) instead of --accuracy."),
    click.option("--pilot-kind", type=click.Choice(["ids", "counts"]), help="--optimise: --votes-kind of --pilot."),
    click.option("--pilot-labels", help="--optimise: true labels of --pilot, like --labels [its plurality]."),
    click.option("--objective", type=click.Choice(list(OBJECTIVES)), help="--optimise: what to maximise: bits of the "
                 "released labels, right labels beyond guessing, or labels [information]."),
    click.option("--min-accuracy", type=float, help="--optimise: least expected accuracy of the released labels "
                 "[the teachers' mean accuracy]."),
    click.option("--out", type=click.Path(), help="--optimise: folder for the frontier as CSV, JSON and a figure."),
]  # fmt: skip
_NAMES = tuple("accuracy concentration pilot pilot_kind pilot_labels objective min_accuracy out".split())
# Settings that --optimise cannot plan with other values.
_PLANNED = {
    "view": "label",
    "stop": "first-exhausted",
    "individualization": "weighting",
    "dropout": 0.0,
    "votes": None,
    "labels": None,
}
_COLUMNS = "answer_rate queries asked answered accuracy value chosen".split()


def optimise_flags(function: F) -> F:
    """Adds the flags of --optimise."""
    for flag in reversed(_FLAGS):
        function = flag(function)
    return function


def check_idle(flags: dict[str, Any], *, votes_by: type[Votes]) -> None:
    """Raises InvalidInput for a flag of --optimise that was given without it; a plan of record votes has --accuracy."""
    from simulations.setup.experiment import VOTERS

    for name in _NAMES:
        if flags[name] is not None and name not in VOTERS[votes_by].rehearsed:
            raise InvalidInput(f"--{name.replace('_', '-')} has no effect without --optimise; leave one of them out")


def run_optimise(flags: dict[str, Any], reporter: Reporter) -> None:
    """Finds, prints and writes the best settings. Raises InvalidInput before anything is computed."""
    from simulations.planning.grid import optimise_each
    from simulations.planning.predict import Planner

    settings = _settings(flags)
    votes = _votes(flags, settings)
    pool = settings.queries or _POOL
    settings = settings.changed(classes=votes.classes, queries=pool)
    low = votes.accuracy if flags["min_accuracy"] is None else float(flags["min_accuracy"])
    if not 0 <= low <= 1:
        raise InvalidInput(f"min_accuracy is {low:g}; allowed: in [0, 1]")
    out = None if flags["out"] is None else Path(flags["out"])
    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InvalidInput(f"--out {out} is not empty; allowed: a new folder")
    planner = Planner.of(settings, votes, OBJECTIVES[flags["objective"] or "information"], pool=pool)
    given = {**worded_settings(flags), **given_settings(flags)}
    with reporter.stage("optimise") as stage:
        first = settings.mechanism if "mechanism" in given else None
        optima, refused = optimise_each(planner, min_accuracy=low, first=first)
        found = optima[0]
        stage.result = f"{found.chosen.answered:.1f} labels of accuracy {found.chosen.accuracy:.3f} expected"
    document = _document(planner, optima, min_accuracy=low, command=run_line(given, planner, found))
    document["not_compared"] = refused
    if out is not None:
        _write(optima, document, out)
    if flags["as_json"]:
        click.echo(json.dumps(document, indent=2))
    else:
        _print(planner, optima, document)


def run_line(given: dict[str, object], planner: Planner, found: Optimum) -> str:
    """The command that runs the chosen settings: everything that was given, then what was chosen."""
    from simulations.results import text

    chosen = found.chosen
    values = {key: value for key, value in given.items() if key not in ("queries", "answer_rate", "seeds")}
    values |= {"parties": planner.settings.parties, "budgets": planner.settings.budgets, "mechanism": found.mechanism}
    values |= dict(chosen.noise.values)
    values |= {"answer_rate": chosen.answer_rate, "queries": chosen.queries}
    if planner.settings.questions != GIVEN:
        # They are chosen from the whole pool, and the budgets end the study.
        values["queries"] = given.get("queries")
        values = {key: value for key, value in values.items() if value is not None}
    return text.run_line({key: f"{each:.12g}" if isinstance(each, float) else each for key, each in values.items()})


def _settings(flags: dict[str, Any]) -> Experiment:
    """The settings, checked to be of a kind that can be planned. Raises InvalidInput."""
    from simulations.planning.grid import planned_mechanisms

    settings, planned = settings_from(flags), planned_mechanisms()
    if settings.mechanism not in planned:
        raise InvalidInput(
            f"--mechanism is {settings.mechanism!r}; allowed with --optimise: {', '.join(planned)}; the better if none"
        )
    for name, value in settings.parameters.items():
        if any(name in parameters for parameters in planned.values()):
            raise InvalidInput(
                f"--{name.replace('_', '-')} is {value:g}, but --optimise chooses it; leave one of them out"
            )
    for name, only in _PLANNED.items():
        if (value := getattr(settings, name)) != only:
            allowed = "none; public votes go to --pilot" if only is None else repr(only)
            raise InvalidInput(f"--{name.replace('_', '-')} is {value!r}; allowed with --optimise: {allowed}")
    return settings


def _votes(flags: dict[str, Any], settings: Experiment) -> PlannedVotes:
    """The votes that the flags describe."""
    from simulations.planning.predict import AssumedVotes, PilotVotes
    from simulations.stages.stored_votes import read_labels, read_votes

    if (flags["accuracy"] is None) == (flags["pilot"] is None):
        raise InvalidInput("--optimise needs either --accuracy (the teachers', assumed) or --pilot (public votes)")
    if flags["pilot"] is None:
        idle = [name for name in ("pilot_kind", "pilot_labels") if flags[name] is not None]
        if idle:
            raise InvalidInput(f"--{idle[0].replace('_', '-')} has no effect without --pilot; leave it out")
        if settings.classes is None:
            raise InvalidInput("--optimise reads no data set, so --accuracy needs --classes, the number of classes")
        given = flags["concentration"]
        spread = default_concentration(settings.classes) if given is None else float(given)
        return AssumedVotes(classes=settings.classes, accuracy=float(flags["accuracy"]), concentration=spread)
    if flags["concentration"] is not None:
        raise InvalidInput("--concentration has no effect with --pilot, whose votes show it; leave one of them out")
    stored, _ = read_votes(Path(flags["pilot"]), kind=flags["pilot_kind"], classes=settings.classes, parties=None)
    truth = None
    if flags["pilot_labels"] is not None:
        truth = read_labels(flags["pilot_labels"], queries=stored.queries, classes=stored.classes)
    return PilotVotes.of(stored, truth)


def _point(prediction: Prediction, mechanism: str, *, chosen: bool) -> dict[str, Any]:
    values = {name: value for name, value in asdict(prediction).items() if name != "noise"}
    return {"mechanism": mechanism, **dict(prediction.noise.values), **values, "chosen": chosen}


def _document(planner: Planner, optima: tuple[Optimum, ...], *, min_accuracy: float, command: str) -> dict[str, Any]:
    """The plan as JSON values."""
    from simulations.planning.plan import make_plan

    found, best = optima[0], max(optima, key=lambda each: each.chosen.value)
    return {
        "objective": planner.objective.name,
        "objective_statement": planner.objective.statement,
        "votes": planner.votes.statement,
        "min_accuracy": min_accuracy,
        "chosen": _point(found.chosen, found.mechanism, chosen=True),
        "compared": [_point(each.chosen, each.mechanism, chosen=each is found) for each in optima],
        "better": best.mechanism,
        "batch_size": found.batch_size,
        "batches": [asdict(cost) for cost in found.batches],
        "default_noise": _point(found.common, found.mechanism, chosen=False),
        "frontier": [
            _point(p, each.mechanism, chosen=each is found and p.noise == found.chosen.noise)
            for each in optima
            for p in each.frontier
        ],
        "command": command,
        "plan": make_plan(found.study, planner.budgets).to_json(),
    }


def _write(optima: tuple[Optimum, ...], document: dict[str, Any], out: Path) -> None:
    from simulations.planning.frontier_plot import frontier_figure
    from simulations.plots.style import write_figure

    sink, names = io.StringIO(), dict.fromkeys(name for each in optima for name, _ in each.chosen.noise.values)
    table = csv.DictWriter(sink, ["mechanism", *names, *_COLUMNS], lineterminator="\n")
    table.writeheader()
    table.writerows(document["frontier"])
    write_atomically(out / "frontier.csv", sink.getvalue())
    write_atomically(out / "frontier.json", json.dumps(document, indent=2) + "\n")
    drawn = frontier_figure(optima, min_accuracy=document["min_accuracy"])
    write_figure(drawn, out / "figures" / "frontier")


def _print(planner: Planner, optima: tuple[Optimum, ...], document: dict[str, Any]) -> None:
    from simulations.planning.grid import BATCH_LOSS, batches_asked
    from simulations.report.terminal import print_rows

    found, plan = optima[0], document["plan"]
    chosen = found.chosen
    click.echo(f"objective  {document['objective']}: {document['objective_statement']}")
    click.echo(f"votes      {document['votes']}")
    if planner.settings.questions != GIVEN:
        click.echo(f"questions  {planner.settings.questions}: what is assumed is assumed of those that are asked")
    if (size := questions_of_a_batch(planner.settings.questions)) is not None:
        rate = found.chosen.answered / found.chosen.asked
        batches = batches_asked(found.study, rate=rate, pool=found.chosen.queries, limit=size)
        click.echo(f"           chosen in {counted(batches, 'batch')} of up to {size}, which costs nothing more")
    click.echo(f"labels     of expected accuracy {document['min_accuracy']:.4g} or more")
    click.echo(
        f"accounting {plan['accounting']}, unit {plan['unit']}, view {plan['view']}, {plan['adjacency']}, "
        f"weights {planner.settings.weight_rule}\n"
    )
    for each in optima:
        rows: list[list[object]] = [
            [*(value for _, value in p.noise.values), p.asked, p.answered, p.accuracy, p.value, mark]
            for p, mark in (
                *((p, _mark(p, each, chosen=each is found)) for p in each.frontier),
                (each.common, "default noise"),
            )
        ]
        print_rows(
            f"{each.mechanism}: most labels at each accuracy, of a pool of {planner.pool}",
            [
                *(name.replace("_", " ") for name, _ in each.chosen.noise.values),
                *("asked", "labels", "accuracy", planner.objective.name, ""),
            ],
            rows,
        )
    print_rows(
        "Batch size: labels lost if batches cannot shrink, the number of batches then, and the number if the last ones "
        "shrink as in a run (which loses none)",
        ["batch", "labels lost", "batches", "batches, shrinking"],
        [[cost.size, cost.stranded, cost.batches, cost.batches_shrinking] for cost in found.batches],
    )
    most = min(group["answers_all"] for group in plan["groups"])
    click.echo(
        f"chosen     {chosen.answered:.1f} labels of accuracy {chosen.accuracy:.3f} expected from {chosen.asked:.0f} "
        f"queries asked of a pool of {chosen.queries}; never more than {min(most, chosen.queries)}"
    )
    click.echo(
        f"batch      {found.batch_size}: the largest listed that loses at most {BATCH_LOSS:.0%} of the labels without "
        "shrinking (batch_limit of a study file)"
    )
    for each in optima[1:]:
        click.echo(f"compared   {_compared(found, each, planner.objective.name)}")
    for name, reason in document["not_compared"].items():
        click.echo(f"left out   {name} is not compared: {reason}")
    click.echo(f"run it     {document['command']}")


def _mark(prediction: Prediction, optimum: Optimum, *, chosen: bool) -> str:
    """What a row of the table says of a point on the frontier."""
    if prediction.noise != optimum.chosen.noise:
        return ""
    return "chosen" if chosen else "its best"


def _compared(found: Optimum, other: Optimum, objective: str) -> str:
    """How the chosen mechanism compares with another one's best settings, in one line."""
    gain = found.chosen.value / other.chosen.value - 1
    better = "better" if gain >= 0 else "worse"
    return (
        f"{found.mechanism} is {better} than {other.mechanism} by {abs(gain):.1%} of {objective}: "
        f"{found.chosen.answered:.1f} labels of accuracy {found.chosen.accuracy:.3f}, and {other.chosen.answered:.1f} "
        f"of {other.chosen.accuracy:.3f} at {other.chosen.noise.words}"
    )
