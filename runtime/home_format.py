"""The format of a home's files, and what brings an older home up to it.

A home whose format changed has a file `format` with a number; without one it has the first. So far there is one format
and nothing to migrate. docs/how-to/upgrade.md says what may change in which version.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from protocols.errors import DataUnavailable, InvalidInput, Refused, StorageFailed
from protocols.reading import read_text
from protocols.refusals.code import Code
from runtime.files import write_atomically

FIRST_FORMAT: Final = 1
_FORMAT_FILE: Final = "format"
_FORMAT_BYTES: Final = 20


@dataclass(frozen=True)
class Migration:
    """One step from a format to the next. change: what it does to the files, as a sentence; apply: does it."""

    change: str
    apply: Callable[[Path], None]


# Of every program's home: the first leads from format 1 to 2, and so on.
MIGRATIONS: Final[Sequence[Migration]] = ()


def newest_format(migrations: Sequence[Migration] = MIGRATIONS) -> int:
    """The format that this version reads and writes."""
    return FIRST_FORMAT + len(migrations)


def home_format(folder: Path) -> int:
    """The format of a home's files, at least 1. Raises InvalidInput if the file holds no such number."""
    try:
        text = read_text(folder / _FORMAT_FILE, most=_FORMAT_BYTES).strip()
    except DataUnavailable:
        return FIRST_FORMAT
    if not (text.isascii() and text.isdigit() and int(text) >= FIRST_FORMAT):
        raise InvalidInput(f"{folder / _FORMAT_FILE} holds {text!r}; allowed: a number from {FIRST_FORMAT}")
    return int(text)


def check_format(folder: Path, *, program: str, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Raises Refused("home_format") unless this version reads and writes the home's format."""
    found, newest = home_format(folder), newest_format(migrations)
    if found < newest:
        raise Refused(Code.HOME_FORMAT, f"{folder} has format {found}; allowed: {newest}: run {program} upgrade")
    if found > newest:
        raise Refused(
            Code.HOME_FORMAT,
            f"{folder} has format {found}, of a later version; allowed: {newest}: install the version that wrote it",
        )


def pending(folder: Path, migrations: Sequence[Migration] = MIGRATIONS) -> Sequence[Migration]:
    """What is still to be done to this home, in order. Raises Refused("home_format") if it is of a later version."""
    found = home_format(folder)
    if found > newest_format(migrations):
        check_format(folder, program="", migrations=migrations)
    return migrations[found - FIRST_FORMAT :]


def migrate(folder: Path, migrations: Sequence[Migration] = MIGRATIONS) -> Path | None:
    """Copies the home beside itself, then brings it up to date; returns the copy, None where nothing was to be done.

    Nothing may run from the home meanwhile. Each step ends with the new number, so a migration that was cut off is
    continued by the next call. Raises StorageFailed if the copy cannot be made, or exists: nothing was changed then.
    """
    steps, found = pending(folder, migrations), home_format(folder)
    if not steps:
        return None
    copy = folder.with_name(f"{folder.name}.format-{found}")
    try:
        shutil.copytree(folder, copy, symlinks=True)
    except (OSError, shutil.Error) as error:
        raise StorageFailed(f"{folder} was not copied to {copy}, so nothing was changed: {error}") from error
    for reached, step in enumerate(steps, start=found + 1):
        step.apply(folder)
        write_atomically(folder / _FORMAT_FILE, f"{reached}\n".encode())
    return copy
