"""The mapping file: how this hospital writes its data, and what its words are in a study. Nothing is guessed silently.

`conclave-party data map` proposes it, a person confirms it, and everything that reads the hospital's records uses it.
It also says when two names mean one. A name keeps its place: `places` numbers names as they are written, and a rule
joins a unit's names at the first one's place. So whether two names are alike changes no other unit's teacher
(docs/decisions/0048).
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Final

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from protocols.errors import DataUnavailable, InvalidInput
from protocols.reading import read_toml
from protocols.study.features import MISSING
from runtime.settings import TomlTable

# Not seen, and of no category of their own: joiners, fillers and variation selectors.
_UNSEEN: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0") | {chr(0xFE00 + each) for each in range(16)}
_NUMBER: Final = re.compile(r"\+?0*(\d+?)(?:[.,]0*)?", re.ASCII)


def folded(text: str) -> str:
    """A name without what a reader does not see or mean: NFKC, case, characters without width, blanks at the ends and
    repeated ones."""
    plain = unicodedata.normalize("NFKC", _seen(unicodedata.normalize("NFKC", _seen(text)).casefold()))
    return " ".join(plain.split())


def _seen(text: str) -> str:
    return "".join(each for each in text if each not in _UNSEEN and unicodedata.category(each) != "Cf")


def folded_patient(text: str) -> str:
    """As folded, without any blank."""
    return folded(text).replace(" ", "")


def folded_number(text: str) -> str:
    """As folded_patient; a whole number also without zeros before it and decimals of zero: 007 and 7.0 are 7."""
    plain = folded_patient(text)
    number = _NUMBER.fullmatch(plain)
    return number[1] if number else plain


# How a mapping file may compare patients' names.
RULES: Final[Mapping[str, Callable[[str], str]]] = {
    "exact": lambda text: text,
    "folded": folded_patient,
    "number": folded_number,
}


def places(names: Sequence[Hashable] | None, records: int) -> Int64[ndarray, " records"]:
    """The place of each record's name, numbered from 0 in order of first appearance; None: each record has its own."""
    if names is None:
        return np.arange(records)
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int64)


def first_places(at: Int64[ndarray, " records"], keys: Iterable[Hashable]) -> Int64[ndarray, " records"]:
    """The first of the places of all records with the same key. at: the place of each record."""
    first: dict[Hashable, int] = {}
    return np.array([first.setdefault(key, int(place)) for place, key in zip(at, keys, strict=True)], np.int64)


ENCODINGS: Final = ("utf-8", "utf-16", "cp1252", "latin-1")
DELIMITERS: Final = (",", ";", "\t", "|")
DECIMALS: Final = (".", ",")
# "" for none; a space stands for any blank that does not break a line.
THOUSANDS: Final = ("", ".", ",", " ", "'")
_SIGNS: Final = {"delimiter": DELIMITERS, "encoding": ENCODINGS, "decimal": DECIMALS, "thousands": THOUSANDS}
# Whether equal records are one unit, or each is one.
EQUAL_ROWS: Final = ("one", "each")
# What happens to a value that cannot be used; without one of these, it is refused with its row.
REMEDIES: Final = ("missing", "leave out", "clip")
_HEADER: Final = """\
# How this hospital's data set is written, and what its words are in the study. `conclave-party data map` writes this
# file anew from what it holds (comments are lost); it can be edited. [columns]: the study's column = your column, ""
# for a finding that is not recorded here.
# [values.COLUMN]: your value = the study's value, "" for a missing one. [unusable]: what happens to a value of the
# study's column that cannot be used: "missing", "leave out" (the record is not used), or "clip" (only a number that is
# far from the study's centre). Without it such a value is refused, with its row. [times]: by what numbers in another
# unit than the study's are multiplied; 1 says that the unit is the study's. names: when two patients' names are one:
# "exact" (as written), "folded" (whatever case, blanks and invisible characters), "number" (and 007 is 7).
# equal_rows: whether equal records of a patient, or of nobody named, are "one" unit, or "each" is one.
"""


@dataclass(frozen=True, kw_only=True)
class Form:
    """How texts are written: None where nobody said. missing: the texts that mean no value."""

    delimiter: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    missing: tuple[str, ...] = MISSING


@dataclass(frozen=True, kw_only=True)
class DataMapping:
    """form: how texts are written; columns: the study's column -> this hospital's; values: by the study's column, this
    hospital's value -> the study's; unusable: the study's column -> one of REMEDIES; times: the study's column -> what
    its numbers are multiplied by; names, equal_rows: one of RULES
    and of EQUAL_ROWS, None where nobody said."""

    form: Form = field(default_factory=Form)
    columns: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    unusable: Mapping[str, str] = field(default_factory=dict)
    times: Mapping[str, float] = field(default_factory=dict)
    names: str | None = None
    equal_rows: str | None = None

    def own(self, column: str) -> str:
        """This hospital's name of a study's column."""
        return self.columns.get(column, column)


def read_mapping(path: Path) -> DataMapping:
    """The mapping in a file; an empty one if there is no such file. Raises InvalidInput naming file and key."""
    try:
        table = TomlTable(path, read_toml(path))
    except DataUnavailable:
        return DataMapping()
    values, times = table.table("values"), table.table("times")
    mapping = DataMapping(
        form=read_form(table),
        columns=table.names("columns"),
        values={column: values.names(column) for column in values.values},
        unusable=table.names("unusable"),
        times={column: times.number(column) for column in times.values},
        names=table.said("names"),
        equal_rows=table.said("equal_rows"),
    )
    table.done()
    return check_mapping(mapping, path)


