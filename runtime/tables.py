"""The one reader of CSV tables (RFC 4180, with a header; a file that ends in .gz is unpacked); values are strings."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import itertools
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from protocols.array_files import FILE_BYTES, check_unpacked
from protocols.errors import DataCorrupt
from protocols.reading import open_file

# A table with more values is refused before it is encoded.
VALUES: Final = 2**31
_COLUMNS: Final = 20_000
_DELIMITERS: Final = (",", ";", "\t", "|")
# In either code page of a mapping file the mark of UTF-8 is read as these letters.
_CODE_PAGES: Final = ("cp1252", "latin-1")
_MARK: Final = codecs.BOM_UTF8.decode("latin-1")


def read_csv(
    path: Path, names: Sequence[str] | None = None, *, delimiter: str = ",", encoding: str = "utf-8"
) -> dict[str, list[str]]:
    """The named columns of a CSV file, or all, each once. Empty lines are skipped, and so is a byte order mark.

    Raises DataUnavailable if it is absent, DataCorrupt if it is not such a table, and as wanted_columns does.
    """
    texts: dict[str, str] = {}  # most tables repeat few distinct strings: each is stored once
    try:
        with open_table(path, encoding=encoding) as lines:
            reader = csv.reader(lines, delimiter=delimiter, strict=True)
            header = [name.strip() for name in next(reader, [])]
            if not header:
                raise DataCorrupt(f"{path} has no header in its first row; allowed: a row of column names")
            other = next((mark for mark in _DELIMITERS if mark != delimiter and mark in header[0]), None)
            if len(header) == 1 and other is not None:
                raise DataCorrupt(
                    f"{path}: the header has no {delimiter!r}, and the columns seem to be separated by {other!r}; "
                    f"allowed: columns separated by {delimiter!r}"
                )
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
    except (csv.Error, OSError, EOFError, zlib.error, UnicodeError) as error:
        why = "other bytes than that encoding has" if isinstance(error, UnicodeError) else str(error)[:200]
        raise DataCorrupt(f"{path} cannot be read: {why}; allowed: CSV in {encoding} with a header") from error
    return kept


def first_rows(path: Path, *, delimiter: str, encoding: str, most: int) -> list[list[str]]:
    """The fields of the first rows that are not empty, the header among them, at most `most`.

    Raises DataUnavailable, DataCorrupt.
    """
    try:
        with open_table(path, encoding=encoding) as lines:
            return list(itertools.islice(filter(None, csv.reader(lines, delimiter=delimiter, strict=True)), most))
    except (csv.Error, OSError, EOFError, zlib.error, UnicodeError) as error:
        why = "other bytes than that encoding has" if isinstance(error, UnicodeError) else str(error)[:200]
        raise DataCorrupt(f"{path} cannot be read: {why}; allowed: CSV in {encoding} with a header") from error


@contextmanager
def open_table(path: Path, *, encoding: str) -> Iterator[io.TextIOWrapper]:
    """The text of a file, unpacked if its name ends in .gz, without a byte order mark.

    The mark of UTF-8 is also skipped before text of a code page: programs that join files put it there.

    Raises DataUnavailable, DataCorrupt; whoever reads from it also OSError, EOFError, zlib.error, UnicodeError.
    """
    known = "utf-8-sig" if encoding == "utf-8" else encoding
    with open_file(path, most=FILE_BYTES) as file:
        if path.suffix.lower() != ".gz":
            with io.TextIOWrapper(file, known, newline="") as lines:
                yield _after_mark(lines)
            return
        size = os.fstat(file.fileno()).st_size
        with gzip.GzipFile(fileobj=file) as packed:
            unpacked = 0
            while block := packed.read(2**20):  # the size that the file's end declares may be a lie
                unpacked += len(block)
                check_unpacked(size, unpacked, where=str(path))
            packed.seek(0)
            with io.TextIOWrapper(packed, known, newline="") as lines:
                yield _after_mark(lines)


def _after_mark(lines: io.TextIOWrapper) -> io.TextIOWrapper:
    if lines.encoding in _CODE_PAGES and lines.read(len(_MARK)) != _MARK:
        lines.seek(0)
    return lines


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
