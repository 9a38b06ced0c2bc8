"""A program's commands, imported when called, and how errors are shown: a code, and what to do next.

A module of commands imports at its top what its flags need, and each command imports in its function what it runs:
--help of any command needs neither NumPy nor a package for keys, plots or teachers.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import click

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

INTERRUPTED: Final = 130
EPILOG: Final = (
    "Exit codes: 0 done; 1 unexpected; 2 wrong use; 3 invalid input; 4 refused; 5 budget; 6 storage; 7 a party or the "
    "network; 8 verification failed; 130 interrupted."
)
CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
_ERRORS: Final[tuple[tuple[type[ConclaveError], int, str, str], ...]] = (
    (InvalidInput, 3, "invalid_input", "correct the value and run the command again"),
    (DataUnavailable, 3, "data_unavailable", "see --help of the command"),
    (DataCorrupt, 3, "data_corrupt", "restore the file from where it came, and run the command again"),
    (Refused, 4, "refused", "see {program} status"),
    (BudgetExceeded, 5, "budget_exceeded", "change the study; nothing was charged"),
    (StorageFailed, 6, "storage_failed", "mend that and run the same command again; nothing is lost"),
    (EngineFailed, 7, "engine_failed", "run the command again"),
    (MalformedMessage, 7, "malformed", "update the software of the other side"),
    (ConclaveError, 1, "error", "run the command again; if it fails again, report it"),
)

F = TypeVar("F", bound=Callable[..., object])

json_option = click.option("--json", "as_json", is_flag=True, help="Print figures as JSON on standard output.")


def home_flag(open_home: Callable[[Path], object], *, variable: str, default: Path, whose: str) -> Callable[[F], F]:
    """The option --home of a program, whose commands are given `home`: what open_home makes of the expanded folder."""
    return click.option(
        "--home",
        type=click.Path(path_type=Path, file_okay=False),
        envvar=variable,
        default=default,
        show_envvar=True,
        help=f"{whose} [{default}].",
        callback=lambda context, parameter, folder: open_home(folder.expanduser()),
    )


class CommandTable(click.Group):
    """Commands by name, each "module:attribute", imported when the command is called."""

    def __init__(self, *args: Any, table: Mapping[str, str], **more: Any) -> None:  # what click passes to a group
        super().__init__(*args, **more)
        self.table = table

    def list_commands(self, context: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in self.table:
            return None
        module, _, attribute = self.table[name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command


def run_group(
    group: click.Group, arguments: list[str], *, program: str, show_error: Callable[[ConclaveError], int]
) -> int:
    """Runs a command line; returns the exit code. show_error: prints what went wrong; returns its exit code."""
    try:
        result = group.main(arguments, prog_name=program, standalone_mode=False)
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


def show_server_error(error: ConclaveError, *, program: str, steps: Mapping[str, str]) -> int:
    """Prints what went wrong and what to do next, on standard error; returns the exit code.

    steps: what to do next, for codes with a step of their own.
    """
    exit_code, code, step = next(
        (number, name, step) for kind, number, name, step in _ERRORS if isinstance(error, kind)
    )
    text = str(error)
    if isinstance(error, Refused):
        code, text = error.code, text.removeprefix(f"{error.code}: ")
    click.echo(f"error [{code}]: {text}", err=True)
    click.echo(f"next: {steps.get(code, step).format(program=program)}", err=True)
    return exit_code
