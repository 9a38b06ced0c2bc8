"""`conclave-simulate plan --votes-by record`: what it prints."""

from __future__ import annotations

import json
from typing import Any  # values of flags, as click gives them, and of a JSON object

import click

from protocols.errors import InvalidInput
from protocols.plural import at_most
from simulations.options import given_settings, host_from, worded_settings
from simulations.planning.records import Candidate, Comparison, Publics, Rehearsed, compare, rehearse
from simulations.progress import Reporter
from simulations.report.terminal import print_rows
from simulations.results.text import run_line
from simulations.setup.experiment import Experiment
from simulations.stages.inputs import load_dataset

# The assumed accuracy of the best possible model, without --accuracy.
_USUAL_ACCURACY = {"table": 0.8, "image": 0.98}


def run_record_plan(flags: dict[str, Any], settings: Experiment, reporter: Reporter) -> None:
    """Rehearses studies of record votes, and prints what they are worth. Raises InvalidInput."""
    if flags["optimise"]:
        raise InvalidInput(
            "--optimise plans teachers' votes; leave it out with --votes-by record, which plans by itself"
        )
    dataset = load_dataset(settings, host_from(flags))
    publics = Publics.of(settings, dataset)
    accuracy = _USUAL_ACCURACY[dataset.kind] if flags["accuracy"] is None else float(flags["accuracy"])
    with reporter.stage("rehearsals on stand-in labels") as stage:
        rehearsed = rehearse(settings, publics, accuracy=accuracy, stage=stage)
        stage.result = f"{len(rehearsed.candidates)} kinds of queries, {len(rehearsed.tasks)} stand-ins"
    with reporter.stage("models on the same stand-ins"):
        compared = compare(settings, publics, rehearsed)
    command = _run_line(flags, rehearsed.best, compared)
    if flags["as_json"]:
        click.echo(json.dumps(_document(publics, rehearsed, compared, accuracy, command), indent=2))
    else:
        _print(settings, publics, rehearsed, compared, accuracy, command)


def _run_line(flags: dict[str, Any], best: Candidate, compared: Comparison) -> str:
    """The command that runs what is recommended."""
    given = {**worded_settings(flags), **given_settings(flags)}
    for name in ("votes_by", "record_queries", "bins", "nearest"):
        given.pop(name, None)
    if (teachers := compared.better) is None:
        given = {**given, "votes_by": compared.votes_by, **best.given}
    else:
        given = {**given, "mechanism": "gnmax", "sigma": f"{teachers.sigma:.6g}"}
    return run_line({
        name: ",".join(map(str, value)) if isinstance(value, tuple | list) else value for name, value in given.items()
    })  # fmt: skip


def _document(
    publics: Publics, rehearsed: Rehearsed, compared: Comparison, accuracy: float, command: str
) -> dict[str, Any]:
    """The plan as JSON values."""
    teachers = compared.teachers
    return {
        "votes_by": compared.votes_by,
        "verdict": compared.verdict,
        "worth": compared.worth,
        "assumed_accuracy": accuracy,
        "rehearsals": len(rehearsed.tasks),
        "parties": len(publics.sizes),
        "population": publics.population,
        "chosen": _row(rehearsed.best),
        "candidates": [_row(each) for each in rehearsed.candidates],
        "student": compared.student,
        "alone": compared.alone,
        "gain": compared.gain,
        "gain_error": compared.gain_error,
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
        "votes": each.queries.filled,
        "partitions": len(each.queries.blocks),
        "sigma": each.study.gaussian.sigma,
        "cell_labels": each.cell_labels,
        "pool_labels": each.pool_labels,
        "pool_labels_error": each.error,
    }


def _print(
    settings: Experiment,
    publics: Publics,
    rehearsed: Rehearsed,
    compared: Comparison,
    accuracy: float,
    command: str,
) -> None:
    best, sizes = rehearsed.best, publics.sizes
    rows: list[list[object]] = [
        [each.words, each.queries.rows, each.queries.filled, f"{each.study.gaussian.sigma:.4g}",
         f"{each.cell_labels:.3f}", f"{each.pool_labels:.3f} ± {each.error:.3f}", "chosen" if each is best else ""]
        for each in rehearsed.candidates
    ]  # fmt: skip
    print_rows(
        f"Record votes of {publics.population:,} units (unit {settings.unit}) at {len(sizes)} hospitals of "
        f"{sizes.min():,} to {sizes.max():,} records, rehearsed on {len(rehearsed.tasks)} stand-in tasks that the best "
        f"model gets right at {accuracy:g}",
        ["public queries", "Q", "votes of a record", "sigma", "cell labels right", "pool labels right", ""],
        rows,
    )
    weights = best.study.weights
    click.echo(
        f"chosen     {best.words}: each unit's data are used once, with weights {weights.min():.4g} to "
        f"{weights.max():.4g}, for at most epsilon {at_most(best.study.budgets.epsilon_guaranteed.max())} for ever"
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
        "--accuracy says how predictable the task is."
    )
    click.echo(f"run it     {command}")
