"""The one reader of CSV tables (RFC 4180, UTF-8, with a header); values are strings."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from protocols.array_files import FILE_BYTES
from protocols.errors import DataCorrupt
from protocols.reading import open_file

# A table with more values is refused before it is encoded.
VALUES: Final = 2**31
_COLUMNS: Final = 20_000


def read_csv(path: Path, names: Sequence[str] | None = None, *, delimiter: str = ",") -> dict[str, list[str]]:
    """The named columns of a CSV file, or all, each once. Empty lines are skipped.

    Raises DataUnavailable if it is absent, DataCorrupt if it is not such a table, and as wanted_columns does.
    """
    texts: dict[str, str] = {}  # most tables repeat few distinct strings: each is stored once
    try:
        with open_file(path, most=FILE_BYTES) as file, io.TextIOWrapper(file, "utf-8-sig", newline="") as lines:
            reader = csv.reader(lines, delimiter=delimiter, strict=True)
            header = [name.strip() for name in next(reader, [])]
            if not header:
                raise DataCorrupt(f"{path} has no header in its first row; allowed: a row of column names")
            if len(header) > _COLUMNS:
                raise DataCorrupt(f"{path} has {len(header)} columns; allowed: at most {_COLUMNS}")
            kept: dict[str, list[str]] = {
                name: [] for name in wanted_columns(path, header if names is None else names, header)
            }
            columns = [(column, header.index(name)) for name, column in kept.items()]
            for row, fields in enumerate((fields for fields in reader if fields), start=1):
                if len(fields) != len(header):
                    raise DataCorrupt(
                        f"{path}: row {row} (line {reader.line_num}) has {len(fields)} fields; allowed: {len(header)}, "
                        "as in the header"
                    )
                if row * len(columns) > VALUES:
                    raise DataCorrupt(f"{path} has more than {VALUES} values; allowed: at most that")
                for column, place in columns:
                    text = fields[place]
                    column.append(texts.setdefault(text, text))
    except (csv.Error, OSError, UnicodeDecodeError) as error:
        raise DataCorrupt(f"{path} cannot be read: {str(error)[:200]}; allowed: CSV in UTF-8 with a header") from error
    return kept


def wanted_columns(path: Path, names: Sequence[str], present: Sequence[str]) -> list[str]:
    """The names, each once. Raises DataCorrupt for one that the file's table lacks or has twice."""
    wanted = list(dict.fromkeys(names))
    for name in wanted:
        count = list(present).count(name)
        if count != 1:
            raise DataCorrupt(
                f"{path}: column {name!r} occurs {count} times; allowed: once; the columns are "
                f"{', '.join(present)[:500]}"
            )
    return wanted
