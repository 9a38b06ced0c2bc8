"""A program's own files: written as a whole or not at all, and readable by their owner only."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

from protocols.errors import DataUnavailable, InvalidInput, StorageFailed
from protocols.private_files import private_folder
from protocols.reading import read_bytes

_FILE_BYTES: Final = 2**20


def write_atomically(path: Path, content: bytes | str) -> None:
    """Writes the whole file or nothing, readable by its owner only (0600); creates the folder if it is missing.

    Once it returns, the file survives a crash of the machine. Raises StorageFailed; an earlier file is intact then.
    """
    data = content.encode() if isinstance(content, str) else content
    part: Path | None = None
    try:
        private_folder(path.parent)
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # created with mode 0600
        part = Path(name)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)  # the umask may have removed more
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        if part is not None:
            part.unlink(missing_ok=True)
        raise StorageFailed(
            f"cannot write {path}: {error.strerror or error}; free space or choose another folder"
        ) from error


def sync_folder(folder: Path) -> None:
    """Flushes a folder to disk, so that the names in it survive a crash of the machine."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read(path: Path) -> bytes:
    """The content of a file in a program's home. Raises DataUnavailable, DataCorrupt."""
    try:
        return read_bytes(path, most=_FILE_BYTES)
    except DataUnavailable:
        raise DataUnavailable(f"{path} does not exist; restore it from a backup, or give --home") from None


def read_received(path: Path) -> bytes:
    """The content of a file from somebody else. Raises DataUnavailable, or InvalidInput if it is far too large."""
    if path.exists() and path.stat().st_size > _FILE_BYTES:
        raise InvalidInput(f"{path} has {path.stat().st_size} bytes; allowed: at most {_FILE_BYTES}")
    return read_bytes(path, most=_FILE_BYTES)
