"""The sub-command plan, and how plans are printed: of teachers' votes, of record votes, and of the best noise."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar  # Any: values of flags, as click gives them, and of a JSON object

import click

from coordinator.queries import questions_of_a_batch
from protocols.claims.coverage import often_asked
from protocols.errors import BudgetExceeded, InvalidInput
from protocols.plural import at_most, counted
from protocols.study.chosen import GIVEN
from protocols.study.votes import TeacherVotes, UnitSums, unit_sums
from protocols.votes import CONCENTRATION_OF_MORE, CONCENTRATION_OF_TWO, default_concentration
from runtime.files import write_atomically
from simulations.exits import EXIT_CODES
from simulations.options import (
    USUAL_VOTES,
    check_idle_analyses,
    given_settings,
    host_from,
    reporter_from,
    say_defaults,
    settings_flags,
    settings_from,
    study_words,
    worded_settings,
)
from simulations.planning.objective import OBJECTIVES

if TYPE_CHECKING:
    from protocols.study.plan import StudyPlan
    from protocols.study.votes import Votes
    from simulations.planning.grid import Optimum
    from simulations.planning.predict import PlannedVotes, Planner, Prediction
    from simulations.planning.records import Candidate, ForeseenAccuracies, Publics, Rehearsed
    from simulations.progress import Reporter
    from simulations.setup.experiment import Experiment
    from simulations.stages.inputs import Host

F = TypeVar("F", bound=Callable[..., object])

# The size of the pool without --queries: that of the embedded data set.
_POOL = 10_000
_FLAGS = [
    click.option("--optimise", is_flag=True, help="Choose noise, threshold and pool; reads no data."),
    click.option("--accuracy", type=float, help="--optimise: assumed mean accuracy of the teachers; --votes-by record: "
                 "assumed accuracy of the best possible model, were classes equally frequent [0.8 for tables, 0.98 for "
                 "images]."),
    click.option("--majority", type=float, help="--votes-by record: share of the most frequent class, from a register "
                 "or publication; never from private labels [as published of the data set; else classes are equal]."),
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


def _optimise_flags(function: F) -> F:
    """Adds the flags of --optimise."""
    for flag in reversed(_FLAGS):
        function = flag(function)
    return function


def _check_idle(flags: dict[str, Any], *, votes_by: type[Votes]) -> None:
    """Raises InvalidInput for a flag of --optimise that was given without it; a plan of record votes has --accuracy."""
    from simulations.setup.experiment import VOTERS

    for name in _NAMES:
        if flags[name] is not None and name not in VOTERS[votes_by].rehearsed:
            raise InvalidInput(f"--{name.replace('_', '-')} has no effect without --optimise; leave one of them out")


@click.command(name="plan", epilog=EXIT_CODES)
@study_words
@settings_flags
@_optimise_flags
@click.option(
    "--counts",
    metavar="FILE",
    help="With --votes-by record: counts.json of a count of patients: records and classes of each hospital.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
@click.option("--curve", help="Write delta as a function of epsilon, for each budget, to this JSON file.")
@click.option("--quiet", is_flag=True, help="No progress on standard error.")
def plan_flags(**flags: Any) -> None:
    """Show what a set of budgets affords, before anything is trained; with --optimise, how to spend them best.

    With --votes-by record: which public queries to choose, what to expect, and whether teachers would be better.

    \b
    Examples:
      conclave-simulate plan --parties 250 --budgets 1:0.34,2:0.43,3:0.23
      conclave-simulate plan --parties 4 --budgets 3 --mechanism gnmax --sigma 2
      conclave-simulate plan --optimise --parties 250 --classes 10 --budgets 2 --accuracy 0.85 --out plans/a
      conclave-simulate plan --votes-by record --dataset heart_disease --partition by-site --budgets 1
    """
    from simulations.planning.curve import check_curve

    settings, reporter = settings_from(flags), reporter_from(flags)
    if not flags["optimise"]:
        settings = chosen_votes(settings, flags, host_from(flags), reporter)
    check_idle_analyses(settings, given_settings(flags), votes=False)
    for name in ("counts", "majority"):
        if flags[name] is not None and settings.votes_by is not UnitSums:
            raise InvalidInput(f"--{name} is given, and teachers vote; allowed with --votes-by record")
    if not flags["optimise"]:
        _check_idle(flags, votes_by=settings.votes_by)
    if flags["curve"]:
        check_curve(settings, optimise=flags["optimise"])
    say_defaults(settings, reporter)
    _PLANS[settings.votes_by](flags, settings, reporter)


def chosen_votes(settings: Experiment, flags: dict[str, Any], host: Host, reporter: Reporter) -> Experiment:
    """The settings with the votes that public figures favour, where --votes-by usual asks for that."""
    from simulations.planning.advice import usual_votes
    from simulations.stages.inputs import read_inputs

    if {**worded_settings(flags), **given_settings(flags)}.get("votes_by") != USUAL_VOTES:
        return settings
    chosen = usual_votes(settings, read_inputs(settings, host=host, reporter=reporter))
    reporter.say(f"votes: by {chosen.votes_by.by} (usual)")
    return chosen


def _plan_of_teachers(flags: dict[str, Any], settings: Experiment, reporter: Reporter) -> None:
    from protocols.study.plan import make_plan
    from simulations.pipeline import study_of
    from simulations.planning.advice import must_afford_or_say, warnings_of
    from simulations.planning.curve import write_curves
    from simulations.stages.inputs import read_inputs

    if flags["optimise"]:
        _run_optimise(flags, reporter)
        return
    inputs = read_inputs(settings, host=host_from(flags), reporter=reporter)
    _, study = study_of(inputs)
    warnings = warnings_of(study, settings, inputs, reporter)
    plan = make_plan(study)
    print_plan(plan, warnings, as_json=flags["as_json"])
    if not flags["as_json"]:
        try:
            must_afford_or_say(study, settings, inputs)
        except BudgetExceeded as error:
            click.echo(str(error))
    if flags["curve"]:
        write_curves(study, Path(flags["curve"]))
        reporter.say(f"curves of delta(epsilon): {flags['curve']}")


def print_plan(plan: StudyPlan, warnings: Sequence[str], *, as_json: bool) -> None:
    """Prints the plan as a table of the groups whose budgets run out first, or as JSON, with the warnings."""
    if as_json:
        click.echo(json.dumps({**plan.to_json(), "warnings": list(warnings)}, indent=2))
        return
    _PRINT[type(plan.study.votes)](plan)


def _print_teacher_votes(plan: StudyPlan) -> None:
    from simulations.report.terminal import level_text, print_rows

    shown = sorted(plan.groups, key=lambda group: group.answers_all)[:40]
    columns = ["budget", "delta", "parties", "weight", "order", "epsilon guaranteed", "answers (all answered)",
               "answers (half answered)", "epsilon per answer"]  # fmt: skip
    rows: list[list[object]] = [
        [g.budget, g.delta, g.parties, g.weight, g.order or "none", g.epsilon_guaranteed, g.answers_all, g.answers_half,
         "none" if g.epsilon_per_answer is None else g.epsilon_per_answer]
        for g in shown
    ]  # fmt: skip
    terms = plan.to_json()
    print_rows(
        f"{terms['mechanism']}, {plan.study.mechanism.noise_words}, {terms['accounting']}, unit {terms['unit']}, "
        f"view {terms['view']}, replace-one, {level_text(terms['confidentiality'], terms['units'])}",
        columns,
        rows,
    )
    converted = [group.answers_renyi for group in plan.groups if group.answers_renyi is not None]
    if converted:
        click.echo(
            f"The number of queries is planned, and composed exactly. By a Rényi filter (--accountant label_only) the "
            f"first exhausted budget would end it after {min(converted)}."
        )
    click.echo(
        f"If the first exhausted budget ends the study, it releases {counted(plan.answers_all, 'label')} when every "
        f"query is answered, and about {plan.answers_half} when half are."
    )
    if plan.study.votes.questions != GIVEN:
        click.echo(
            f"The questions of a batch are chosen by the labels of those before, which costs nothing more: with all of "
            f"them answered, {counted(plan.batches, 'batch')} of up to {plan.study.batch_limit}."
        )


def _print_record_votes(plan: StudyPlan) -> None:
    """The budgets' weights, and the noise that all of them afford, of a study in which records vote once."""
    from simulations.report.terminal import level_text, print_rows

    study, terms = plan.study, plan.to_json()
    sums = unit_sums(study)
    rows: list[list[object]] = [
        [g.budget, g.delta, g.parties, g.weight, g.epsilon_guaranteed] for g in plan.groups[:40]
    ]
    print_rows(
        f"record votes, {terms['accounting']}, unit {study.unit}, view {study.view}, replace-one, "
        f"{level_text(terms['confidentiality'], terms['units'])}",
        ["budget", "delta", "parties", "weight", "epsilon guaranteed"],
        rows,
    )
    click.echo(
        f"Each of {sums.population} units is asked {often_asked(sums.residuals)}, in {sums.votes} of {sums.queries} "
        f"queries. The sum for each query and class has noise of {study.gaussian.label_sigma:.4g} votes, the least "
        "that all budgets afford, and the study is charged once."
    )


