"""The quality of a hospital's records for a study: every problem at once, and a mapping that settles what it can.

A file's form and the meaning of its words are proposed, never applied unsaid. Rows count from 1, without the header.
Values of records stand in `Problem.values` alone: they are for the hospital's own terminal.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from party.data.files import CsvFile
from party.data.likeness import bare, candidates, columns_alike, expected, meant, numbers_of, other_unit
from party.data.mapping import DELIMITERS, DataMapping, Form, reads
from party.data.records import Columns, DataSettings, missing_texts, near, study_texts
from protocols.errors import DataCorrupt
from protocols.study.features import read_column, shown
from protocols.study.terms import Feature, Terms
from runtime.tables import first_rows, open_table

_ABSENT: Final = frozenset(
    {"", "-", "--", ".", "..", "?", "*", "/", "n/a", "na", "nan", "null", "none", "nil", "#n/a", "#na", "missing",
     "unknown", "unbekannt", "k.a.", "k. a.", "keine angabe", "nr", "n.d.", "nd", "not done", "inconnu"}
)  # fmt: skip
_DATE: Final = re.compile(r"\d{4}-\d{1,2}-\d{1,2}([T ].*)?|\d{1,2}[./-]\d{1,2}[./-](\d{2}|\d{4})([T ].*)?", re.ASCII)


def means_absent(text: str) -> bool:
    """Whether people write this where there is no value."""
    return text.strip().casefold() in _ABSENT


def is_date(text: str) -> bool:
    """Whether a text looks like a day."""
    return _DATE.fullmatch(text.strip()) is not None


def column_meant(column: str, header: Sequence[str]) -> str | None:
    """The hospital's column with the study's name but for case, blanks and signs; None unless one has it."""
    same = [name for name in header if bare(name) == bare(column)]
    return same[0] if len(same) == 1 else None


def absent_means(feature: Feature, texts: Sequence[str]) -> list[str]:
    """Those of the texts that mean no value in this column. "-" beside "+" is a result, not a missing value."""
    if feature.kind == "categorical" and any(text.strip() == "+" for text in texts):
        return []
    return [text for text in texts if means_absent(text)]


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


_ROWS: Final = 8
# Fewer values say nothing of a column's unit.
_FEWEST: Final = 5
_VALUES: Final = 5


@dataclass(frozen=True)
class Problem:
    """Something that a person must settle. column: the study's, "" for the whole source; rows: the first of `count`;
    values: distinct ones of these rows, private; todo: how it can be settled, "" for what is only said; column_is: what
    `data map --column` takes where only the column's name is open."""

    column: str
    own: str
    found: str
    todo: str
    count: int = 0
    rows: tuple[int, ...] = field(default=(), repr=False)
    values: tuple[str, ...] = field(default=(), repr=False)
    column_is: str = ""


@dataclass(frozen=True)
class Proposal:
    """Something that the mapping file can say. what: "delimiter", "encoding", "decimal", "thousands", "column" or
    "value"; own: how the hospital writes it; study: what it means in the study, "" for a missing value."""

    what: str
    column: str
    own: str
    study: str
    rows: int = 0


@dataclass(frozen=True)
class ColumnQuality:
    """One of the study's columns as this hospital fills it. unusable: values that cannot be; width: features; range:
    from, to and median of its numbers beside what the study expects, private, "" for other columns."""

    column: str
    own: str
    encoded: str
    width: int
    missing: int
    unusable: int
    range: str = field(default="", repr=False)


@dataclass(frozen=True)
class Quality:
    """What was found. mapping: the hospital's own, with the proposals; rows: 0 where no row could be read."""

    rows: int
    columns: tuple[ColumnQuality, ...]
    problems: tuple[Problem, ...]
    proposals: tuple[Proposal, ...]
    mapping: DataMapping = field(repr=False)


