"""passphrase: the passphrase of a home's private keys. Every program has this command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any  # a home of any program

import click

from runtime.cli import EPILOG


def passphrase_command(
    program: str, home_option: Callable[[Any], Any], *, keys: Callable[[Any], Sequence[Path]], runs: str
) -> click.Command:
    """The command of one program. keys: the files that get the passphrase; runs: the command that serves from the
    home."""

    @click.command("passphrase", epilog=EPILOG)
    @click.option("--remove", is_flag=True, help="Store the keys without a passphrase.")
    @home_option
    def passphrase(remove: bool, home: Any) -> None:
        from runtime.key_files import lock_keys, open_keys
        from runtime.passphrase import new_passphrase

        files = keys(home)
        opened = open_keys(files)
        lock_keys(opened, None if remove else new_passphrase(", ".join(map(str, files))))
        for each in files:
            click.echo(f"{each}: {'stored without a passphrase' if remove else 'has its passphrase'}")

    passphrase.help = f"""Set, change or remove the passphrase of this home's private keys.

    `{runs}` and every command that needs a key ask for it once, or take it from CONCLAVE_PASSPHRASE_COMMAND (a program
    that prints it), CONCLAVE_PASSPHRASE_FILE, systemd's credential conclave-passphrase or CONCLAVE_PASSPHRASE.

    \b
    Examples:
      {program} passphrase
      {program} passphrase --remove
    """
    return passphrase
