"""conclave-coordinator: its commands, and how errors reach people: one line with a code, one with the next step."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from protocols.errors import ConclaveError
from runtime.cli import CONTEXT, EPILOG, CommandTable, home_flag, run_group, show_server_error

if TYPE_CHECKING:
    from coordinator.home import CoordinatorHome

PROGRAM: Final = "conclave-coordinator"
HOME_VARIABLE: Final = "CONCLAVE_COORDINATOR_HOME"
DEFAULT_HOME: Final = Path("~/.conclave-coordinator")
# A command is imported when it is called: most need neither gRPC nor torch.
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
_NEXT: Final[dict[str, str]] = {
    "already_serving": "stop the other serve, or give another --home",
    "no_request": "ask the hospital to run conclave-party enrol, then see conclave-coordinator requests",
    "fingerprint_mismatch": "compare again by telephone; if it differs still, revoke the party and invite it again",
    "revoked_key": "ask the hospital to make a new key with conclave-party init, under a new invitation",
    "unproven_charges": "keep serve running until those nodes have connected and settled, then release again; where a "
    "receipt is lost for good, state it: release --unproven SEAT",
    "labelling_runs": "see conclave-coordinator status; a lower patience_s counts once serve was started again",
    "no_open_batch": "nothing is to be given up; conclave-coordinator status shows where the study stands",
    "can_be_finished": "run conclave-coordinator resume; the batch goes on as it was asked, and costs nothing more",
    "same_organisation": "let another organisation be the guardian: see docs/how-to/run-a-guardian.md",
    "clock_jumped": "set this machine's clock right (NTP), and run the command again",
    "authority_expired": "begin a new consortium: conclave-coordinator init with another --home",
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


def _home(folder: Path) -> CoordinatorHome:
    from coordinator.home import CoordinatorHome

    return CoordinatorHome(folder)


home_option = home_flag(_home, variable=HOME_VARIABLE, default=DEFAULT_HOME, whose="The coordinator's folder")


def run_command(arguments: list[str]) -> int:
    """Runs the command line; returns the exit code."""
    return run_group(cli, arguments, program=PROGRAM, show_error=show_error)


def show_error(error: ConclaveError) -> int:
    """Prints what went wrong and what to do next, on standard error; returns the exit code."""
    return show_server_error(error, program=PROGRAM, steps=_NEXT)
