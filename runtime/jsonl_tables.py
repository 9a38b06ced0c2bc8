"""Tables of JSON lines (.jsonl, .ndjson): an object a line, read as the strings that a CSV file would hold."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final  # Any: what JSON gives, checked here

from protocols.array_files import FILE_BYTES
from protocols.errors import DataCorrupt
from protocols.reading import open_file, parse_json
from runtime.tables import VALUES, wanted_columns

# A line that is longer is refused before it is read to its end.
LINE_BYTES: Final = 2**24


def jsonl_header(path: Path) -> list[str]:
    """The keys of the first object. Raises DataUnavailable, DataCorrupt."""
    return list(next(_objects(path), {}))


def read_jsonl(path: Path, names: Sequence[str] | None, *, missing: str) -> dict[str, list[str]]:
    """The named keys of every object, or those of the first one, as strings; null or an absent key is `missing`.

    Numbers and true are written as JSON writes them. Empty lines are skipped. Raises DataUnavailable, and
    DataCorrupt naming the row for an object or a list as a value, and where the first object lacks a name.
    """
    kept: dict[str, list[str]] = {}
    row = 0
    for row, found in enumerate(_objects(path), start=1):
        if row == 1:
            present = list(found)
            kept = {name: [] for name in wanted_columns(path, present if names is None else names, present)}
        if row * len(kept) > VALUES:
            raise DataCorrupt(f"{path} has more than {VALUES} values; allowed: at most that")
        for name, column in kept.items():
            column.append(_text(found.get(name), missing, f"{path}: row {row}: {name!r}"))
    return kept if row else {name: [] for name in names or ()}


def _objects(path: Path) -> Iterator[dict[str, Any]]:
    row = 0
    with open_file(path, most=FILE_BYTES) as file:
        while line := file.readline(LINE_BYTES + 1):
            if len(line) > LINE_BYTES:
                raise DataCorrupt(f"{path}: row {row + 1} has more than {LINE_BYTES} bytes; allowed: at most that")
            # Windows programs begin a file with a mark.
            line = line if row else line.removeprefix(codecs.BOM_UTF8)
            if not line.strip():
                continue
            row += 1
            found = parse_json(line, where=f"{path}: row {row}")
            if not isinstance(found, dict):
                raise DataCorrupt(f"{path}: row {row} is no object; allowed: one object a line")
            yield found


def _text(value: object, missing: str, where: str) -> str:
    match value:
        case None:
            return missing
        case str():
            return value
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)
    raise DataCorrupt(f"{where} is {type(value).__name__}; allowed: text, a number, true, false or null")
