"""An archive of a home: one zip file of named parts, whole or with a passphrase around it.

With a passphrase the zip is sealed with AES-256-GCM under a key from scrypt (RFC 7914). The archive says what it is: a
backup, whose home may have answered since, or a move, whose home stopped for good when it was written.
"""

from __future__ import annotations

import io
import json
import os
import re
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from protocols.errors import DataCorrupt, InvalidInput, Refused
from protocols.reading import parse_json, read_bytes
from protocols.refusals.code import Code
from runtime.files import write_atomically

Kind = Literal["backup", "move"]
ABOUT: Final = "archive.json"
# What a home keeps: no records, which stay where they are, and nothing that can be made again from them.
PARTS: Final = re.compile(
    r"node\.toml|mapping\.toml|format|key\.pem|certificate\.pem|authority\.pem|invitation\.toml|home\.id|policy\.sqlite"
    r"|studies/[0-9a-f]{16}/(study\.toml|pool\.npy|ledger-[A-Za-z0-9._+-]{1,200}\.sqlite)"
)
_MAGIC: Final = b"conclave home 1 sealed\n"
_SALT, _NONCE = 16, 12
_MOST_BYTES: Final = 2**31 - 2**20
_MOST_PARTS: Final = 10_000
_COST: Final = 2**15


@dataclass(frozen=True)
class Archive:
    """kind; made: when, as text in UTC; party and consortium: whose home; parts: content by name, as PARTS allows."""

    kind: Kind
    made: str
    party: str
    consortium: str
    parts: Mapping[str, bytes] = field(repr=False)


def write_archive(path: Path, archive: Archive, *, passphrase: bytes | None) -> None:
    """Writes the file, for its owner alone. Raises InvalidInput where it exists or would be too large,
    StorageFailed."""
    if path.exists():
        raise InvalidInput(f"{path} exists; allowed: the name of a new file")
    about = {"kind": archive.kind, "made": archive.made, "party": archive.party, "consortium": archive.consortium}
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as zipped:
        for name, data in {ABOUT: json.dumps(about).encode(), **archive.parts}.items():
            zipped.writestr(zipfile.ZipInfo(name), data)
    plain = content.getvalue()
    if len(plain) > _MOST_BYTES:
        raise InvalidInput(f"the home has {len(plain)} bytes; allowed: {_MOST_BYTES}; copy its pools by hand")
    write_atomically(path, plain if passphrase is None else _sealed(plain, passphrase))


def read_archive(path: Path, *, passphrase: Callable[[], bytes]) -> Archive:
    """The archive in a file; passphrase: called where it has one.

    Raises DataUnavailable, DataCorrupt for anything else or a part that no home has, Refused("key_locked").
    """
    data = read_bytes(path, most=_MOST_BYTES + 2**20)
    if data.startswith(_MAGIC):
        data = _opened(path, data, passphrase())
    parts: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as zipped:
            listed = zipped.infolist()
            if len(listed) > _MOST_PARTS or sum(each.file_size for each in listed) > _MOST_BYTES:
                raise DataCorrupt(f"{path} claims {len(listed)} parts; allowed: an archive of a home")
            for each in listed:
                if each.compress_type != zipfile.ZIP_STORED or each.filename in parts:
                    raise DataCorrupt(f"{path} holds a part that is compressed or there twice")
                parts[each.filename] = zipped.read(each)
    except (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError, RuntimeError, OSError) as error:
        raise DataCorrupt(f"{path} is not an archive of a home, or was damaged: {type(error).__name__}") from None
    wrong = [name for name in parts if name != ABOUT and not PARTS.fullmatch(name)]
    if ABOUT not in parts or wrong:
        raise DataCorrupt(f"{path} holds {(wrong or ['no description'])[0][:80]!r}; allowed: the files of a home")
    about = parse_json(_text(path, parts.pop(ABOUT)), where=f"{path}: {ABOUT}")
    keys = ("kind", "made", "party", "consortium")
    if not isinstance(about, dict) or set(about) != set(keys) or not all(type(about[key]) is str for key in keys):
        raise DataCorrupt(f"{path}: {ABOUT} has other keys; allowed: {', '.join(keys)}")
    if about["kind"] not in ("backup", "move"):
        raise DataCorrupt(f"{path}: kind is {about['kind'][:20]!r}; allowed: backup or move")
    return Archive(about["kind"], about["made"][:40], about["party"][:80], about["consortium"][:80], parts)


def _text(path: Path, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise DataCorrupt(f"{path}: {ABOUT} is not text") from None


def _sealed(plain: bytes, passphrase: bytes) -> bytes:
    salt, nonce = os.urandom(_SALT), os.urandom(_NONCE)
    return _MAGIC + salt + nonce + AESGCM(_key(passphrase, salt)).encrypt(nonce, plain, _MAGIC)


def _opened(path: Path, data: bytes, passphrase: bytes) -> bytes:
    start = len(_MAGIC)
    salt, nonce = data[start : start + _SALT], data[start + _SALT : start + _SALT + _NONCE]
    if len(nonce) != _NONCE:
        raise DataCorrupt(f"{path} ends before its content; copy it again")
    try:
        return AESGCM(_key(passphrase, salt)).decrypt(nonce, data[start + _SALT + _NONCE :], _MAGIC)
    except InvalidTag:
        raise Refused(Code.KEY_LOCKED, f"the passphrase does not open {path}, or it was damaged") from None


def _key(passphrase: bytes, salt: bytes) -> bytes:
    """A key of 32 bytes; the cost is that of RFC 7914 for a file: 32 MB of memory and about 0.1 s a guess."""
    return Scrypt(salt=salt, length=32, n=_COST, r=8, p=1).derive(passphrase)
