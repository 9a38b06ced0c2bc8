"""conclave-coordinator: its commands."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from coordinator.home import DEFAULT_HOME, HOME_VARIABLE
from runtime.cli import CONTEXT, EPILOG, CommandTable, run_group

PROGRAM: Final = "conclave-coordinator"
# A command is imported when it is called for: most need neither gRPC nor torch.
COMMANDS: Final[dict[str, str]] = {
    "init": "coordinator.commands.membership:init",
    "invite": "coordinator.commands.membership:invite",
    "requests": "coordinator.commands.membership:requests",
    "approve": "coordinator.commands.membership:approve",
    "revoke": "coordinator.commands.membership:revoke",
    "study": "coordinator.commands.study:study",
    "serve": "coordinator.commands.serve:serve",
    "status": "coordinator.commands.status:status",
    "label": "coordinator.commands.labelling:label",
    "resume": "coordinator.commands.labelling:resume",
    "give-up": "coordinator.commands.giving_up:give_up",
    "train": "coordinator.commands.labelling:train",
    "release": "coordinator.commands.release:release",
    "verify": "coordinator.commands.release:verify",
    "guardian": "coordinator.commands.certify:guardian",
}


@click.group(cls=CommandTable, table=COMMANDS, epilog=EPILOG, context_settings=CONTEXT)
@click.version_option(package_name="conclave")
def cli() -> None:
    """The operator's side of a consortium: who takes part, which studies, their labels and their release.

    \b
    A study, from nothing:
      conclave-coordinator init --consortium heart --coordinator centre --address centre.example.org:7443
      conclave-coordinator serve                                  (leave it running)
      conclave-coordinator invite hospital-a                      (send the file to the hospital)
      conclave-coordinator requests
      conclave-coordinator approve hospital-a --fingerprint AA:BB:...
      conclave-coordinator study create study.toml --pool pool.npy
      conclave-coordinator label heart --wait
      conclave-coordinator train heart --student mlp
      conclave-coordinator release heart
    """


home_option = click.option(
    "--home",
    "home_folder",
    type=click.Path(path_type=Path, file_okay=False),
    envvar=HOME_VARIABLE,
    default=DEFAULT_HOME,
    show_envvar=True,
    help=f"The coordinator's folder [{DEFAULT_HOME}].",
)


def run_command(arguments: list[str]) -> int:
    """Runs the command line; the exit code."""
    return run_group(cli, arguments, program=PROGRAM)
