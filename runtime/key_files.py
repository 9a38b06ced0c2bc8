"""A program's private keys as files: PKCS #8, with or without a passphrase (PBES2), read once in a process.

Services have no terminal: CONCLAVE_PASSPHRASE_COMMAND names a program that prints the passphrase (a password store's),
or CONCLAVE_PASSPHRASE_FILE a file; systemd's LoadCredential is read from its own folder.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

import click
from cryptography.hazmat.primitives.asymmetric import ec

from protocols.crypto.identity import PEM_BYTES, PrivateKey, key_to_pem, private_key_from_pem
from protocols.errors import DataUnavailable, InvalidInput, Refused
from protocols.reading import read_bytes
from protocols.refusals.code import Code
from runtime.files import write_atomically

_BYTES: Final = 1024
_COMMAND, _FILE, _TEXT = "CONCLAVE_PASSPHRASE_COMMAND", "CONCLAVE_PASSPHRASE_FILE", "CONCLAVE_PASSPHRASE"
_CREDENTIAL: Final = "conclave-passphrase"
_COMMAND_S: Final = 60.0


def read_passphrase(whose: str) -> bytes:
    """The passphrase, without a line's end: of the helper, the file, systemd's credential or the variable, in this
    order; otherwise typed at the terminal.

    whose: what it opens, for the prompt. Raises Refused("key_locked") where there is none.
    """
    return _given() or _typed(whose, "Passphrase", confirm=False)


def new_passphrase(whose: str) -> bytes:
    """A new passphrase: typed twice at the terminal, also where the environment has one, which opens what there is; as
    read_passphrase where there is no terminal.
    """
    return _typed(whose, "New passphrase", confirm=True) if sys.stdin.isatty() else read_passphrase(whose)


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


_ENCRYPTED: Final = b"BEGIN ENCRYPTED PRIVATE KEY"
# A passphrase is asked for once: the keys that it opened, by the file's content.
_opened: dict[bytes, PrivateKey] = {}
_LOST: Final = "restore it from a backup, or give --home"

K = TypeVar("K", bound=PrivateKey)


def locked(pem: bytes) -> bool:
    """Whether a PEM file is a key with a passphrase."""
    return _ENCRYPTED in pem


def read_key(path: Path, *, lost: str = _LOST) -> ec.EllipticCurvePrivateKey:
    """The P-256 key in a file; see `read_key_of`."""
    return read_key_of(ec.EllipticCurvePrivateKey, path, lost=lost)  # type: ignore[type-abstract]  # what a key is an instance of


def read_key_of(kind: type[K], path: Path, *, lost: str = _LOST) -> K:
    """The private key in a file; its passphrase, if it has one, is asked for once in a process.

    lost: what to do where there is no such file. Raises DataUnavailable, InvalidInput for something else, and
    Refused("key_locked").
    """
    key = _read(path, lost)
    if not isinstance(key, kind):
        raise InvalidInput(f"{path} holds a key of another kind; allowed: {kind.__name__.removesuffix('PrivateKey')}")
    return key


def _read(path: Path, lost: str) -> PrivateKey:
    try:
        pem = read_bytes(path, most=PEM_BYTES)
    except DataUnavailable:
        raise DataUnavailable(f"{path}, the private key, does not exist; {lost}") from None
    if not locked(pem):
        try:
            return private_key_from_pem(pem)
        except InvalidInput as error:
            raise InvalidInput(f"{path}: {error}") from None
    if pem not in _opened:
        _opened[pem] = _unlocked(pem, path)
    return _opened[pem]


def _unlocked(pem: bytes, path: Path) -> PrivateKey:
    try:
        return private_key_from_pem(pem, passphrase=read_passphrase(str(path)))
    except InvalidInput:
        raise
    except ValueError:
        raise Refused(Code.KEY_LOCKED, f"the passphrase does not open {path}") from None


def open_keys(paths: Sequence[Path]) -> dict[Path, PrivateKey]:
    """The private keys in files, of any kind. Raises as `read_key_of`."""
    return {path: _read(path, _LOST) for path in paths}


def lock_keys(keys: Mapping[Path, PrivateKey], new: bytes | None) -> None:
    """Writes keys into their files under a passphrase; None for none. Raises StorageFailed."""
    for path, key in keys.items():
        write_atomically(path, key_to_pem(key, passphrase=new))
