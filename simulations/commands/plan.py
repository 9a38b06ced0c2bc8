"""The sub-command plan, and how a plan is printed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any  # values of flags, as click gives them

import click

from protocols.errors import BudgetExceeded
from protocols.plural import counted
from protocols.study.chosen import GIVEN
from protocols.study.votes import TeacherVotes, UnitSums, unit_sums
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
    from simulations.planning.plan import StudyPlan
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
    from simulations.planning.plan import make_plan, write_curves
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


_PLANS = {TeacherVotes: _plan_of_teachers, UnitSums: _plan_of_records}


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
        f"Each of {sums.population} units votes once, in {sums.votes} of {sums.queries} queries. The sum for "
        f"each query and class has noise of {study.gaussian.label_sigma:.4g} votes, the least that all budgets afford, "
        "and the study is charged once."
    )


_PRINT = {TeacherVotes: _print_teacher_votes, UnitSums: _print_record_votes}
