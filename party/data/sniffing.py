"""How a text file seems to be written: proposals for encoding, delimiter and signs of numbers, never applied unsaid."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from party.data.mapping import DELIMITERS, Form
from party.data.number_texts import reads
from protocols.errors import DataCorrupt
from runtime.tables import first_rows, open_table

_LINES: Final = 50
# A number whose only sign stands before three digits: one and a bit, or above a thousand.
_THREE: Final = re.compile(r"[+-]?[1-9][0-9]{0,2}[.,][0-9]{3}", re.ASCII)
# The forms of numbers that are tried, each a decimal sign and one of thousands.
FORMS: Final = ((",", ""), (",", "."), (".", ","), (",", " "), (".", " "), (".", "'"), (",", "'"))


def proposed_form(path: Path, form: Form) -> Form:
    """The form with an encoding and a delimiter that the file can have, where nobody said one.

    A byte order mark and valid UTF-8 are certain. Anything else is taken for cp1252, the usual code page of Western
    Europe's Windows, or latin-1 where cp1252 lacks a byte. The delimiter is the one that divides all of the first lines
    into equally many fields, more than one; None where none or several do. Raises DataUnavailable, DataCorrupt.
    """
    if form.encoding is None:
        found = next(each for each in ("utf-16", "utf-8", "cp1252", "latin-1") if _decodes(path, each))
        form = replace(form, encoding=None if found == "utf-8" else found)
    if form.delimiter is None:
        fits = [sign for sign in DELIMITERS if _divides(path, form.encoding or "utf-8", sign)]
        form = replace(form, delimiter=fits[0] if len(fits) == 1 and fits != [","] else None)
    return form


def number_forms(texts: Iterable[str]) -> list[tuple[str, str]]:
    """The forms (decimal sign, thousands sign) in which the most of these texts are numbers; several where the texts do
    not decide, none where plain numbers are as good.

    texts: all that are not missing, of all numeric columns.
    """
    distinct = sorted({text.strip() for text in texts})
    plain = sum(reads(text, Form()) for text in distinct)
    read = {pair: sum(reads(text, Form(decimal=pair[0], thousands=pair[1])) for text in distinct) for pair in FORMS}
    best = max(read.values(), default=0)
    if best <= plain:
        return []
    fits = [pair for pair, count in read.items() if count == best]
    # A sign of thousands that no text has is not needed.
    return [pair for pair in fits if not pair[1] or (pair[0], "") not in fits]


def ambiguous(text: str) -> bool:
    """Whether a text may be a number above a thousand, or one with three decimals."""
    return _THREE.fullmatch(text.strip()) is not None


def _decodes(path: Path, encoding: str) -> bool:
    try:
        with open_table(path, encoding="latin-1") as lines:
            if (lines.read(2) in ("\xff\xfe", "\xfe\xff")) != (encoding == "utf-16"):
                return False
        with open_table(path, encoding=encoding) as lines:
            return all(True for _ in lines)
    except UnicodeError:
        return False
    except (OSError, EOFError, zlib.error) as error:
        raise DataCorrupt(f"{path} cannot be read: {str(error)[:200]}; allowed: a table") from None


def _divides(path: Path, encoding: str, delimiter: str) -> bool:
    try:
        rows = first_rows(path, delimiter=delimiter, encoding=encoding, most=_LINES)
    except DataCorrupt:
        return False
    return len({len(row) for row in rows}) == 1 and len(rows[0]) > 1