_PRINT = {TeacherVotes: _print_teacher_votes, UnitSums: _print_record_votes}


# The assumed accuracy of the best possible model, without --accuracy.
_USUAL_ACCURACY = {"table": 0.8, "image": 0.98}


def _plan_of_records(flags: dict[str, Any], settings: Experiment, reporter: Reporter) -> None:
    """Rehearses studies of record votes, and prints what they are worth. Raises InvalidInput."""
    from protocols.reading import read_json
    from protocols.release.counts import read_counts
    from simulations.datasets.sources import published_majority
    from simulations.planning.records import Publics, compare, rehearse
    from simulations.stages.inputs import load_dataset

    if flags["optimise"]:
        raise InvalidInput(
            "--optimise plans teachers' votes; leave it out with --votes-by record, which plans by itself"
        )
    dataset, majority = load_dataset(settings, host_from(flags)), flags["majority"]
    if majority is not None and flags["counts"] is not None:
        raise InvalidInput("--majority and --counts are given, and a count tells of all classes; allowed: one of them")
    if majority is None:
        majority = published_majority(settings.dataset)
    publics = Publics.of(settings, dataset, majority=majority)
    if (told := flags["counts"]) is not None:
        publics = publics.counted(read_counts(read_json(Path(told)), where=str(told)))
    accuracy = _USUAL_ACCURACY[dataset.kind] if flags["accuracy"] is None else float(flags["accuracy"])
    with reporter.stage("rehearsals on stand-in labels") as stage:
        rehearsed = rehearse(settings, publics, accuracy=accuracy, stage=stage)
        stage.result = f"{len(rehearsed.candidates)} kinds of queries, {len(rehearsed.tasks)} stand-ins"
    with reporter.stage("models on the same stand-ins"):
        compared = compare(settings, publics, rehearsed)
    command = _record_line(flags, rehearsed.best, compared)
    if flags["as_json"]:
        click.echo(json.dumps(_record_document(publics, rehearsed, compared, accuracy, command), indent=2))
    else:
        _print_records(settings, publics, rehearsed, compared, accuracy, command)


