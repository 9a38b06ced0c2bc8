"""Writing files so that nothing half-written is ever found: write beside, fsync, rename."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from protocols.errors import StorageFailed
from protocols.private_files import private_folder


def write_atomically(path: Path, content: bytes | str) -> None:
    """Writes the whole file or nothing, for its owner alone (0600). Raises StorageFailed; nothing remains then."""
    data = content.encode() if isinstance(content, str) else content
    part: Path | None = None
    try:
        private_folder(path.parent)
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        part = Path(name)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)  # the umask may have taken away more
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        if part is not None:
            part.unlink(missing_ok=True)
        raise StorageFailed(
            f"cannot write {path}: {error.strerror or error}; free space or choose another folder"
        ) from error
