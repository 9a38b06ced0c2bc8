"""The commands of conclave-coordinator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from protocols.installing import DISTRIBUTION
from runtime.cli import CONTEXT, EPILOG, CommandTable, home_flag, run_group

if TYPE_CHECKING:
    from coordinator.home import CoordinatorHome
    from coordinator.store.store import Store

_PROGRAM: Final = "conclave-coordinator"
HOME_VARIABLE: Final = "CONCLAVE_COORDINATOR_HOME"
_DEFAULT_HOME: Final = Path("~/.conclave-coordinator")
_SECRETS: Final = ("key.pem", "authority-key.pem")
# A command is imported when it is called: most need neither gRPC nor torch.
COMMANDS: Final[dict[str, str]] = {
    "init": "coordinator.commands.enrolment:init",
    "invite": "coordinator.commands.enrolment:invite",
    "requests": "coordinator.commands.enrolment:requests",
    "approve": "coordinator.commands.enrolment:approve",
    "revoke": "coordinator.commands.enrolment:revoke",
    "study": "coordinator.commands.study:study",
    "serve": "coordinator.commands.running:serve",
    "status": "coordinator.commands.running:status",
    "label": "coordinator.commands.running:label",
    "resume": "coordinator.commands.running:resume",
    "give-up": "coordinator.commands.running:give_up",
    "train": "coordinator.commands.running:train",
    "evaluate": "coordinator.commands.running:evaluate",
    "release": "coordinator.commands.running:release",
    "verify": "coordinator.commands.running:verify",
    "guardian": "coordinator.commands.enrolment:guardian",
    "passphrase": "coordinator.commands.running:passphrase",
}


@click.group(cls=CommandTable, table=COMMANDS, epilog=EPILOG, context_settings=CONTEXT)
@click.version_option(package_name=DISTRIBUTION)
def cli() -> None:
    """Run the operator's side of a consortium: who takes part, which studies, their labels and their release.

    \b
    A study, from nothing:
      conclave-coordinator init --consortium heart --coordinator centre --address centre.example.org:7443
      conclave-coordinator serve                                  (leave it running)
      conclave-coordinator invite hospital-a hospital-b           (send each its file)
      conclave-coordinator approve                                (type the words that each reads out)
      conclave-coordinator study create study.toml --pool pool.npy
      conclave-coordinator label heart --wait
      conclave-coordinator train heart --student logistic_regression
      conclave-coordinator release heart
    """


def _home(folder: Path) -> CoordinatorHome:
    from coordinator.home import CoordinatorHome

    return CoordinatorHome(folder)


def store_of(home: CoordinatorHome) -> Store:
    """The store of a home that was set up. Raises DataUnavailable before init."""
    from coordinator.store.store import Store

    home.settings()
    return Store(home)


home_option = home_flag(
    _home, variable=HOME_VARIABLE, default=_DEFAULT_HOME, whose="The coordinator's folder", secrets=_SECRETS
)


def run_command(arguments: list[str]) -> int:
    """Runs the command line; returns the exit code."""
    return run_group(cli, arguments, program=_PROGRAM, extra="coordinator", own={"verify": "verify"})
