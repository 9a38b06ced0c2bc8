"""Reading untrusted files: the one way to read bytes, TOML and JSON (arrays: protocols.array_files).

Whatever the file is (a folder, a pipe, a device, text that nests without end, numbers too large for a machine word),
the result is a value within its limits or an error of protocols.errors, in bounded time and memory.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
import stat
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final  # Any: what tomllib and json give, checked by whoever reads a key

from protocols.errors import DataCorrupt, DataUnavailable, InvalidInput

TOML_BYTES: Final = 2**20
JSON_BYTES: Final = 2**26
_DEPTH: Final = 64
_WORD: Final = 2**63
# tomllib takes time quadratic in the parts of a dotted key: one of a MiB would take hours.
_KEY_PARTS: Final = 32
_PART = r"""(?:(?<![\w-])[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+"""
_LONG_KEY: Final = re.compile(f"(?:{_PART}){{{_KEY_PARTS}}}", re.ASCII)


def open_file(path: Path, *, most: int) -> io.BufferedReader:
    """A regular file of at most `most` bytes, open for reading; never blocks on a pipe.

    Raises DataUnavailable if it is absent, DataCorrupt if it is something else, too large or not readable.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        raise DataUnavailable(f"{path} does not exist") from None
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        raise DataCorrupt(f"{path} cannot be read: {_reason(error)}; allowed: a file of yours") from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise DataCorrupt(f"{path} is a folder, a pipe or a device; allowed: a file")
        if found.st_size > most:
            raise DataCorrupt(f"{path} has {found.st_size} bytes; allowed: at most {most}")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_bytes(path: Path, *, most: int) -> bytes:
    """The content of a regular file of at most `most` bytes. Raises as open_file."""
    with open_file(path, most=most) as file:
        try:
            size = os.fstat(file.fileno()).st_size
            content = file.read(size + 1)  # not more, as a read allocates what it is asked for
        except OSError as error:
            raise DataCorrupt(f"{path} cannot be read: {_reason(error)}; allowed: a readable file") from None
    if len(content) > size:
        raise DataCorrupt(f"{path} grows while it is read, beyond {size} bytes; allowed: a file that is finished")
    return content


def read_text(path: Path, *, most: int) -> str:
    """The content of a file as UTF-8. Raises as open_file; DataCorrupt if it is not UTF-8."""
    try:
        return read_bytes(path, most=most).decode()
    except UnicodeDecodeError as error:
        raise DataCorrupt(f"{path} is not text: {error}; allowed: UTF-8") from None


def read_toml(path: Path) -> dict[str, Any]:
    """The table of a TOML file of at most TOML_BYTES. Raises DataUnavailable if it is absent, else InvalidInput.

    Whole numbers are of 64 bits and others finite; tables and lists nest at most DEPTH deep.
    """
    try:
        text = read_text(path, most=TOML_BYTES)
    except DataCorrupt as error:
        raise InvalidInput(f"{path} is not TOML: {error}") from None
    if long := _LONG_KEY.search(text):
        line = text.count("\n", 0, long.start()) + 1
        raise InvalidInput(f"{path} is not TOML: line {line} has a key of {_KEY_PARTS} parts or more; allowed: fewer")
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise InvalidInput(f"{path} is not TOML: it nests too deeply; allowed: {_DEPTH} levels") from None
    except ValueError as error:
        raise InvalidInput(f"{path} is not TOML: {str(error)[:200]}") from None
    problem = _problem(table)
    if problem:
        raise InvalidInput(f"{path}: {problem}")
    return table


def read_json(path: Path, *, most: int = JSON_BYTES) -> Any:
    """What a JSON file of at most `most` bytes holds, as parse_json. Raises DataUnavailable if absent, DataCorrupt."""
    return parse_json(read_bytes(path, most=most), where=str(path))


def parse_json(text: str | bytes, *, where: str) -> Any:
    """The value of a JSON text: finite numbers, whole ones of 64 bits, text that is Unicode, DEPTH levels at most.

    where: what the text is, for the message. Raises DataCorrupt.
    """
    try:
        value = json.loads(text if isinstance(text, str) else text.decode(), parse_constant=_no_constant)
    except RecursionError:
        raise DataCorrupt(f"{where} is not JSON: it nests too deeply; allowed: {_DEPTH} levels") from None
    except ValueError as error:  # of the syntax, of UTF-8, and of numbers with too many digits
        raise DataCorrupt(f"{where} is not JSON: {str(error)[:200]}") from None
    problem = _problem(value)
    if problem:
        raise DataCorrupt(f"{where}: {problem}")
    return value


def _no_constant(name: str) -> float:
    raise ValueError(f"a number is {name}; allowed: finite numbers")


def _problem(value: object) -> str:
    """What is not allowed in a value, "" if nothing. Not recursive: a dotted key nests without brackets."""
    level: list[object] = [value]
    for _ in range(_DEPTH + 1):
        below: list[object] = []
        for each in level:
            match each:
                case dict():
                    below += each.keys()
                    below += each.values()
                case list():
                    below += each
                case str():
                    if not each.isascii() and any("\ud800" <= letter <= "\udfff" for letter in each):
                        return "a string holds half of a surrogate pair; allowed: Unicode"
                case bool():
                    continue
                case int():
                    if not -_WORD <= each < _WORD:
                        return f"a whole number has {each.bit_length()} bits; allowed: 64, with its sign"
                case float():
                    if not math.isfinite(each):
                        return f"a number is {each}; allowed: finite numbers"
        level = below
        if not level:
            return ""
    return f"it nests too deeply; allowed: {_DEPTH} levels"


def _reason(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)[:200]


# A table with more values is refused before it is encoded.
VALUES: Final = 2**31


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
