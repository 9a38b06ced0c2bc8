"""The sub-command plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any  # values of flags, as click gives them

import click

from protocols.errors import BudgetExceeded
from protocols.study.votes import TeacherVotes, UnitSums
from simulations.exits import EPILOG
from simulations.options import (
    check_idle_analyses,
    given_settings,
    host_from,
    reporter_from,
    say_defaults,
    settings_flags,
    settings_from,
    study_words,
)
from simulations.planning.command import check_idle, optimise_flags, run_optimise

if TYPE_CHECKING:
    from simulations.progress import Reporter
    from simulations.setup.experiment import Experiment


@click.command(name="plan", epilog=EPILOG)
@study_words
@settings_flags
@optimise_flags
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
    from simulations.planning.plan import check_curve

    settings, reporter = settings_from(flags), reporter_from(flags)
    check_idle_analyses(settings, given_settings(flags), votes=False)
    if not flags["optimise"]:
        check_idle(flags, votes_by=settings.votes_by)
    if flags["curve"]:
        check_curve(settings, optimise=flags["optimise"])
    say_defaults(settings, reporter)
    _PLANS[settings.votes_by](flags, settings, reporter)


def _plan_of_records(flags: dict[str, Any], settings: Experiment, reporter: Reporter) -> None:
    from simulations.planning.record_command import run_record_plan

    run_record_plan(flags, settings, reporter)


def _plan_of_teachers(flags: dict[str, Any], settings: Experiment, reporter: Reporter) -> None:
    from simulations.pipeline import study_of
    from simulations.planning.advice import must_afford_or_say, warnings_of
    from simulations.planning.plan import make_plan, print_plan, write_curves
    from simulations.stages.inputs import read_inputs

    if flags["optimise"]:
        run_optimise(flags, reporter)
        return
    inputs = read_inputs(settings, host=host_from(flags), reporter=reporter)
    budgets, study = study_of(inputs)
    warnings = warnings_of(study, settings, inputs, reporter)
    plan = make_plan(study, budgets)
    print_plan(plan, warnings, as_json=flags["as_json"])
    if not flags["as_json"]:
        try:
            must_afford_or_say(study, settings, inputs)
        except BudgetExceeded as error:
            click.echo(str(error))
    if flags["curve"]:
        write_curves(study, Path(flags["curve"]))
        reporter.say(f"curves of delta(epsilon): {flags['curve']}")


_PLANS = {TeacherVotes.by: _plan_of_teachers, UnitSums.by: _plan_of_records}
