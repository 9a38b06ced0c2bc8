"""Files of published data sets: read with limits, and held to their published content.

A checksum here is taken over decoded content: the SHA-256 of the SHA-256 digests of the single rows, sorted first where
the order of rows carries no meaning. An official download, a recompressed copy and a shuffled one all pass; a changed
value, a missing or a doubled row does not.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from collections.abc import Iterable
from pathlib import Path

from protocols import reading
from protocols.errors import DataCorrupt, DataUnavailable

_FILE_BYTES = 2**31
_CHUNK_BYTES = 2**20


def read_unpacked(path: Path) -> bytes:
    """The file's content, decompressed when its name ends in .gz. Raises DataCorrupt when it cannot be
    read."""
    try:
        content = reading.read_bytes(path, most=_FILE_BYTES)
        if path.suffix != ".gz":
            return content
        with gzip.open(io.BytesIO(content)) as file:
            parts = []
            while part := file.read(_CHUNK_BYTES):  # in chunks, as a read allocates what it is asked for
                parts.append(part)
                if len(parts) * _CHUNK_BYTES > _FILE_BYTES:
                    raise DataCorrupt(f"{path} unpacks to more than {_FILE_BYTES} bytes; allowed: at most that")
        return b"".join(parts)
    except (DataUnavailable, OSError, EOFError, zlib.error) as error:
        raise DataCorrupt(f"{path} cannot be read: {error}; allowed: a readable, complete file") from error


def read_lines(path: Path) -> list[str]:
    """The file's lines without trailing blanks; empty lines are left out. Raises DataCorrupt."""
    try:
        text = read_unpacked(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataCorrupt(f"{path} is not UTF-8 text: {error}; allowed: UTF-8") from error
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def line_digests(lines: Iterable[str]) -> list[bytes]:
    """The SHA-256 of each line."""
    return [hashlib.sha256(line.encode()).digest() for line in lines]


def check_content(path: Path, digests: list[bytes], expected: str, *, ordered: bool) -> None:
    """Raises DataCorrupt unless the rows, in any order unless `ordered`, are those that were published."""
    content = hashlib.sha256(b"".join(digests if ordered else sorted(digests))).hexdigest()
    if content != expected:
        raise DataCorrupt(
            f"{path} does not hold the published rows{' in their order' if ordered else ''}: {len(digests)} "
            f"rows with content checksum {content}; expected {expected}"
        )