def examine_rows(settings: DataSettings, terms: Terms) -> Quality:
    """Everything about a table that keeps it from being read by a study's terms, and what would settle it.

    Raises DataUnavailable, DataCorrupt for a source that cannot be read at all, and where the terms name no columns.
    """
    if not terms.features:
        raise DataCorrupt(f"{settings.shown}: the study's terms name no columns; allowed: loader npz, images or dicom")
    proposals: list[Proposal] = []
    mapping = settings.mapping
    if isinstance(settings.source, CsvFile):
        mapping = replace(mapping, form=proposed_form(settings.source.path, mapping.form))
        for key in ("encoding", "delimiter"):
            value = getattr(mapping.form, key)
            if value != getattr(settings.mapping.form, key):
                proposals.append(Proposal(key, "", value, ""))
    header = settings.source.header(mapping.form)
    mapping, found, problems = _named(header, mapping, terms, replace(settings, mapping=mapping))
    proposals += found
    present = [each for each in terms.features if header.count(mapping.own(each.column)) == 1]
    own = [mapping.own(column) for column in (*(each.column for each in present), *terms.labels)]
    names = [name for name in (*own, settings.patient, settings.group) if header.count(name) == 1]
    columns = settings.source.columns(names, mapping.form)
    rows = len(next(iter(columns.values()), ()))
    if not rows:
        if columns:  # without any column nothing is known about the rows
            problems.append(Problem("", "", "there are no rows", "allowed: at least one record"))
        return Quality(0, (), tuple(problems), tuple(proposals), mapping)
    examined = _Examined(replace(settings, mapping=mapping), columns, proposals, problems)
    examined.numbers(present)
    of_columns = tuple(examined.feature(each) for each in present)
    for label in terms.labels:
        if mapping.own(label) in columns:
            examined.label(label, terms)
    for name in {settings.patient, settings.group} & set(columns):
        examined.names(name)
    return Quality(rows, of_columns, tuple(problems), tuple(proposals), examined.settings.mapping)


def _named(
    header: list[str], mapping: DataMapping, terms: Terms, settings: DataSettings
) -> tuple[DataMapping, list[Proposal], list[Problem]]:
    """Which of the hospital's columns are the study's. A column that names patients, groups or hospitals is none."""
    proposals, problems, columns = [], [], dict(mapping.columns)
    wanted = {each.column: each for each in terms.features}
    apart = {settings.patient, settings.group, settings.hospitals, *columns.values(), *wanted, *terms.labels}
    elsewhere = {name for name in terms.findings if not mapping.own(name)}  # not recorded here
    absent = {column for column in terms.columns if column not in elsewhere and mapping.own(column) not in header}
    open_yet = [name for name in header if header.count(name) == 1 and name not in apart] if absent else []
    held: Columns = settings.source.columns(open_yet, mapping.form) if open_yet else {}
    for column in terms.columns:
        own = mapping.own(column)
        if header.count(own) == 1 or column in elsewhere:
            continue
        other = column_meant(column, header) if column not in mapping.columns else None
        if header.count(own) > 1:
            problems.append(Problem(column, own, f"the header has {own!r} {header.count(own)} times", "rename one"))
        elif other is not None:
            columns[column] = other
            proposals.append(Proposal("column", column, other, column))
        else:
            feature = wanted.get(column)
            names = terms.class_names if feature is None else feature.categories
            alike = candidates(column, feature, names, held, absent=missing_texts(settings) | _ABSENT)
            perhaps = f"; perhaps {', '.join(alike)}" if alike else ""
            meant_by = f'"{column}={alike[0] if len(alike) == 1 else "YOURS"}"'
            todo = f"conclave-party data map STUDY --column {meant_by}"
            if column in terms.findings:
                todo += f', or --column "{column}=" if it is not recorded here'
            problems.append(Problem(column, own, f"no column {own!r}{perhaps}", todo, column_is=meant_by))
    named = {"patient": settings.patient, "group": settings.group, "hospitals": settings.hospitals}
    for key, name in named.items():
        if name and header.count(name) != 1:
            alike = columns_alike(name, header)
            perhaps = f"; perhaps {', '.join(alike)}" if alike else ""
            problems.append(Problem("", name, f"no column {name!r}", f"correct data.{key} in node.toml{perhaps}"))
    if problems:
        taken = {mapping.own(column) for column in columns} | set(columns.values())
        free = [name for name in header if name not in taken]
        problems.append(Problem("", "", f"columns of yours without a meaning yet: {', '.join(free)[:500]}", ""))
    return replace(mapping, columns=columns), proposals, problems