def _record_line(flags: dict[str, Any], best: Candidate, compared: ForeseenAccuracies) -> str:
    """The command that runs what is recommended."""
    from simulations.results.text import run_line

    given = {**host_from(flags).named, **worded_settings(flags), **given_settings(flags)}
    for name in ("votes_by", "record_queries", "bins", "nearest"):
        given.pop(name, None)
    if (teachers := compared.better) is None:
        given = {**given, "votes_by": compared.votes_by, **best.given}
    else:
        given = {**given, "mechanism": "gnmax", "sigma": f"{teachers.sigma:.6g}"}
    return run_line({
        name: ",".join(map(str, value)) if isinstance(value, tuple | list) else value for name, value in given.items()
    })  # fmt: skip


def _record_document(
    publics: Publics, rehearsed: Rehearsed, compared: ForeseenAccuracies, accuracy: float, command: str
) -> dict[str, Any]:
    """The plan as JSON values."""
    teachers = compared.teachers
    return {
        "votes_by": compared.votes_by,
        "verdict": compared.verdict,
        "worth": compared.worth,
        "assumed_accuracy": accuracy,
        "assumed_majority": None if publics.frequent is None else float(publics.frequent.max()),
        "rehearsals": len(rehearsed.tasks),
        "parties": len(publics.sizes),
        "population": publics.population,
        "chosen": _row(rehearsed.best),
        "candidates": [_row(each) for each in rehearsed.candidates],
        "student": compared.student,
        "alone": compared.alone,
        "gain": compared.gain,
        "gain_interval": list(compared.interval),
        "pooled": compared.pooled,
        "best": compared.best,
        "guessing": compared.guessing,
        "teachers": None if teachers is None else {
            "sigma": teachers.sigma, "labels": teachers.labels, "student": teachers.student
        },
        "epsilon_guaranteed": sorted(set(rehearsed.best.study.budgets.epsilon_guaranteed.tolist())),
        "weights": sorted(set(rehearsed.best.study.weights.tolist())),
        "command": command,
    }  # fmt: skip


def _row(each: Candidate) -> dict[str, Any]:
    return {
        **each.given,
        "queries": each.queries.rows,
        "sums": 1 + unit_sums(each.study).residuals,
        "votes": each.queries.filled,
        "partitions": len(each.queries.blocks),
        "sigma": each.study.gaussian.sigma,
        "pool_labels": each.pool_labels,
        "pool_labels_error": each.error,
    }


