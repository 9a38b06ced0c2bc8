"""One process at a time: a lock that the system releases when its process ends, however it ends."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from protocols.errors import Refused, StorageFailed
from protocols.private_files import open_private, private_folder
from protocols.refusals.code import Code


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