@dataclass
class _Examined:
    """The columns of a table, and what was found in them so far. settings: with the mapping that is proposed."""

    settings: DataSettings
    columns: Columns
    proposals: list[Proposal]
    problems: list[Problem]

    def numbers(self, features: list[Feature]) -> None:
        """Proposes how numbers are written, from all numeric columns together."""
        form, absent = self.settings.mapping.form, missing_texts(self.settings)
        if form.decimal is not None:
            return
        numeric = [each for each in features if each.kind == "numeric"]
        texts = {each.column: self.columns[self.settings.mapping.own(each.column)] for each in numeric}
        forms = number_forms(
            text for column in texts.values() for text in dict.fromkeys(column) if text.strip() not in absent
        )
        if len(forms) == 1:
            decimal, thousands = forms[0]
            self._form(replace(form, decimal=decimal, thousands=thousands))
            self.proposals.append(Proposal("decimal", "", decimal, "."))
            self.proposals += [Proposal("thousands", "", thousands, "")] if thousands else []
        elif forms:
            for column, values in texts.items():
                unclear = np.array([ambiguous(text) and "," in text for text in values], bool)
                if unclear.any():
                    say = "may be a number above a thousand, or one with three decimals"
                    todo = "conclave-party data map STUDY --decimal , (or --decimal . --thousands ,)"
                    self._problem(column, say, todo, unclear)

    def feature(self, feature: Feature) -> ColumnQuality:
        """Examines one column; what is wrong and has one meaning is proposed, the rest is a problem."""
        column = feature.column
        self._words(column, self._wrong(feature), feature.categories, feature)
        texts, remedy = self._texts(feature), self.settings.mapping.unusable.get(column)
        read = read_column(feature, texts, missing=missing_texts(self.settings))
        dates = read.wrong & np.array([is_date(text) for text in texts], bool)
        gone = read.wrong & read.absent
        may, far = ("missing" if feature.may_miss else "leave out"), read.beyond & ~read.wrong
        usual = f'conclave-party data map STUDY --unusable "{column}={may}"'
        usable = [texts[row] for row in np.flatnonzero(~read.wrong & ~read.absent).tolist()]
        others = [texts[row] for row in np.flatnonzero(read.wrong & ~read.absent & ~dates).tolist()]
        unit = self._unit(feature, usable, others)
        todo = _words_mean(column, may) if feature.kind == "categorical" else usual
        if feature.kind == "numeric" and any(each.column == column for each in self.problems):
            todo, dates, gone = "", read.wrong & False, gone  # how numbers are written is not known yet
        elif unit is not None and len(others) > len(usable):
            pass  # once the unit is known, most of these values may be right
        elif remedy is None:
            self._problem(column, "no value, where the study needs one", usual, gone, feature)
            self._problem(column, "a date, where the study needs a number", "export a number, such as years", dates)
            self._problem(
                column, f"cannot be used; allowed: {read.allowed}", todo, read.wrong & ~gone & ~dates, feature
            )
            clip = f'{usual}, or --unusable "{column}=clip"'
            self._problem(column, f"allowed: {near(feature)}" if far.any() else "", clip, far)
        own, unusable = self.settings.mapping.own(column), int((read.wrong | read.beyond).sum())
        self.problems += [] if unit is None else [unit]
        middle = _range(feature, usable)
        return ColumnQuality(column, own, _encoding(feature), feature.width, int(read.absent.sum()), unusable, middle)

    def _unit(self, feature: Feature, usable: list[str], others: list[str]) -> Problem | None:
        """What is asked where a column's numbers may be in another unit: those that are usable, or all where the most
        are not, unless that is because they are 0."""
        texts = usable if len(usable) >= len(others) else usable + others
        values, column = numbers_of(texts) if feature.kind == "numeric" else np.zeros(0), feature.column
        if column in self.settings.mapping.times or len(values) < _FEWEST:
            return None
        middle = float(np.median(values))
        unit = other_unit(feature, middle)
        if unit is None or (texts is not usable and middle <= 0):
            return None
        factor, words = unit
        times = "FACTOR" if factor is None else f"{factor:.5g}"
        known = f"; {words} differ by this factor" if words else ""
        return Problem(
            column, self.settings.mapping.own(column), f"may be in another unit than the study's{known}",
            f'conclave-party data map STUDY --times "{column}={times}", or --times "{column}=1" as it is',
            values=(_range(feature, texts),),
        )  # fmt: skip

    def label(self, column: str, terms: Terms) -> None:
        """Examines a column of labels."""
        self._words(column, self._no_class(column, terms), terms.class_names, None)
        if self.settings.mapping.unusable.get(column) is None:
            what, otherwise = ("finding", "missing") if terms.findings else ("class", "leave out")
            found = f"no {what}; allowed: {', '.join(terms.class_names)}"
            self._problem(column, found, _words_mean(column, otherwise), self._no_class(column, terms))

    def _no_class(self, column: str, terms: Terms) -> Bool[ndarray, " rows"]:
        """Which rows say nothing that the study knows; a finding may be missing."""
        known = {*terms.class_names, *(missing_texts(self.settings) if terms.findings else ())}
        return np.array([text.strip() not in known for text in self._texts(None, column)], bool)

    def names(self, column: str) -> None:
        """Examines the column that names patients or groups."""
        absent = np.array([text.strip() in missing_texts(self.settings) for text in self.columns[column]], bool)
        if absent.any():
            rows = tuple((np.flatnonzero(absent)[:_ROWS] + 1).tolist())
            self.problems.append(Problem("", column, "no name", "give each record one", int(absent.sum()), rows))

    def _wrong(self, feature: Feature) -> Bool[ndarray, " rows"]:
        return read_column(feature, self._texts(feature), missing=missing_texts(self.settings)).wrong

    def _texts(self, feature: Feature | None, column: str = "") -> list[str]:
        return study_texts(feature.column if feature else column, self.columns, self.settings, feature)

    def _words(
        self, column: str, wrong: Bool[ndarray, " rows"], names: tuple[str, ...], feature: Feature | None
    ) -> None:
        """Proposes what the words of wrong rows mean."""
        raw = self.columns[self.settings.mapping.own(column)]
        counts = Counter(raw[row].strip() for row in np.flatnonzero(wrong).tolist())
        found = {text: meant(text, names) for text in counts}
        absent = absent_means(feature, list(raw)) if feature is not None else []
        words = dict(self.settings.mapping.values.get(column, {}))
        for text, count in counts.items():
            name = "" if found[text] is None and text in {each.strip() for each in absent} else found[text]
            if name is None or text in words or (not name and text in missing_texts(self.settings)):
                continue
            words[text] = name
            self.proposals.append(Proposal("value", column, text, name, count))
        if words:
            values = {**self.settings.mapping.values, column: words}
            self.settings = replace(self.settings, mapping=replace(self.settings.mapping, values=values))

    def _form(self, form: Form) -> None:
        self.settings = replace(self.settings, mapping=replace(self.settings.mapping, form=form))

    def _problem(
        self, column: str, found: str, todo: str, where: Bool[ndarray, " rows"], feature: Feature | None = None
    ) -> None:
        if where.any():
            places = np.flatnonzero(where)
            own = self.settings.mapping.own(column)
            texts = [self.columns[own][row] for row in places.tolist()]
            texts = list(shown(feature, texts, missing=missing_texts(self.settings))) if feature else texts
            values = tuple(dict.fromkeys(text.strip()[:40] for text in texts))[:_VALUES]
            rows = tuple((places[:_ROWS] + 1).tolist())
            self.problems.append(Problem(column, own, found, todo, len(places), rows, values))


def _range(feature: Feature, texts: list[str]) -> str:
    """Range and median of a numeric column's values beside what the study expects; "" for others."""
    values = numbers_of(texts) if feature.kind == "numeric" else np.zeros(0)
    if not len(values):
        return ""
    middle, centre = float(np.median(values)), expected(feature)
    return f"{values.min():.4g} to {values.max():.4g}, median {middle:.4g}; the study expects about {centre:.4g}"


def _words_mean(column: str, otherwise: str) -> str:
    """What to do about words that the study does not have: to leave their records out comes last."""
    said = f'conclave-party data map STUDY --value "{column}:YOURS=THE-STUDYS"'
    return f'{said} for each, or --unusable "{column}={otherwise}"'


def _encoding(feature: Feature) -> str:
    """How a column becomes numbers, in words."""
    if feature.kind == "categorical":
        return f"a feature each for {', '.join(feature.categories)}"
    if feature.kind == "text":
        return f"the vectors {feature.vectors}, all 0 where it is missing" if feature.may_miss else f"{feature.vectors}"
    value = "log(1 + value)" if feature.log else "value"
    return f"({value} - {feature.centre:g}) / {feature.scale:g}" + ", and whether it is missing" * feature.may_miss