def _print_records(
    settings: Experiment,
    publics: Publics,
    rehearsed: Rehearsed,
    compared: ForeseenAccuracies,
    accuracy: float,
    command: str,
) -> None:
    from simulations.report.terminal import print_rows

    best, sizes = rehearsed.best, publics.sizes
    rows: list[list[object]] = [
        [each.words, each.queries.rows, each.queries.filled, f"{each.study.gaussian.sigma:.4g}",
         f"{each.pool_labels:.3f} ± {each.error:.3f}", "chosen" if each is best else ""]
        for each in rehearsed.candidates
    ]  # fmt: skip
    print_rows(
        f"Record votes of {publics.population:,} units (unit {settings.unit}) at {len(sizes)} hospitals of "
        f"{sizes.min():,} to {sizes.max():,} records, rehearsed on {len(rehearsed.tasks)} stand-in tasks that the best "
        f"model gets right at {accuracy:g}",
        ["public queries", "Q", "votes of a record", "sigma", "pool labels right", ""],
        rows,
    )
    weights = best.study.weights
    click.echo(
        f"chosen     {best.words}: each unit is asked {often_asked(unit_sums(best.study).residuals)}, with weights "
        f"{weights.min():.4g} to {weights.max():.4g}, for at most epsilon "
        f"{at_most(best.study.budgets.epsilon_guaranteed.max())} for ever"
    )
    click.echo(
        f"student    {compared.student:.3f} expected; one hospital alone {compared.alone:.3f}, pooled without privacy "
        f"{compared.pooled:.3f}, the most frequent class {compared.guessing:.3f}"
    )
    if settings.unit == "patient":
        click.echo("teachers   not compared: their votes are not accounted for patients")
    elif compared.teachers is None:
        click.echo("teachers   no budget affords a label at any noise that was tried")
    else:
        click.echo(
            f"teachers   {compared.teachers.labels} labels at sigma {compared.teachers.sigma:.4g}, and a student of "
            f"{compared.teachers.student:.3f}"
        )
    click.echo(f"verdict    {compared.verdict}")
    click.echo(
        "It rests on made-up labels of the public pool: compare settings by it, and do not expect its accuracies. "
        "--accuracy says how predictable the task is, --majority how frequent its most frequent class."
    )
    click.echo(f"run it     {command}")


def _run_optimise(flags: dict[str, Any], reporter: Reporter) -> None:
    """Finds, prints and writes the best settings. Raises InvalidInput before anything is computed."""
    from simulations.planning.grid import optimise_each
    from simulations.planning.predict import Planner

    settings = _planned_settings(flags)
    votes = _planned_votes(flags, settings)
    pool = settings.queries or _POOL
    settings = settings.changed(classes=votes.classes, queries=pool)
    low = votes.accuracy if flags["min_accuracy"] is None else float(flags["min_accuracy"])
    if not 0 <= low <= 1:
        raise InvalidInput(f"min_accuracy is {low:g}; allowed: in [0, 1]")
    out = None if flags["out"] is None else Path(flags["out"])
    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InvalidInput(f"--out {out} is not empty; allowed: a new folder")
    planner = Planner.of(settings, votes, OBJECTIVES[flags["objective"] or "information"], pool=pool)
    given = {**host_from(flags).named, **worded_settings(flags), **given_settings(flags)}
    with reporter.stage("optimise") as stage:
        first = settings.mechanism if "mechanism" in given else None
        optima, refused = optimise_each(planner, min_accuracy=low, first=first)
        found = optima[0]
        stage.result = f"{found.chosen.answered:.1f} labels of accuracy {found.chosen.accuracy:.3f} expected"
    document = _optimum_document(planner, optima, min_accuracy=low, command=_optimum_line(given, planner, found))
    document["not_compared"] = refused
    if out is not None:
        _write(optima, document, out)
    if flags["as_json"]:
        click.echo(json.dumps(document, indent=2))
    else:
        _print_optimum(planner, optima, document)


def _optimum_line(given: dict[str, object], planner: Planner, found: Optimum) -> str:
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


def _planned_settings(flags: dict[str, Any]) -> Experiment:
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