def check_mapping(mapping: DataMapping, path: Path) -> DataMapping:
    """Returns it. Raises InvalidInput, naming the file and the key, for what a mapping file cannot say."""
    _check_form(mapping.form, path)
    _check_said(path, "names", mapping.names, RULES)
    _check_said(path, "equal_rows", mapping.equal_rows, EQUAL_ROWS)
    for column, remedy in mapping.unusable.items():
        _check_said(path, f"unusable.{column}", remedy, REMEDIES)
    for column, factor in mapping.times.items():
        if not 0 < factor < inf:
            raise InvalidInput(f"{path}: times.{column} is {factor!r}; allowed: a finite number above 0")
    return mapping


def read_form(table: TomlTable) -> Form:
    """How texts are written, by the keys of a file. Raises InvalidInput naming file and key."""
    said = {key: table.said(key) for key in _SIGNS}
    return _check_form(Form(**said, missing=table.texts("missing", MISSING)), table.path)


def _check_form(form: Form, path: Path) -> Form:
    for key, allowed in _SIGNS.items():
        _check_said(path, key, getattr(form, key), allowed)
    if form.thousands and form.thousands == (form.decimal or "."):
        raise InvalidInput(f"{path}: decimal and thousands are both {form.thousands!r}; allowed: two different signs")
    return form


def _check_said(path: Path, key: str, value: str | None, allowed: Iterable[str]) -> None:
    if value is not None and value not in allowed:
        named = ", ".join(json.dumps(each) for each in allowed)
        raise InvalidInput(f"{path}: {key} is {value!r}; allowed: {named}")


def form_lines(form: Form) -> list[str]:
    """The lines of a TOML file that say it, which read_form reads; none for what nobody said."""
    said = {key: getattr(form, key) for key in _SIGNS}
    lines = [f"{key} = {json.dumps(value)}" for key, value in said.items() if value is not None]
    return lines + [f"missing = {json.dumps(form.missing, ensure_ascii=False)}"] * (form.missing != MISSING)


def mapping_toml(mapping: DataMapping, *, notes: Mapping[str, list[str]] | None = None) -> str:
    """The text of a mapping file, which read_mapping reads. notes: comments, by the study's column, of what is open."""
    said = {"names": mapping.names, "equal_rows": mapping.equal_rows}
    lines = [_HEADER, *form_lines(mapping.form)]
    lines += [f"{key} = {json.dumps(value)}" for key, value in said.items() if value is not None]
    lines += _table("columns", mapping.columns)
    for column, names in mapping.values.items():
        lines += _table(f"values.{json.dumps(column, ensure_ascii=False)}", names)
    lines += _table("unusable", mapping.unusable)
    if mapping.times:
        times = ((json.dumps(column, ensure_ascii=False), factor) for column, factor in mapping.times.items())
        lines += ["", "[times]", *(f"{column} = {factor!r}" for column, factor in times)]
    for column, texts in (notes or {}).items():
        lines += ["", f"# open: {column}", *(f"#   {text}" for text in texts)]
    return "\n".join(lines) + "\n"


def _table(name: str, values: Mapping[str, str]) -> list[str]:
    def quoted(text: str) -> str:
        return json.dumps(text, ensure_ascii=False)

    return ["", f"[{name}]", *(f"{quoted(key)} = {quoted(value)}" for key, value in values.items())] if values else []


# Blanks that spreadsheets put between thousands, and the apostrophes of Swiss ones.
_BLANKS: Final = str.maketrans({"\u00a0": " ", "\u202f": " ", "\u2009": " ", "\u2019": "'"})
_SIGN: Final = r"[+-]?"


def plain_number(text: str, form: Form) -> str:
    """The text of a number with a decimal point and no thousands signs; the text unchanged if it is no number in this
    form, so that whoever reads it next refuses it.

    "1,234" is a number in the form (",", "") and in (".", ","), and no number where nobody said which.
    """
    decimal, thousands = form.decimal or ".", form.thousands or ""
    stripped = text.strip().translate(_BLANKS)
    if not _pattern(decimal, thousands).fullmatch(stripped):
        # A point is no decimal sign where the form has another: "1.234" would be read as 1.234 silently.
        return f"{text.strip()} (not a number with {decimal!r})" if decimal != "." and "." in stripped else text
    return stripped.replace(thousands, "").replace(decimal, ".") if thousands else stripped.replace(decimal, ".")


def reads(text: str, form: Form) -> bool:
    """Whether a text is a number in this form."""
    stripped = text.strip().translate(_BLANKS)
    return _pattern(form.decimal or ".", form.thousands or "").fullmatch(stripped) is not None


@lru_cache
def _pattern(decimal: str, thousands: str) -> re.Pattern[str]:
    point, apart = re.escape(decimal), re.escape(thousands)
    whole = rf"(?:[0-9]+|[0-9]{{1,3}}(?:{apart}[0-9]{{3}})+)" if thousands else r"[0-9]+"
    return re.compile(rf"{_SIGN}(?:{whole}(?:{point}[0-9]*)?|{point}[0-9]+)(?:[eE]{_SIGN}[0-9]+)?", re.ASCII)
