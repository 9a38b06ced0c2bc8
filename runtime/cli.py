"""A program's commands, imported when called; its home, closed to others first; and how errors are shown.

A module of commands imports at its top only what its flags need, and each command imports what it runs in its function:
--help of any command needs neither NumPy nor a package for keys, plots or teachers.
"""

from __future__ import annotations

import errno
import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from protocols.errors import ConclaveError, InvalidInput, Refused, StorageFailed
from protocols.private_files import open_to_others, tighten
from protocols.refusals.code import Code
from runtime.distribution import lacking
from runtime.exits import INTERRUPTED, Exit, show_error
from runtime.printing import with_home


def mend_home(home: Path, secrets: Iterable[str]) -> list[Path]:
    """Restricts a home to its owner; returns the paths that others could read before.

    secrets: names of its private keys; a folder that holds none of them is no home, and stays as it is. Raises
    Refused("home_open"), and changes nothing, if one could have been read: folder and file were open.
    """
    keys = [home / name for name in secrets if (home / name).exists()]
    found = open_to_others(home) if keys else []
    for key in keys:
        if home in found and key in found:
            raise Refused(
                Code.HOME_OPEN,
                f"{key} could be read by others; allowed: mode 600, in a folder with mode 700: ask who may have read "
                f"it, then: chmod 700 {home}",
            )
    return tighten(home) if found else []


def mend_and_say(home: Path, secrets: Iterable[str]) -> None:
    """As mend_home, and says on standard error what others could read."""
    found = mend_home(home, secrets)
    if found:
        named = ", ".join(str(each.relative_to(home)) for each in found[:3])
        click.echo(
            f"warning: others could read {len(found)} files or folders of {home} ({named}); they are closed now: check "
            "who copied files there, and as whom",
            err=True,
        )


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


def ask_fingerprint(text: str, *, default: str | None = None) -> str:
    """A fingerprint that somebody types: asked again while a word is misspelt; `default` may be given as it is."""
    from protocols.crypto.identity import normal_fingerprint

    while True:
        typed: str = click.prompt(text, default=default, show_default=False, err=True)
        try:
            return typed if typed == default else normal_fingerprint(typed)
        except InvalidInput as error:
            click.echo(f"{error}; once more", err=True)


def home_flag(
    open_home: Callable[[Path], object], *, variable: str, default: Path, whose: str, secrets: tuple[str, ...]
) -> Callable[[F], F]:
    """The option --home of a program; its commands get `home`, the result of open_home for the expanded folder.

    secrets: names of the private keys in it; a home that others can read is closed first, or refused
    (mend_home), except by the commands that look for themselves. Files of another version's format are refused.
    """

    def opened(context: click.Context, _: object, folder: Path) -> object:
        from runtime.files import check_format

        if context.obj is not None and context.get_parameter_source("home") is ParameterSource.COMMANDLINE:
            context.obj["home"] = folder
        folder = folder.expanduser()
        if context.info_name not in _LOOK_THEMSELVES:
            mend_and_say(folder, secrets)
        check_format(folder)
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
    given: dict[str, Path] = {}  # what `home_flag` was given, for runtime.printing

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


def passphrase_command(
    program: str, home_option: Callable[[Any], Any], *, keys: Callable[[Any], Sequence[Path]], runs: str
) -> click.Command:
    """The command of one program. keys: the files that get the passphrase; runs: the command that serves from the
    home."""

    @click.command("passphrase", epilog=EPILOG)
    @click.option("--remove", is_flag=True, help="Store the keys without a passphrase.")
    @home_option
    def passphrase(remove: bool, home: Any) -> None:
        from runtime.key_files import lock_keys, new_passphrase, open_keys

        files = keys(home)
        opened = open_keys(files)
        lock_keys(opened, None if remove else new_passphrase(", ".join(map(str, files))))
        for each in files:
            click.echo(f"{each}: {'stored without a passphrase' if remove else 'has its passphrase'}")

    passphrase.help = f"""Set, change or remove the passphrase of this home's private keys.

    Then `{runs}` and every command that needs a key ask for it once, or take it from CONCLAVE_PASSPHRASE_COMMAND (a
    program that prints it), CONCLAVE_PASSPHRASE_FILE, systemd's credential conclave-passphrase or CONCLAVE_PASSPHRASE.

    \b
    Examples:
      {program} passphrase
      {program} passphrase --remove
    """
    return passphrase
