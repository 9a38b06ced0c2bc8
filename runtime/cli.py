"""A program's commands, imported when called, and how errors are shown: a code, and what to do next.

A module of commands imports at its top only what its flags need, and each command imports what it runs in its function:
--help of any command needs neither NumPy nor a package for keys, plots or teachers.
"""

from __future__ import annotations

import errno
import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from protocols.errors import ConclaveError, StorageFailed
from runtime.distribution import lacking
from runtime.exits import Exit, show_error
from runtime.open_home import mend_and_say
from runtime.pasting import with_home
from runtime.signals import INTERRUPTED

EPILOG: Final = (
    "Exit codes: 0 done; 1 unexpected; 2 wrong use; 3 invalid input; 4 refused; 5 budget; 6 storage; 7 a party or the "
    "network; 8 verification failed; 9 verified in part; 130 interrupted."
)
CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 110}

# What a disk that is full, read-only or somebody else's answers: a person's matter, not a fault of the software.
_STORAGE: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO})
# init makes the home, doctor reports, run and serve write it into their logs.
_LOOK_THEMSELVES: Final = frozenset({"init", "doctor", "run", "serve"})

F = TypeVar("F", bound=Callable[..., object])

json_option = click.option("--json", "as_json", is_flag=True, help="Print figures as JSON on standard output.")


def page_options(command: F) -> F:
    """The options --page and --page-port of a program that has a live page."""
    port = click.option(
        "--page-port",
        type=click.IntRange(0, 65_535),
        default=0,
        show_default=True,
        help="Of the page; 0: any free one.",
    )
    page = click.option("--page/--no-page", default=True, show_default=True, help="A read-only page on 127.0.0.1.")
    return page(port(command))


def show_link(link: str) -> None:
    """Shows the link of a live page at a terminal."""
    click.echo(f"live page, opened once by this link: {link}", err=True)


def home_flag(
    open_home: Callable[[Path], object], *, variable: str, default: Path, whose: str, secrets: tuple[str, ...]
) -> Callable[[F], F]:
    """The option --home of a program; its commands get `home`, the result of open_home for the expanded folder.

    secrets: names of the private keys in it; a home that others can read is closed first, or refused
    (runtime.open_home), except by the commands that look for themselves. A command other than upgrade is refused if the
    home's files are of another version's format ("home_format").
    """

    def opened(context: click.Context, _: object, folder: Path) -> object:
        from runtime.home_format import check_format

        if context.obj is not None and context.get_parameter_source("home") is ParameterSource.COMMANDLINE:
            context.obj["home"] = folder
        folder = folder.expanduser()
        if context.info_name not in _LOOK_THEMSELVES:
            mend_and_say(folder, secrets)
        if context.info_name != "upgrade":
            check_format(folder, program=context.find_root().info_name or "")
        return open_home(folder)

    return click.option(
        "--home",
        type=click.Path(path_type=Path, file_okay=False),
        envvar=variable,
        default=default,
        show_envvar=True,
        help=f"{whose} [{default}].",
        callback=opened,
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


def run_group(
    group: click.Group, arguments: list[str], *, program: str, extra: str, own: Mapping[str, str] | None = None
) -> int:
    """Runs a command line and reports any error on standard error; returns the exit code.

    extra: the one that brings what the program needs; own: the extra of each command that has one of its own.
    """
    given: dict[str, Path] = {}  # what `home_flag` was given, for runtime.pasting

    def report(error: ConclaveError) -> int:
        home = given.get("home")
        if home is None:
            return show_error(error)
        return show_error(error, lambda text: with_home(text, group=group, program=program, home=str(home)))

    try:
        result = group.main(arguments, prog_name=program, standalone_mode=False, obj=given)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo(INTERRUPTED, err=True)
        return Exit.INTERRUPTED
    except ConclaveError as error:
        return report(error)
    except OSError as error:
        if error.errno not in _STORAGE:
            raise
        where = f"{error.filename}: " if error.filename else ""
        return report(StorageFailed(f"{where}{error.strerror}; check the disk, and who owns the folder"))
    except ModuleNotFoundError as missing:
        command = next((each for each in arguments if not each.startswith("-")), "")
        return report(lacking(missing, f"{program} {command}", (own or {}).get(command, extra)))
    return result if isinstance(result, int) else 0
