"""Files and folders that only their owner can use, whatever the umask and their earlier permissions.

Folders are 0700 and files 0600, from their creation. A database is never opened here once it exists: closing another
descriptor of it would drop the locks that SQLite holds in this process.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import IO, Final

from protocols.errors import StorageFailed

_FILE: Final = 0o600
_FOLDER: Final = 0o700
_OTHERS: Final = 0o077
_BESIDE: Final = ("-wal", "-shm", "-journal")


def private_database(path: Path | str) -> Path | str:
    """Returns `path` once it is a file that only its owner can use; ":memory:" is returned unchanged.

    SQLite gives its auxiliary files the same permissions; existing ones are tightened. Raises StorageFailed if it
    cannot be made, is not a file, or belongs to somebody else.
    """
    if str(path) == ":memory:":
        return path
    try:
        try:
            made = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE)
        except FileExistsError:
            pass
        else:
            os.fchmod(made, _FILE)  # the umask may have taken away more
            os.close(made)
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise StorageFailed(f"{path} is a folder, a pipe or a device; allowed: a database")
        for each in (str(path), *(f"{path}{ending}" for ending in _BESIDE)):
            _tighten(Path(each))
    except OSError as error:
        raise StorageFailed(f"{path} cannot be opened: {error.strerror}; check its folder and who owns it") from error
    return path


def open_private(path: Path, mode: str) -> IO[bytes]:
    """A file open for writing that only its owner can use; mode: "wb" or "ab". Raises OSError as open does."""

    def opener(name: str, flags: int) -> int:
        descriptor = os.open(name, flags | os.O_CLOEXEC, _FILE)
        os.fchmod(descriptor, _FILE)
        return descriptor

    return open(path, mode, opener=opener)  # type: ignore[return-value]  # of "wb" and "ab" it is


def private_folder(path: Path) -> None:
    """Creates a folder, and missing ones above it, that only their owner can use; existing ones stay unchanged.

    Raises StorageFailed.
    """
    try:
        missing = [each for each in (path, *path.parents) if not each.exists()]
        for each in reversed(missing):
            each.mkdir(mode=_FOLDER, exist_ok=True)
            each.chmod(_FOLDER)  # the umask may have taken away more
    except OSError as error:
        raise StorageFailed(f"cannot make {path}: {error.strerror or error}; choose another folder") from error


def open_to_others(home: Path) -> list[Path]:
    """The paths, of the folder and its content, that others than the owner may read, write or enter. Raises
    StorageFailed."""
    found = []
    for each in _below(home):
        try:
            if each.lstat().st_mode & _OTHERS:
                found.append(each)
        except FileNotFoundError:
            pass  # another process of the home deleted it meanwhile
        except OSError as error:
            raise StorageFailed(f"cannot look through {home}: {error.strerror or error}; check who owns it") from error
    return found


def tighten(home: Path) -> list[Path]:
    """Restricts the folder and its content to its owner; returns what others could read before. Raises StorageFailed.

    Links, and what they point to, are left unchanged.
    """
    found = open_to_others(home)
    try:
        for each in found:
            _tighten(each)
    except OSError as error:
        raise StorageFailed(f"{error.filename} may be read by others; chmod it, as its owner: {error}") from error
    return found


def _below(home: Path) -> list[Path]:
    found = [home]
    for folder, folders, files in os.walk(home):
        found += [Path(folder) / each for each in sorted(folders + files)]
    return [each for each in found if not each.is_symlink() and each.exists()]


def _tighten(path: Path) -> None:
    try:
        mode = os.stat(path).st_mode
        if mode & _OTHERS:
            os.chmod(path, _FOLDER if stat.S_ISDIR(mode) else _FILE)
    except FileNotFoundError:
        pass  # SQLite removes its files when the last connection closes
