"""Compositions that were computed once are kept: in memory, and on disk in the user's cache folder.

The folder is $CONCLAVE_CACHE, or conclave in $XDG_CACHE_HOME or ~/.cache. A file is written whole or not at all. It is
read only if nobody else can write it, its digest holds, and its values can be those of the composition; one that cannot
be written or read costs a second of computing, nothing else.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from protocols.array_files import array_bytes, parse_array
from protocols.bounds.exact_composition import DEPTH, Composition, assembled, compose
from protocols.bounds.label_pairs import PairKind
from protocols.errors import DataCorrupt, DataUnavailable, InvalidInput, StorageFailed
from protocols.private_files import private_folder
from protocols.reading import read_bytes

# Changes with every change of the numbers.
TABLE_VERSION: Final = 2
_MOST_FILES: Final = 400
_MOST_BYTES: Final = 2**27
_DIGEST: Final = 32
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


def composition(kind: PairKind, shift: float, *, queries: int) -> Composition:
    """`compose`, kept. What it holds depends on the power of two that covers `queries`, up to DEPTH, and nothing else.

    Raises InvalidInput.
    """
    depth = 1
    while depth < min(queries, DEPTH):
        depth *= 2
    return _kept(kind, float(shift), depth)


@lru_cache(maxsize=32)
def _kept(kind: PairKind, shift: float, depth: int) -> Composition:
    try:
        path = cache_folder() / f"{_name(kind, shift, depth)}.npy"
    except RuntimeError:  # a user without a home folder, as in containers
        return compose(kind, shift, queries=depth)
    found = _read(path, kind, shift, depth)
    if found is None:
        found = compose(kind, shift, queries=depth)
        with suppress(OSError, StorageFailed):
            _write(path, found)
    return found


def cache_folder() -> Path:
    """Where compositions are kept on disk. Raises RuntimeError for a user without a home folder."""
    own = os.environ.get("CONCLAVE_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    root = Path(own).expanduser() if own else Path(base).expanduser() / "conclave"
    return root / f"compositions-{TABLE_VERSION}"


def _name(kind: PairKind, shift: float, depth: int) -> str:
    told = f"{TABLE_VERSION} {kind.classes} {kind.ties!r} {shift!r} {depth}"
    return hashlib.sha256(told.encode()).hexdigest()[:32]


def _digest(path: Path, body: bytes) -> bytes:
    """Of the name too, so that a file holds for one composition only."""
    return hashlib.sha256(path.name.encode() + body).digest()


def _read(path: Path, kind: PairKind, shift: float, depth: int) -> Composition | None:
    try:
        if not (_own(path.parent) and _own(path)):
            return None
        content = read_bytes(path, most=_MOST_BYTES)
        if _digest(path, content[_DIGEST:]) != content[:_DIGEST]:
            return None
        held: Float64[ndarray, "..."] = parse_array(content[_DIGEST:], where=str(path))
    except (OSError, DataCorrupt, DataUnavailable):
        return None
    if held.ndim != 2 or held.dtype != np.float64 or len(held) != depth + 1:
        return None
    try:
        return assembled(kind, shift, held)
    except InvalidInput:
        return None


def _own(path: Path) -> bool:
    """Whether a file or folder is the user's own, and nobody else may write it."""
    found = path.stat()
    return found.st_uid == os.getuid() and not found.st_mode & _OTHERS_WRITE


def _write(path: Path, made: Composition) -> None:
    folder = path.parent
    private_folder(folder)
    body = array_bytes(made.rows)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=folder)
    part = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(_digest(path, body) + body)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
    kept = sorted(folder.glob("*.npy"), key=lambda each: each.stat().st_mtime)
    for old in kept[:-_MOST_FILES]:
        old.unlink(missing_ok=True)
