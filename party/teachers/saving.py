"""Writing a teacher's file whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from protocols.errors import StorageFailed


def write_whole(path: Path, content: bytes) -> None:
    """Writes `content` to `path`: to a temporary file beside it, flushed to disk, then renamed.

    Raises StorageFailed; `path` then still holds what it held before.
    """
    temporary = ""
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as failure:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise StorageFailed(f"cannot write the teacher {path}: {failure.strerror or failure}") from failure
