"""A program's own files and folders: written whole or not at all, for their owner only, by one process at a time."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from protocols.errors import DataUnavailable, InvalidInput, Refused, StorageFailed
from protocols.private_files import open_private, private_folder
from protocols.reading import read_bytes
from protocols.refusals.code import Code

_FILE_BYTES: Final = 2**20
# The one format of a home's files so far; another would be named in a file `format`.
_FORMAT: Final = "1"


def write_atomically(path: Path, content: bytes | str | Sequence[bytes | memoryview]) -> None:
    """Writes the whole file or nothing, readable by its owner only (0600); creates the folder if it is missing.

    content: in several parts where it is too large to be copied into one.

    Once it returns, the file survives a crash of the machine. Raises StorageFailed; an earlier file is intact then.
    """
    pieces = [content.encode()] if isinstance(content, str) else [content] if isinstance(content, bytes) else content
    part: Path | None = None
    try:
        private_folder(path.parent)
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # created with mode 0600
        part = Path(name)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)  # the umask may have removed more
            for each in pieces:
                file.write(each)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        sync(path.parent)
    except OSError as error:
        if part is not None:
            part.unlink(missing_ok=True)
        raise StorageFailed(
            f"cannot write {path}: {error.strerror or error}; free space or choose another folder"
        ) from error


@contextmanager
def folder_beside(folder: Path) -> Iterator[Path]:
    """A new private folder beside `folder`, to be filled and then given its name by `put_in_place`; whatever still is
    in it at the end is deleted. The folder in which both lie must exist.

    Raises StorageFailed, also for an OSError of the body; then `folder` is as it was, or absent.
    """
    part: Path | None = None
    try:
        part = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        yield part
    except OSError as error:
        raise StorageFailed(
            f"cannot write {folder}: {error.strerror or error}; free space or choose another folder"
        ) from error
    finally:
        if part is not None:
            shutil.rmtree(part, ignore_errors=True)


def put_in_place(part: Path, folder: Path, *, replace: bool = False) -> None:
    """Flushes a filled folder to disk and gives it its name, so that `folder` is complete or absent after a crash.

    No database in it may be open. replace: whether an earlier `folder` is deleted first; otherwise one that holds
    anything raises OSError, as every other failure does.
    """
    for path in [*part.rglob("*"), part]:
        sync(path)
    if replace and folder.exists():
        aside = tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent, ignore_cleanup_errors=True)
        with aside as earlier:
            folder.rename(Path(earlier) / folder.name)  # in one step, so that no half of it keeps the name
            part.rename(folder)
    else:
        part.rename(folder)
    sync(folder.parent)


def sync(path: Path) -> None:
    """Flushes a file or a folder to disk: of a folder, the names in it. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_format(folder: Path) -> None:
    """Raises Refused("home_format") unless this version reads and writes the format of a home's files."""
    try:
        found = read_bytes(folder / "format", most=_FILE_BYTES).decode(errors="replace").strip()
    except DataUnavailable:
        return
    if found != _FORMAT:
        raise Refused(Code.HOME_FORMAT, f"{folder} has format {found[:20]!r}; allowed: {_FORMAT}")


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


@contextmanager
def alone(path: Path, refused: Refused) -> Iterator[None]:
    """Locks the file `path`. Raises `refused` if another process has locked it, StorageFailed if it cannot be
    opened.
    """
    private_folder(path.parent)
    try:
        file = open_private(path, "ab")
    except OSError as error:
        raise StorageFailed(f"cannot open {path}: {error.strerror}; check who owns its folder") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise refused from None
        yield


def serving_alone(path: Path) -> Refused:
    """The refusal when another `serve` holds the lock `path` of a home."""
    return Refused(Code.ALREADY_SERVING, f"another serve runs on {path.parent}; allowed: one per home")
