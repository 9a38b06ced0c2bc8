"""The quality of a hospital's records for a study: every problem at once, and a mapping that settles what it can.

Rows are counted from 1, without the header. Values of records stand in `Problem.values` alone: they are for the
hospital's own terminal.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from party.data.csv_files import CsvFile
from party.data.mapping import DataMapping, Form
from party.data.proposals import absent_means, column_meant, columns_alike, is_date, meant
from party.data.settings import DataSettings
from party.data.sniffing import ambiguous, number_forms, proposed_form
from party.data.source import Columns
from party.data.tables import missing_texts, near, study_texts
from protocols.errors import DataCorrupt
from protocols.study.features import read_column, shown
from protocols.study.terms import Feature, Terms

# What settles that one of the study's columns has no known name here; its argument follows.
COLUMN_MEANT: Final = "conclave-party data map STUDY --column "
_ROWS: Final = 8
_VALUES: Final = 5


@dataclass(frozen=True)
class Problem:
    """Something that a person must settle. column: the study's, "" for the whole source; rows: the first of `count`;
    values: distinct ones of these rows, private; todo: how it can be settled, "" for what is only said."""

    column: str
    own: str
    found: str
    todo: str
    count: int = 0
    rows: tuple[int, ...] = field(default=(), repr=False)
    values: tuple[str, ...] = field(default=(), repr=False)


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
    """One of the study's columns as this hospital fills it. outside: values that cannot be used; width: features."""

    column: str
    own: str
    encoded: str
    width: int
    missing: int
    unusable: int


@dataclass(frozen=True)
class Quality:
    """What was found. mapping: the hospital's own, with the proposals; rows: 0 where no row could be read."""

    rows: int
    columns: tuple[ColumnQuality, ...]
    problems: tuple[Problem, ...]
    proposals: tuple[Proposal, ...]
    mapping: DataMapping = field(repr=False)


def examine(settings: DataSettings, terms: Terms) -> Quality:
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
    mapping, found, problems = _named(header, mapping, terms, settings)
    proposals += found
    present = [each for each in terms.features if header.count(mapping.own(each.column)) == 1]
    own = [mapping.own(column) for column in (*(each.column for each in present), terms.label)]
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
    if mapping.own(terms.label) in columns:
        examined.label(terms)
    for name in {settings.patient, settings.group} & set(columns):
        examined.names(name)
    return Quality(rows, of_columns, tuple(problems), tuple(proposals), examined.settings.mapping)


def _named(
    header: list[str], mapping: DataMapping, terms: Terms, settings: DataSettings
) -> tuple[DataMapping, list[Proposal], list[Problem]]:
    """Which of the hospital's columns are the study's."""
    proposals, problems, columns = [], [], dict(mapping.columns)
    for column in (*(each.column for each in terms.features), terms.label):
        own = mapping.own(column)
        if header.count(own) == 1:
            continue
        other = column_meant(column, header) if column not in mapping.columns else None
        if header.count(own) > 1:
            problems.append(Problem(column, own, f"the header has {own!r} {header.count(own)} times", "rename one"))
        elif other is not None:
            columns[column] = other
            proposals.append(Proposal("column", column, other, column))
        else:
            alike = columns_alike(column, header)
            perhaps = f"; perhaps {', '.join(alike)}" if alike else ""
            todo = f'{COLUMN_MEANT}"{column}={alike[0] if len(alike) == 1 else "YOURS"}"'
            problems.append(Problem(column, own, f"no column {own!r}{perhaps}", todo))
    for key, name in (("patient", settings.patient), ("group", settings.group)):
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
        todo = _words_mean(column, may) if feature.kind == "categorical" else usual
        if feature.kind == "numeric" and any(each.column == column for each in self.problems):
            todo, dates, gone = "", read.wrong & False, gone  # how numbers are written is not known yet
        elif remedy is None:
            self._problem(column, "no value, where the study needs one", usual, gone, feature)
            self._problem(column, "a date, where the study needs a number", "export a number, such as years", dates)
            self._problem(
                column, f"cannot be used; allowed: {read.allowed}", todo, read.wrong & ~gone & ~dates, feature
            )
            clip = f'{usual}, or --unusable "{column}=clip"'
            self._problem(column, f"allowed: {near(feature)}" if far.any() else "", clip, far)
        own, unusable = self.settings.mapping.own(column), int((read.wrong | read.beyond).sum())
        return ColumnQuality(column, own, _encoding(feature), feature.width, int(read.absent.sum()), unusable)

    def label(self, terms: Terms) -> None:
        """Examines the label."""
        texts = self._texts(None, terms.label)
        wrong = np.array([text.strip() not in terms.class_names for text in texts], bool)
        self._words(terms.label, wrong, terms.class_names, None)
        texts = self._texts(None, terms.label)
        wrong = np.array([text.strip() not in terms.class_names for text in texts], bool)
        if self.settings.mapping.unusable.get(terms.label) is None:
            found, todo = f"no class; allowed: {', '.join(terms.class_names)}", _words_mean(terms.label, "leave out")
            self._problem(terms.label, found, todo, wrong)

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
