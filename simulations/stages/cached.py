"""What stages keep on disk and make again where it is missing."""

from __future__ import annotations

from pathlib import Path

from numpy import ndarray

from protocols.array_files import read_array
from protocols.errors import DataCorrupt, DataUnavailable, StorageFailed


def cached_array(path: Path, *, mapped: bool = False) -> ndarray | None:
    """A cached array; None if there is no readable one, so that it is computed again."""
    try:
        return read_array(path, mapped=mapped)
    except (DataUnavailable, DataCorrupt):
        return None


def make_cache(*folders: Path, cache_dir: Path) -> None:
    """Makes these folders of a cache. Raises StorageFailed, which names the cache."""
    try:
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageFailed(
            f"cannot use the cache {cache_dir}: {error.strerror}; choose another --cache-dir"
        ) from error