def _planned_votes(flags: dict[str, Any], settings: Experiment) -> PlannedVotes:
    """The votes that the flags describe."""
    from protocols.labelling.stored_votes import load_labels, load_votes
    from simulations.planning.predict import AssumedVotes, PilotVotes

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
    stored, _ = load_votes(Path(flags["pilot"]), kind=flags["pilot_kind"], classes=settings.classes, parties=None)
    truth = None
    if flags["pilot_labels"] is not None:
        truth = load_labels(flags["pilot_labels"], queries=stored.queries, classes=stored.classes)
    return PilotVotes.of(stored, truth)


def _point(prediction: Prediction, mechanism: str, *, chosen: bool) -> dict[str, Any]:
    values = {name: value for name, value in asdict(prediction).items() if name != "noise"}
    return {"mechanism": mechanism, **dict(prediction.noise.values), **values, "chosen": chosen}


def _optimum_document(
    planner: Planner, optima: tuple[Optimum, ...], *, min_accuracy: float, command: str
) -> dict[str, Any]:
    """The plan as JSON values."""
    from protocols.study.plan import make_plan

    found, best = optima[0], max(optima, key=lambda each: each.chosen.value)
    return {
        "objective": planner.objective.name,
        "objective_statement": planner.objective.statement,
        "votes": planner.votes.statement,
        "min_accuracy": min_accuracy,
        "chosen": _point(found.chosen, found.mechanism, chosen=True),
        "compared": [_point(each.chosen, each.mechanism, chosen=each is found) for each in optima],
        "better": best.mechanism,
        "default_noise": _point(found.common, found.mechanism, chosen=False),
        "frontier": [
            _point(p, each.mechanism, chosen=each is found and p.noise == found.chosen.noise)
            for each in optima
            for p in each.frontier
        ],
        "command": command,
        "plan": make_plan(found.study).to_json(),
    }


def _write(optima: tuple[Optimum, ...], document: dict[str, Any], out: Path) -> None:
    from simulations.planning.grid import frontier_figure
    from simulations.plots.style import write_figure

    sink, names = io.StringIO(), dict.fromkeys(name for each in optima for name, _ in each.chosen.noise.values)
    table = csv.DictWriter(sink, ["mechanism", *names, *_COLUMNS], lineterminator="\n")
    table.writeheader()
    table.writerows(document["frontier"])
    write_atomically(out / "frontier.csv", sink.getvalue())
    write_atomically(out / "frontier.json", json.dumps(document, indent=2) + "\n")
    drawn = frontier_figure(optima, min_accuracy=document["min_accuracy"])
    write_figure(drawn, out / "figures" / "frontier")


def _print_optimum(planner: Planner, optima: tuple[Optimum, ...], document: dict[str, Any]) -> None:
    from simulations.planning.grid import batches_asked
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
        marks = [""] * len(each.frontier)
        for at, point in enumerate(each.frontier):
            if point.noise == each.chosen.noise:
                marks[at] = "chosen" if each is found else "its best"
        rows: list[list[object]] = [
            [*(value for _, value in p.noise.values), p.asked, p.answered, p.accuracy, p.value, mark]
            for p, mark in zip((*each.frontier, each.common), (*marks, "default noise"), strict=True)
        ]
        print_rows(
            f"{each.mechanism}: most labels at each accuracy, of a pool of {planner.pool}",
            [
                *(name.replace("_", " ") for name, _ in each.chosen.noise.values),
                *("asked", "labels", "accuracy", planner.objective.name, ""),
            ],
            rows,
        )
    most = min(group["answers_all"] for group in plan["groups"])
    click.echo(
        f"chosen     {chosen.answered:.1f} labels of accuracy {chosen.accuracy:.3f} expected from {chosen.asked:.0f} "
        f"queries asked of a pool of {chosen.queries}; never more than {min(most, chosen.queries)}"
    )
    for each in optima[1:]:
        click.echo(f"compared   {_compared(found, each, planner.objective.name)}")
    for name, reason in document["not_compared"].items():
        click.echo(f"left out   {name} is not compared: {reason}")
    click.echo(f"run it     {document['command']}")


def _compared(found: Optimum, other: Optimum, objective: str) -> str:
    """How the chosen mechanism compares with another one's best settings, in one line."""
    gain = found.chosen.value / other.chosen.value - 1
    better = "better" if gain >= 0 else "worse"
    return (
        f"{found.mechanism} is {better} than {other.mechanism} by {100 * abs(gain):.1f} % of {objective}: "
        f"{found.chosen.answered:.1f} labels of accuracy {found.chosen.accuracy:.3f}, and {other.chosen.answered:.1f} "
        f"of {other.chosen.accuracy:.3f} at {other.chosen.noise.words}"
    )


_PLANS = {TeacherVotes: _plan_of_teachers, UnitSums: _plan_of_records}
