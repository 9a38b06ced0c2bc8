"""The commands of conclave-party."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from protocols.installing import DISTRIBUTION
from runtime.cli import CONTEXT, EPILOG, CommandTable, home_flag, run_group

if TYPE_CHECKING:
    from party.home import PartyHome

HOME_VARIABLE: Final = "CONCLAVE_PARTY_HOME"
DEFAULT_HOME: Final = Path("~/.conclave-party")
SECRETS: Final = ("key.pem",)
# A command is imported when it is called: most need neither gRPC nor a teacher's packages.
COMMANDS: Final[dict[str, str]] = {
    "init": "party.commands.homes:init",
    "enrol": "party.commands.homes:enrol",
    "doctor": "party.commands.homes:doctor",
    "data": "party.commands.data:data",
    "approve": "party.commands.study:approve",
    "train": "party.commands.study:train",
    "run": "party.commands.running:run",
    "predict": "party.commands.data:predict",
    "ask": "party.commands.ask:ask",
    "budget": "party.commands.accounts:budget",
    "verify": "party.commands.accounts:verify",
    "withdraw": "party.commands.accounts:withdraw",
    "home": "party.commands.homes:home_commands",
    "demo": "party.commands.demo:demo",
}


@click.group(cls=CommandTable, table=COMMANDS, epilog=EPILOG, context_settings=CONTEXT)
@click.version_option(package_name=DISTRIBUTION)
def cli() -> None:
    """Run a hospital's side of a consortium: which studies it joins, what they may cost, and its node.

    \b
    From an invitation to a running node:
      conclave-party init invitation.toml --enrol   (then read the fingerprint to the operator)
      conclave-party doctor                         (at every stage: what is wrong, and what comes next)
      conclave-party data map study.toml            (what your columns and words mean)
      conclave-party data check study.toml
      conclave-party approve study.toml --train
      conclave-party run
      conclave-party budget show
      conclave-party verify --release FOLDER
    """


def _home(folder: Path) -> PartyHome:
    from party.home import PartyHome
    from protocols.errors import Refused
    from protocols.refusals.code import Code

    home = PartyHome(folder.resolve())
    home.check_not_moved()
    if home.restoring.exists():
        raise Refused(Code.HOME_UNFINISHED, f"{home.path} was not restored to its end, as {home.restoring.name} says")
    return home


home_option = home_flag(_home, variable=HOME_VARIABLE, default=DEFAULT_HOME, whose="The node's folder", secrets=SECRETS)


def run_command(arguments: list[str]) -> int:
    """Runs the command line; returns the exit code."""
    return run_group(cli, arguments, program="conclave-party", extra="party")
