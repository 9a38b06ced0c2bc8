"""A schema proposed from a table, for a person to read and correct before it is used.

Kinds and categories are guessed from all values of the file: where the file is private, so is the proposal. It names
the columns that say the label by themselves, as one does that was written down after the label was known.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import gcd
from pathlib import Path
from typing import Final

import numpy as np

from party.data.files import CsvFile
from party.data.mapping import Form, form_lines, reads
from party.data.quality import FORMS, is_date, means_absent, number_forms, proposed_form
from protocols.errors import InvalidInput
from protocols.features.texts import USUAL_VECTORS
from protocols.plural import some
from protocols.study.features import MISSING, read_numbers
from protocols.study.terms import is_printable
from simulations.datasets.doubts import ranges_of, tells
from simulations.datasets.own import plain_numbers, read_table, source_of
from simulations.datasets.own_pool import PARTS


def tells_label(values: Sequence[str], labels: Sequence[str], *, numeric: bool, missing: Collection[str]) -> bool:
    """Whether a column tells the label by itself. Records without a label do not count; a missing value is a value."""
    labelled = [place for place, label in enumerate(labels) if label.strip() not in missing]
    names = np.unique([labels[place].strip() for place in labelled], return_inverse=True)[1]
    texts = [values[place].strip() for place in labelled]
    cells = np.unique(texts, return_inverse=True)[1]
    if numeric:
        cells = ranges_of(np.nan_to_num(read_numbers(texts), nan=np.inf), names)
    return tells(cells, names)


_LABELS = ("label", "labels", "outcome", "target", "class", "diagnosis", "species", "y")
_PATIENTS = ("patient", "patient_id", "subject", "subject_id", "person", "person_id", "mrn")
_SITES = ("site", "site_id", "hospital", "hospital_id", "hospitalid", "center", "centre", "clinic")
_SPLITS = ("split", "part", "subset")
# In the name of another column: it is one of these where its values repeat.
_PATIENT_LIKE: Final = re.compile(r"patient|subject|person|(^|[_ .-])(pat|mrn|pid)([_ .-]|$)", re.IGNORECASE)
_SITE_LIKE: Final = re.compile(
    r"spital|[ck]lini[ck](?!al)|krankenhaus|ospedale|h[oô]pital|centre|facility|institution|(^|[_ .-])site([_ .-]|$)",
    re.IGNORECASE,
)
# A site has so many records, in the mean.
_OF_A_SITE: Final = 20
_MOST_CLASSES, _MOST_CATEGORIES = 100, 50
# More categories, as diagnoses have, where each has so many records, in the mean.
_MOST_CODES, _OF_A_CODE = 200, 4
# In the name of a column of whole numbers that name groups, which have no order.
_GROUPS_LIKE: Final = re.compile(
    r"(^|[_ .-])(code|group|grp|type|category|ward|unit|department|dept|drg|icd|sex|gender|race|ethnicity)([_ .-]|$)",
    re.IGNORECASE,
)
# Of a class: with fewer, a part of the data or a party has none.
_FEW_RECORDS: Final = 10
# Names of columns that number the rows, or whatever these are about.
_IDENTIFIER: Final = re.compile(
    r"|unnamed: \d+|(.*[_ .-])?(id|uuid|index|row|nr|no|number|key|mrn|pid)|[a-z]+ID", re.ASCII
)
# What may stand among numbers, and is no code.
_NO_NUMBER: Final = re.compile(r"\D*|[<>≤≥~].*")
# Words that are no category in any column; others, such as "none" and "unknown", are one unless a column of numbers
# has them.
_NEVER_A_CATEGORY: Final = frozenset({*MISSING, "N/A", "n/a", "#N/A", "NULL", "Null", "null", "NAN", "na"})


@dataclass(frozen=True)
class _Proposal:
    """text: the schema; notes: what a person should know before using it, a sentence each."""

    text: str = field(repr=False)
    notes: tuple[str, ...]


def proposed_schema(path: Path, *, label: str | None, text: Sequence[str] = ()) -> _Proposal:
    """The schema of a table as TOML, with a comment for each guess.

    label: the column to predict; None for the one with a usual name. text: the columns of texts, such as notes. Another
    is numeric if all its values are finite numbers and more than two differ, and categorical with 2 to 50 values, or up
    to 200 that repeat, and so are numbers that name groups by their look; dates, identifiers and
    others are left out, and named. How a CSV file is written is guessed, too: encoding,
    delimiter, signs of numbers, and the words that mean no value. Raises InvalidInput if there is no such column, or
    the label has fewer than 2 or more than 100 values; DataUnavailable or DataCorrupt for a file that cannot be read.
    """
    form = proposed_form(path, Form()) if isinstance(source_of(path), CsvFile) else Form()
    table = read_table(path, None, form)
    if absent := [each for each in text if each not in table]:
        raise InvalidInput(f"--text {absent[0]!r}; allowed: one of the columns of {path}, {', '.join(table)}")
    chosen = label or _named(table, _LABELS)
    if chosen is None or chosen not in table:
        wrong = "no column has a usual name of a label" if chosen is None else f"--label {chosen!r}"
        raise InvalidInput(f"{wrong}; allowed: --label with one of the columns of {path}, {', '.join(table)}")
    form = _with_numbers({name: values for name, values in table.items() if name != chosen}, form)
    classes = _values(table[chosen])
    if not 2 <= len(classes) <= _MOST_CLASSES:
        raise InvalidInput(
            f"{path}: column {chosen!r} has {len(classes)} values; allowed for a label: 2 to {_MOST_CLASSES}"
        )
    lines = ["# Proposed from the file: check every line. Categories are values of the records.",
             f"label = {_text(chosen)}", f"classes = {_list(classes)}  # class 0 first"]  # fmt: skip
    columns = _Columns(table, form, table[chosen], notes=_notes_on_label(table[chosen], classes))
    lines += ["only_labelled = true  # rows without a label are left out"] * columns.has_unlabelled
    used = {chosen}
    for key, names, about in (
        ("patient", _PATIENTS, "its records are never split; --unit patient protects all of them"),
        ("site", _SITES, "for --partition by-site"),
        ("split", _SPLITS, "private, public, test"),
    ):
        column = _named(table, names) or _repeated(table, key, used)
        if column is not None and column not in used and (key != "split" or set(_values(table[column])) <= set(PARTS)):
            used.add(column)
            lines.append(f"{key} = {_text(column)}  # {about}")
    lines += [f"{line}  # how the file is written" for line in form_lines(form)]
    rows = len(table[chosen])
    if same := rows - len({*zip(*table.values(), strict=True)}):
        columns.notes.append(f"{same} of {rows} rows are the same as others in all columns: delete them unless they "
                             "are other records, as --unit record protects one of them alone")  # fmt: skip
    for column in table:
        if column not in used:
            lines += columns.feature(column, is_text=column in text)
    for why, left_out in columns.left_out.items():
        lines += ["", f"# Left out, as {why}: {', '.join(map(_text, left_out))}"]
        columns.notes.append(f"left out, as {why}: {some(left_out)}")
    return _Proposal("\n".join(lines) + "\n", tuple(columns.notes))


@dataclass
class _Columns:
    """The columns of a table, what was left out so far, by reason, and what a person should know."""

    table: Mapping[str, Sequence[str]]
    form: Form
    labels: Sequence[str]
    notes: list[str]
    left_out: dict[str, list[str]] = field(default_factory=dict)

    @property
    def has_unlabelled(self) -> bool:
        return any(value.strip() in _NEVER_A_CATEGORY for value in self.labels)

    def feature(self, column: str, *, is_text: bool) -> list[str]:
        """The lines of a feature; none for a column of which no feature can be made."""
        values = [value.strip() for value in self.table[column]]
        missing = {"", *self.form.missing}
        known = {*values} - missing
        if is_text:
            kind = ['kind = "text"', f"vectors = {_text(USUAL_VECTORS)}"]
        elif len({*values}) == 1 or not known:
            return self._without(column, "all records have the same value")
        elif (_IDENTIFIER.fullmatch(column) and len(known) > _MOST_CATEGORIES) or _numbers_rows(values):
            return self._without(column, "identifiers say nothing about other records")
        elif len(known) > 2 and all(reads(value, self.form) for value in known) and not _names_groups(column, known):
            kind = ['kind = "numeric"']
            values = plain_numbers(values, self.form, missing)
        elif odd := self._beside_numbers(known):
            why = f"{sum(value in odd for value in values)} values are no finite numbers ({some(sorted(odd))})"
            return self._without(column, f"{why}: mend them, or name in `missing` those that mean no value")
        elif len(known) > _MOST_CATEGORIES and ((dates := all(map(is_date, known))) or _too_many(known, values)):
            return self._without(
                column,
                "dates are no numbers (--partition by-time:COLUMN orders records by them)"
                if dates
                else "neither numbers nor few categories (--text COLUMN for notes)",
            )
        elif not all(map(is_printable, known)):
            return self._without(column, "values with line breaks or control characters: mend them")
        else:
            kind = ['kind = "categorical"', f"categories = {_list(_values(values, missing))}"]
            missing |= _NEVER_A_CATEGORY
        lines = ["", "[[feature]]", f"column = {_text(column)}", *kind]
        if not is_text and tells_label(values, self.labels, numeric="numeric" in kind[0], missing=missing):
            lines[1:1] = ["# This column alone tells the label: delete it if it is known only after the label."]
            self.notes.append(f"column {column!r} alone tells the label: delete it if it is known only afterwards")
        return lines + ["may_miss = true"] * any(value in missing for value in values)

    def _beside_numbers(self, known: Collection[str]) -> set[str]:
        """Of values that are numbers but for words and limits, as "<0.3", these; else none: codes are neither."""
        odd = {value for value in known if not reads(value, self.form)}
        return odd if len(known) - len(odd) > _FEW_RECORDS and all(map(_NO_NUMBER.fullmatch, odd)) else set()

    def _without(self, column: str, why: str) -> list[str]:
        self.left_out.setdefault(why, []).append(column)
        return []


def _notes_on_label(labels: Sequence[str], classes: Sequence[str]) -> list[str]:
    plain = [label.strip() for label in labels]
    found = {name: plain.count(name) for name in classes}
    unlabelled = len(plain) - sum(found.values())
    few = [f"class {name!r} has {count}" for name, count in found.items() if count < _FEW_RECORDS]
    notes = [f"{unlabelled} of {len(plain)} rows have no label, and are left out"] * (unlabelled > 0)
    return notes + [f"{', '.join(few[:5])} of {len(plain)} records, too few to learn and to test"] * bool(few)


def _with_numbers(table: Mapping[str, Sequence[str]], form: Form) -> Form:
    """The form with the signs of numbers, and with the words that columns of numbers have where there is no value."""
    words: set[str] = set()
    texts: set[str] = set()
    for values in table.values():
        known = {value.strip() for value in values} - {"", *MISSING}
        absent = {value for value in known if means_absent(value)}
        numbers = known - absent
        if len(numbers) > 2 and any(
            all(reads(value, Form(decimal=decimal, thousands=thousands)) for value in numbers)
            for decimal, thousands in ((".", ""), *FORMS)
        ):
            words |= absent
            texts |= numbers
    for values in table.values():
        words |= {value.strip() for value in values} & _NEVER_A_CATEGORY
    missing = (*MISSING, *sorted(words - {*MISSING}))
    fits = number_forms(texts)
    # "1,234" may be either: where commas part columns, hardly anybody has decimal ones.
    usual = [pair for pair in fits if (pair[0] == ",") == (form.delimiter is not None)] or fits
    if not usual:
        return replace(form, missing=missing)
    decimal, thousands = usual[0]
    return replace(form, decimal=decimal, thousands=thousands or None, missing=missing)


def _named(table: Mapping[str, Sequence[str]], names: Sequence[str]) -> str | None:
    """The column with the first of these names, whatever its case."""
    lower = {column.lower(): column for column in table}
    return next((lower[name] for name in names if name in lower), None)


def _repeated(table: Mapping[str, Sequence[str]], key: str, used: Collection[str]) -> str | None:
    """A column that names patients, or sites, by a word in its name, with values that repeat as often as theirs do."""
    if key == "split":
        return None
    like, each = (_PATIENT_LIKE, 1) if key == "patient" else (_SITE_LIKE, _OF_A_SITE)
    for column, values in table.items():
        if like.search(column) and column not in used:
            known = len({value.strip() for value in values})
            if 2 <= known < len(values) and each * known <= len(values):
                return column
    return None


def _too_many(known: Collection[str], values: Sequence[str]) -> bool:
    """Whether so many different values are no categories."""
    return len(known) > _MOST_CODES or _OF_A_CODE * len(known) > len(values)


def _numbers_rows(values: Sequence[str]) -> bool:
    """Whether whole numbers count the rows: each once, in order, or nearly without a gap."""
    if len(values) < _FEW_RECORDS or len({*values}) < len(values) or not all(value.isdecimal() for value in values):
        return False
    numbers = [int(value) for value in values]
    return numbers == sorted(numbers) or max(numbers) - min(numbers) < 1.5 * len(numbers)


def _names_groups(column: str, known: Collection[str]) -> bool:
    """Whether numbers look like names of groups: few, and by the column's name, a leading zero, or as many digits each,
    at least three, with wide gaps between them."""
    if len(known) > _MOST_CATEGORIES or not all(value.isdecimal() for value in known):
        return False
    numbers = [int(value) for value in known]
    spread = max(numbers) - min(numbers)
    alike = {len(value) for value in known} in ({3}, {4}, {5}, {6}) and spread > 5 * len(known)
    padded = any(value.startswith("0") and len(value) > 1 for value in known)
    return bool(_GROUPS_LIKE.search(column)) or padded or (alike and gcd(*numbers) == 1)


def _values(values: Sequence[str], missing: set[str] | None = None) -> list[str]:
    """The distinct values that are not missing: in the order of numbers where all are, else of text."""
    known = {value.strip() for value in values} - _NEVER_A_CATEGORY - (missing or set())
    return sorted(known, key=float) if all(reads(value, Form()) for value in known) else sorted(known)


def _text(value: str) -> str:
    # A JSON string without characters above the basic plane is a TOML one.
    return json.dumps(value, ensure_ascii=False)


def _list(values: list[str]) -> str:
    return f"[{', '.join(map(_text, values))}]"
