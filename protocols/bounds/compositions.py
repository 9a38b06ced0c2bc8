"""Compositions that were computed once are kept: in memory, and on disk in the user's cache folder.

The folder is $CONCLAVE_CACHE, or conclave in $XDG_CACHE_HOME or ~/.cache. A file is written whole or not at all, and
read only if its digest holds; one that cannot be written or read costs a second of computing, nothing else. Whoever can
write there can already change the program.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from protocols.array_files import array_bytes, parse_array
from protocols.bounds.exact_composition import DEPTH, Composition, compose
from protocols.bounds.label_pairs import PairKind
from protocols.errors import DataCorrupt, DataUnavailable, StorageFailed
from protocols.private_files import private_folder
from protocols.reading import read_bytes

# Changes with every change of the numbers.
VERSION: Final = 1
_MOST_FILES: Final = 400
_MOST_BYTES: Final = 2**27
_DIGEST: Final = 32
# What stands before the values: spacing, first grid point, factor, drift.
_HEAD: Final = 4


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
    path = cache_folder() / f"{_name(kind, shift, depth)}.npy"
    found = _read(path, kind, shift, depth)
    if found is None:
        found = compose(kind, shift, queries=depth)
        with suppress(OSError, StorageFailed):
            _write(path, found)
    return found


def cache_folder() -> Path:
    """Where compositions are kept on disk."""
    own = os.environ.get("CONCLAVE_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    root = Path(own).expanduser() if own else Path(base).expanduser() / "conclave"
    return root / f"compositions-{VERSION}"


def _name(kind: PairKind, shift: float, depth: int) -> str:
    told = f"{VERSION} {kind.classes} {kind.ties!r} {shift!r} {depth}"
    return hashlib.sha256(told.encode()).hexdigest()[:32]


def _digest(path: Path, body: bytes) -> bytes:
    """Of the name too, so that a file holds for one composition only."""
    return hashlib.sha256(path.name.encode() + body).digest()


def _read(path: Path, kind: PairKind, shift: float, depth: int) -> Composition | None:
    try:
        content = read_bytes(path, most=_MOST_BYTES)
        if _digest(path, content[_DIGEST:]) != content[:_DIGEST]:
            return None
        held: Float64[ndarray, "..."] = parse_array(content[_DIGEST:], where=str(path))
    except (OSError, DataCorrupt, DataUnavailable):
        return None
    if held.ndim != 1 or held.dtype != np.float64 or (len(held) - _HEAD) % (depth + 1):
        return None
    spacing, first, factor, drift = held[:_HEAD].tolist()
    rows = held[_HEAD:].reshape(depth + 1, -1)
    return Composition(kind, shift, spacing, int(first), rows, factor, drift)


def _write(path: Path, made: Composition) -> None:
    folder = path.parent
    private_folder(folder)
    head = np.array([made.spacing, made.first, made.factor, made.drift])
    body = array_bytes(np.concatenate([head, made.rows.ravel()]))
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
