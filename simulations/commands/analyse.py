"""The sub-command analyse: what accountants say of a fixed number of queries on stored votes, without a budget."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any  # values of flags, as click gives them

import click

from protocols.errors import InvalidInput
from protocols.research import DATA_DEPENDENT
from runtime.files import write_atomically
from simulations.exits import EXIT_CODES
from simulations.options import analysis_flags, settings_from

if TYPE_CHECKING:
    from simulations.stages.inputs import VoteInputs


@click.command(name="analyse", epilog=EXIT_CODES)
@analysis_flags
@click.option("--accountant", help=f"A list of {' | '.join(DATA_DEPENDENT)} [the first that holds for the mechanism].")
@click.option("--seed", help="Seed of the noise.", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--out", help="A JSON file for the figures, which is private too.", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def analyse_flags(**flags: Any) -> None:
    """Say what a fixed number of stored votes' queries cost on these votes, without any budget: private figures.

    Every query is asked, whatever its worst case. Nothing is charged, so no label may be published, and none is kept.

    \b
    Examples:
      conclave-simulate analyse --votes counts.npy --votes-kind counts --mechanism confident_gnmax --threshold 300
      conclave-simulate analyse --votes ids.npy --votes-kind ids --mechanism lnmax --gamma 0.1 --labels truth.npy --json
    """
    from protocols.study.released_noise import seldom_answered
    from simulations.private import analyse_votes
    from simulations.report.private_section import analysis_document, printed_analysis

    inputs = _votes(flags)
    analysis = analyse_votes(inputs, seed=flags["seed"])
    # Of public figures alone, as every warning.
    if warning := seldom_answered(
        analysis.mechanism, votes=float(analysis.votes), classes=inputs.stored.classes, queries=analysis.queries
    ):
        click.echo(f"warning: {warning}", err=True)
    document = json.dumps(analysis_document(analysis), indent=2, allow_nan=False)
    if flags["out"]:
        write_atomically(Path(flags["out"]), document + "\n")
    if flags["as_json"]:
        click.echo(document)
        return
    for line in printed_analysis(analysis):
        click.echo(line)


def _votes(flags: dict[str, Any]) -> VoteInputs:
    from simulations.stages.inputs import vote_file_inputs

    settings = settings_from(flags)
    if settings.votes is None:
        raise InvalidInput("votes is missing; allowed: --votes FILE.npy, as an analysis trains nothing")
    return vote_file_inputs(settings, Path(settings.votes))
