"""The sub-command run: its flags, and its folder of results."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any  # values of flags, as click gives them

import click

from protocols.errors import InvalidInput
from protocols.reading import read_json
from runtime.files import write_atomically
from simulations.commands.folder import check_new
from simulations.commands.plan import chosen_votes, print_plan
from simulations.exits import EXIT_CODES_OF_RUN, Interrupted
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
    track_flag,
    tracker_from,
    worded_settings,
)

if TYPE_CHECKING:
    from protocols.study.study import Study
    from simulations.setup.experiment import Experiment

Flags = dict[str, Any]


@click.command(name="run", epilog=EXIT_CODES_OF_RUN)
@study_words
@settings_flags
@click.option("--out", help="Folder for the results [runs/NAME-TIME].", type=click.Path())
@click.option("--resume", is_flag=True, help="Continue in --out, whose config.toml must be the same.")
@track_flag
@click.option("--dry-run", is_flag=True, help="Print the plan and stop.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON on standard output.")
@click.option("--quiet", is_flag=True, help="No progress on standard error.")
def run_flags(**flags: Any) -> None:
    """Train teachers, vote, release labels under every party's budget, train a student, report.

    \b
    Examples:
      conclave-simulate run --parties 250
      conclave-simulate run --parties 100 --dataset digits --budgets lognormal:2,0.5 --seeds 0-4 --out runs/digits
      conclave-simulate run runs/digits/config.toml budgets=4 weights=uniform   (the same study, changed)
      conclave-simulate run --resume --out runs/digits   (after Ctrl-C)
    """
    from protocols.study.plan import make_plan
    from runtime.printing import wrapped
    from simulations.pipeline import run, study_of
    from simulations.planning.advice import must_afford_or_say, warnings_of
    from simulations.report.terminal import print_summary, print_verdict
    from simulations.results.text import MARK
    from simulations.stages.inputs import read_inputs

    reporter, host = reporter_from(flags), host_from(flags)
    tracker = tracker_from(flags)
    settings = _resumed(flags) if flags["resume"] else settings_from(flags)
    if not flags["resume"]:
        check_idle_analyses(settings, given_settings(flags), votes=True)
        settings = chosen_votes(settings, flags, host, reporter)
    say_defaults(settings, reporter)
    inputs = read_inputs(settings, host=host, reporter=reporter)
    budgets, study = study_of(inputs)
    warnings = warnings_of(study, settings, inputs, reporter)
    plan = make_plan(study)
    if flags["dry_run"]:
        print_plan(plan, warnings, as_json=flags["as_json"])
        return
    must_afford_or_say(study, settings, inputs)
    out = _out(flags, inputs.settings, study, {"study": study.digest.hex(), "data": inputs.fingerprint})
    from simulations.plots.figures import drawings
    from simulations.plots.style import write_figures
    from simulations.report.page import advised, compared, doubts, write_report
    from simulations.report.private_section import printed, write_private
    from simulations.results.files import write_results

    try:
        said = [warning.partition("\n")[0] for warning in warnings]
        result = run(inputs, budgets=budgets, study=study, host=host, reporter=reporter, warned=said)
        with reporter.stage("report"):
            figures = write_results(result, out)
            drawn = drawings(result, figures)
            write_figures(drawn, out)
            write_private(result, out)
            write_report(result, figures, drawn, out)
            if tracker is not None:
                from simulations.results.trackers import tracked_run

                chosen = inputs.settings.known
                tracker.track([tracked_run(figures, chosen, name=out.name)])
    except KeyboardInterrupt:
        raise Interrupted(out) from None
    if flags["as_json"]:
        click.echo(json.dumps(figures, indent=2))
    else:
        print_summary(figures, out)
        print_verdict(compared(result, figures), doubts(figures), figures)
        if (advice := advised(figures, of_columns=result.source.of_columns)) is not None:
            click.echo(wrapped(advice, first=MARK, rest=MARK))
        for line in printed(result):
            click.echo(line)


def _out(flags: Flags, settings: Experiment, study: Study, started_from: dict[str, str]) -> Path:
    """The results folder, with config.toml and started_from.json in it. Raises InvalidInput when it holds another run.

    started_from: digests of the study and of the data, which tell whether a file named in config.toml has changed.
    """
    from simulations.setup.experiment import write_config

    name = Path(settings.votes).stem if settings.votes else Path(settings.dataset).stem
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    out = Path(flags["out"]) if flags["out"] else Path("runs") / f"{name}-{settings.parties}-{stamp}"
    if not flags["resume"]:
        check_new(out)
    record = out / "started_from.json"
    if flags["resume"] and record.exists():
        before = read_json(record)
        for what, digest in started_from.items():
            if before.get(what) != digest:
                raise InvalidInput(
                    f"{out} was started from another {what}: a file that its config.toml names has changed since "
                    f"({str(before.get(what))[:16]}, now {digest[:16]}); allowed: the same content, or another --out"
                )
    write_atomically(out / "config.toml", write_config(settings, study))
    write_atomically(record, json.dumps(started_from, indent=2) + "\n")
    return out


def _resumed(flags: Flags) -> Experiment:
    """The settings of the run in --out; given flags must agree with them. "usual" is what was chosen at its start."""
    from simulations.setup.experiment import read_config, setting

    if not flags["out"]:
        raise InvalidInput("--resume needs --out, the folder of the run to continue")
    stored = read_config(Path(flags["out"]) / "config.toml")
    for key, value in {**worded_settings(flags), **given_settings(flags)}.items():
        if key in ("student", "votes_by") and value == USUAL_VOTES:
            continue
        # Each alone: the combination was checked when the run was started.
        before = stored.values.get(key)
        if before is None or setting(key, value) != setting(key, before):
            raise InvalidInput(
                f"{flags['out']} was started with {key} = {before!r}, not {value!r}; "
                "allowed: the same settings, or another --out"
            )
    return stored
