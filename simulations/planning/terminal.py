"""What `plan` prints."""

from __future__ import annotations

import json
from collections.abc import Sequence

import click

from protocols.plural import counted
from protocols.study.chosen import GIVEN
from protocols.study.votes import TeacherVotes, UnitSums, unit_sums
from simulations.planning.plan import StudyPlan
from simulations.report.terminal import level_text, print_rows


def print_plan(plan: StudyPlan, warnings: Sequence[str], *, as_json: bool) -> None:
    """Prints the plan as a table of the groups whose budgets run out first, or as JSON, with the warnings."""
    if as_json:
        click.echo(json.dumps({**plan.to_json(), "warnings": list(warnings)}, indent=2))
        return
    _PRINT[type(plan.study.votes)](plan)


def _print_teacher_votes(plan: StudyPlan) -> None:
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
