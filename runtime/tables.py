"""Tables as texts: CSV (RFC 4180, with a header; one that ends in .gz is unpacked), and JSON lines, an object per line.

Pools of public queries are read alike by operator and hospitals, from tables or arrays. No pickle is read.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import itertools
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final  # Any: what JSON gives, checked here

import numpy as np
from jaxtyping import Float32
from numpy import ndarray

from protocols.array_files import FILE_BYTES, array_names, check_unpacked, read_array, read_arrays
from protocols.errors import DataCorrupt, DataUnavailable, InvalidInput
from protocols.reading import VALUES, open_file, parse_json, wanted_columns
from protocols.study.features import MISSING, encode_table, read_numbers
from protocols.study.terms import Feature
from runtime.distribution import lacking

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
                raise DataCorrupt(f"{path}: row {row} is no object; allowed: one object per line")
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


def _csv_header(path: Path) -> list[str]:
    return [name.strip() for row in first_rows(path, delimiter=",", encoding="utf-8", most=1) for name in row]


def _parquet_header(path: Path) -> list[str]:
    try:
        from runtime.parquet_tables import parquet_header
    except ModuleNotFoundError as missing:
        raise lacking(missing, f"pool file {path.name}") from missing
    return parquet_header(path)


_HEADERS: Final = {".csv": _csv_header, ".jsonl": jsonl_header, ".parquet": _parquet_header}
_KINDS: Final = (".csv", ".jsonl", ".parquet", ".npy", ".npz")
_KEYS: Final = ("pool", "inputs", "x")


def read_pool_file(path: Path, features: Sequence[Feature], *, mapped: bool, labels: Sequence[str] = ()) -> ndarray:
    """The queries in a file, of any shape and type. features: how the columns of a table are encoded; if empty, all are
    numbers. mapped: whether an .npy file is memory-mapped. labels: columns that a table must not have.

    Raises DataUnavailable, DataCorrupt, and InvalidInput for an unknown kind of file, a label or a missing extra.
    """
    try:
        open_file(path, most=FILE_BYTES).close()
    except DataUnavailable:
        raise DataUnavailable(f"pool file {path} does not exist") from None
    names = [each.column for each in features] or None
    header = _HEADERS[path.suffix.lower()](path) if labels and path.suffix.lower() in _HEADERS else ()
    if label := next((each for each in labels if each in header), ""):
        raise InvalidInput(
            f"pool file {path.name} has the label's column, {label!r}: it may be a hospital's own records; allowed: "
            "public records without a label"
        )
    match path.suffix.lower():
        case ".csv":
            return _encoded(read_csv(path, names), features, name=path.name)
        case ".jsonl":
            return _encoded(read_jsonl(path, names, missing=MISSING[0]), features, name=path.name)
        case ".parquet":
            try:
                from runtime.parquet_tables import read_parquet
            except ModuleNotFoundError as missing:
                raise lacking(missing, f"pool file {path.name}") from missing
            return _encoded(read_parquet(path, names, missing=MISSING[0]), features, name=path.name)
        case ".npy":
            return read_array(path, mapped=mapped)
        case ".npz":
            known = array_names(path)
            name = known[0] if len(known) == 1 else next((key for key in _KEYS if key in known), None)
            if name is None:
                raise InvalidInput(
                    f"pool file {path.name} holds the arrays {known[:8]}; allowed: one, or one named pool"
                )
            return read_arrays(path, [name])[name]
        case kind:
            raise InvalidInput(f"pool file {path.name} ends in {kind!r}; allowed: {', '.join(_KINDS)}")


def _encoded(
    columns: Mapping[str, Sequence[str]], features: Sequence[Feature], *, name: str
) -> Float32[ndarray, "queries features"] | ndarray:
    """The queries in columns of texts. name: of the file, for messages. Raises DataCorrupt."""
    if not features:
        return np.stack([read_numbers(texts) for texts in columns.values()], axis=1)
    return encode_table(columns, features, missing=MISSING, where=lambda column: f"{name}: column {column!r}")
