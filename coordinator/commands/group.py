"""conclave-coordinator: its commands, and how errors reach people: one line with a code, one with the next step."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Final

import click

from coordinator.home import DEFAULT_HOME, HOME_VARIABLE
from protocols.errors import (
    BudgetExceeded,
    ConclaveError,
    DataCorrupt,
    DataUnavailable,
    EngineFailed,
    InvalidInput,
    MalformedMessage,
    Refused,
    StorageFailed,
)

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
    "guardian": "guardian.commands:guardian",
}
_ERRORS: Final[tuple[tuple[type[ConclaveError], int, str, str], ...]] = (
    (InvalidInput, 3, "invalid_input", "correct the value and run the command again"),
    (DataUnavailable, 3, "data_unavailable", "see --help of the command"),
    (DataCorrupt, 3, "data_corrupt", "restore the file from where it came, and run the command again"),
    (Refused, 4, "refused", "see conclave-coordinator status"),
    (BudgetExceeded, 5, "budget_exceeded", "change the study; nothing was charged"),
    (StorageFailed, 6, "storage_failed", "mend that and run the same command again; nothing is lost"),
    (EngineFailed, 7, "engine_failed", "run the command again"),
    (MalformedMessage, 7, "malformed", "update the software of the other side"),
    (ConclaveError, 1, "error", "run the command again; if it fails again, report it"),
)
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
INTERRUPTED: Final = 130
EPILOG: Final = (
    "Exit codes: 0 done; 1 unexpected; 2 wrong use; 3 invalid input; 4 refused; 5 budget; 6 storage; 7 a party or the "
    "network; 8 verification failed; 130 interrupted."
)


class _Commands(click.Group):
    """The table of commands, each imported when it is needed."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command


@click.group(
    cls=_Commands,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
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
json_option = click.option("--json", "as_json", is_flag=True, help="Print figures as JSON on standard output.")


def run_command(arguments: list[str]) -> int:
    """Runs the command line; the exit code."""
    try:
        result = cli.main(arguments, prog_name="conclave-coordinator", standalone_mode=False)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted; run the same command again", err=True)
        return INTERRUPTED
    except ConclaveError as error:
        return show_error(error)
    return result if isinstance(result, int) else 0


def show_error(error: ConclaveError) -> int:
    """Says what went wrong and what to do next, on standard error; the exit code."""
    exit_code, code, step = next(
        (number, name, step) for kind, number, name, step in _ERRORS if isinstance(error, kind)
    )
    text = str(error)
    if isinstance(error, Refused):
        code, text = error.code, text.removeprefix(f"{error.code}: ")
    click.echo(f"error [{code}]: {text}", err=True)
    click.echo(f"next: {_NEXT.get(code, step)}", err=True)
    return exit_code
