"""give-up: ends a batch that can no longer be finished, so that its study can continue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from coordinator.commands.group import home_option
from protocols.errors import Refused
from protocols.plural import counted
from protocols.refusals.code import Code
from runtime.cli import EPILOG, json_option
from runtime.printing import print_json, say_next, table

if TYPE_CHECKING:
    from coordinator.home import CoordinatorHome
    from protocols.study.levels import Level


@click.command(name="give-up", epilog=EPILOG)
@click.argument("study")
@click.option("--yes", is_flag=True, help="Give it up without asking.")
@home_option
@json_option
def give_up(study: str, yes: bool, home: CoordinatorHome, as_json: bool) -> None:
    """Give up the batch of STUDY that cannot be finished: it yields no labels, and its charges stand.

    \b
    Example:
      conclave-coordinator give-up heart
    """
    from coordinator.labelling.giving_up import give_up as end
    from coordinator.labelling.giving_up import stuck_batch
    from coordinator.status import study_status
    from coordinator.store.store import Store
    from protocols.budgets.filter import NANO

    home.settings()
    with Store(home) as store:
        found = stuck_batch(store, study)
        seats = {each["seat"]: each for each in study_status(store, study, set())["seats"]}
        if not found.given_up:
            job, level = store.job(study), store.study(study).confidentiality
            asked = store.study(study)
            charged, at = asked.budgets, asked.seats
            why = _why(study, "" if job is None else job.message, level)
            rows: list[list[object]] = [
                [seat, charged.nano(amount, at[seat]) / NANO, seats[seat]["epsilon_used"], seats[seat]["answers_left"]]
                for seat, amount in found.charged.items()
            ]
            said = (
                f"batch {found.number} of {study}: {counted(found.queries, 'query')}, asked of "
                f"{counted(len(rows), 'seat')}, not released\n"
                f"{table(['seat', 'stays charged', 'epsilon used, with it', 'answers left'], rows)}\n"
                f"{why}"
                "If it is given up, its queries never get a label and its charges are not refunded, because what was "
                "sent may have been opened.\nThis cannot be undone."
            )
            click.echo(said, err=as_json)
            if not yes and not click.confirm(f"Give batch {found.number} up for ever?", err=as_json):
                raise Refused(Code.NOT_CONFIRMED, f"batch {found.number} of {study!r} stays open")
        end(store, study, found.number)
    if as_json:
        figures = {"study": study, "batch": found.number, "queries": found.queries, "new": not found.given_up}
        print_json({**figures, "stays_charged_nano": dict(found.charged)})
        return
    before = "was already given up; nothing was changed" if found.given_up else "is given up"
    click.echo(f"batch {found.number} of {study} {before}")
    say_next(f"conclave-coordinator resume {study}, or release {study} as it is")


def _why(study: str, message: str, level: Level) -> str:
    """In words: why the labelling stopped, and what to check first if it waited for a guardian."""
    from protocols.study.levels import GuardedLevel

    said = f"its labelling stopped: {message}\n"
    if not isinstance(level, GuardedLevel):
        return said
    return (
        f"{said}If it waited for the guardian {level.guardian}, and that is back, run resume {study}: it costs "
        "nothing.\n"
    )
