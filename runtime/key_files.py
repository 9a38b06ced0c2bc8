"""A program's private key as a file: PKCS #8, with or without a passphrase (PBES2), read once in a process."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec

from protocols.crypto.identity import PEM_BYTES, key_from_pem, key_to_pem
from protocols.errors import DataUnavailable, Refused
from protocols.reading import read_bytes
from protocols.refusals.code import Code
from runtime.files import write_atomically
from runtime.passphrase import passphrase

_ENCRYPTED: Final = b"BEGIN ENCRYPTED PRIVATE KEY"
# A passphrase is asked for once: the keys that it opened, by the file's content.
_opened: dict[bytes, ec.EllipticCurvePrivateKey] = {}


def locked(pem: bytes) -> bool:
    """Whether a PEM file is a key with a passphrase."""
    return _ENCRYPTED in pem


def read_key(path: Path, *, lost: str = "restore it from a backup, or give --home") -> ec.EllipticCurvePrivateKey:
    """The private key in a file; its passphrase, if it has one, is asked for once (runtime.passphrase).

    lost: what to do where there is no such file. Raises DataUnavailable, InvalidInput for something else, and
    Refused("key_locked").
    """
    try:
        pem = read_bytes(path, most=PEM_BYTES)
    except DataUnavailable:
        raise DataUnavailable(f"{path}, the private key, does not exist; {lost}") from None
    if not locked(pem):
        return key_from_pem(pem)
    if pem not in _opened:
        try:
            _opened[pem] = key_from_pem(pem, passphrase=passphrase(str(path)))
        except ValueError:
            raise Refused(Code.KEY_LOCKED, f"the passphrase does not open {path}") from None
    return _opened[pem]


def lock_key(path: Path, new: bytes | None) -> None:
    """Writes a key anew under another passphrase; None for none. Raises as read_key, and StorageFailed."""
    write_atomically(path, key_to_pem(read_key(path), passphrase=new))
