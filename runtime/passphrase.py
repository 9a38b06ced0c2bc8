"""Where the passphrase of a key or a backup comes from: a helper's output, a file, the environment, or the terminal.

Services have no terminal: CONCLAVE_PASSPHRASE_COMMAND names a program that prints it (a password store's), or
CONCLAVE_PASSPHRASE_FILE a file; systemd's LoadCredential is read from its own folder.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

import click

from protocols.errors import DataUnavailable, Refused
from protocols.reading import read_bytes
from protocols.refusals.code import Code

_BYTES: Final = 1024
_COMMAND, _FILE, _TEXT = "CONCLAVE_PASSPHRASE_COMMAND", "CONCLAVE_PASSPHRASE_FILE", "CONCLAVE_PASSPHRASE"
_CREDENTIAL: Final = "conclave-passphrase"
_COMMAND_S: Final = 60.0


def passphrase(whose: str) -> bytes:
    """The passphrase, without a line's end: of the helper, the file, systemd's credential or the variable, in this
    order; otherwise typed at the terminal.

    whose: what it opens, for the prompt. Raises Refused("key_locked") where there is none.
    """
    return _given() or _typed(whose, "Passphrase", confirm=False)


def new_passphrase(whose: str) -> bytes:
    """A new passphrase: typed twice at the terminal, also where the environment has one, which opens what there is; as
    `passphrase` where there is no terminal.
    """
    return _typed(whose, "New passphrase", confirm=True) if sys.stdin.isatty() else passphrase(whose)


def _typed(whose: str, what: str, *, confirm: bool) -> bytes:
    if sys.stdin.isatty():
        typed = click.prompt(f"{what} of {whose}", hide_input=True, confirmation_prompt=confirm, err=True)
        if typed:
            return str(typed).encode()
    raise Refused(
        Code.KEY_LOCKED,
        f"{whose} needs a passphrase, and there is no terminal; allowed: {_COMMAND}, {_FILE} or {_TEXT}",
    )


def _given() -> bytes | None:
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    if command := os.environ.get(_COMMAND):
        return _printed(command)
    if file := os.environ.get(_FILE):
        return _content(Path(file).expanduser())
    if folder and (Path(folder) / _CREDENTIAL).exists():
        return _content(Path(folder) / _CREDENTIAL)
    text = os.environ.get(_TEXT)
    return None if text is None else text.encode()


def _printed(command: str) -> bytes:
    """What a credential helper prints on its standard output, up to the line's end."""
    try:
        done = subprocess.run(shlex.split(command), stdout=subprocess.PIPE, timeout=_COMMAND_S, check=True)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        reason = type(error).__name__ if isinstance(error, subprocess.SubprocessError) else error
        raise Refused(Code.KEY_LOCKED, f"{_COMMAND} gave no passphrase: {reason}") from None
    return done.stdout[:_BYTES].rstrip(b"\r\n")


def _content(path: Path) -> bytes:
    try:
        return read_bytes(path, most=_BYTES).rstrip(b"\r\n")
    except DataUnavailable as error:
        raise Refused(Code.KEY_LOCKED, f"the file of the passphrase: {error}") from None
