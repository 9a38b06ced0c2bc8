"""A program's private keys as files: PKCS #8, with or without a passphrase (PBES2), read once in a process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from cryptography.hazmat.primitives.asymmetric import ec

from protocols.crypto.identity import PEM_BYTES, PrivateKey, key_to_pem, private_key_from_pem
from protocols.errors import DataUnavailable, InvalidInput, Refused
from protocols.reading import read_bytes
from protocols.refusals.code import Code
from runtime.files import write_atomically
from runtime.passphrase import passphrase

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
    """The private key in a file; its passphrase, if it has one, is asked for once (runtime.passphrase).

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
        return private_key_from_pem(pem, passphrase=passphrase(str(path)))
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
