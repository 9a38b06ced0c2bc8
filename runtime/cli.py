"""A program's commands, imported when called, and how errors are shown: a code, and what to do next.

A module of commands imports at its top only what its flags need, and each command imports what it runs in its function:
--help of any command needs neither NumPy nor a package for keys, plots or teachers.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from protocols.errors import ConclaveError
from runtime.exits import Exit, show_error

EPILOG: Final = (
    "Exit codes: 0 done; 1 unexpected; 2 wrong use; 3 invalid input; 4 refused; 5 budget; 6 storage; 7 a party or the "
    "network; 8 verification failed; 130 interrupted."
)
CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 110}

F = TypeVar("F", bound=Callable[..., object])

json_option = click.option("--json", "as_json", is_flag=True, help="Print figures as JSON on standard output.")


def home_flag(open_home: Callable[[Path], object], *, variable: str, default: Path, whose: str) -> Callable[[F], F]:
    """The option --home of a program; its commands get `home`, the result of open_home for the expanded folder."""
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

    def __init__(self, *args: Any, table: Mapping[str, str], **more: Any) -> None:  # click's own arguments of a group
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


def run_group(group: click.Group, arguments: list[str], *, program: str) -> int:
    """Runs a command line and reports any error on standard error; returns the exit code."""
    try:
        result = group.main(arguments, prog_name=program, standalone_mode=False)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted; run the same command again", err=True)
        return Exit.INTERRUPTED
    except ConclaveError as error:
        return show_error(error)
    return result if isinstance(result, int) else 0
