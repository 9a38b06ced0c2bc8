"""A schema proposed from a table, for a person to read and correct before it is used.

Kinds and categories are guessed from all values of the file: where the file is private, so is the proposal.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from protocols.errors import InvalidInput
from protocols.features.texts import USUAL_VECTORS
from protocols.study.features import MISSING
from simulations.datasets.own_pool import PARTS
from simulations.datasets.own_table import read_table

_LABELS = ("label", "outcome", "target", "class", "diagnosis", "y")
_PATIENTS = ("patient", "patient_id", "subject", "subject_id", "person", "person_id", "mrn")
_SITES = ("site", "site_id", "hospital", "hospital_id", "hospitalid", "center", "centre", "clinic")
_SPLITS = ("split", "part", "subset")
_MOST_CLASSES, _MOST_CATEGORIES = 100, 50


def proposed_schema(path: Path, *, label: str | None, text: Sequence[str] = ()) -> str:
    """The schema of a CSV or Parquet table or of JSON lines as TOML, with a comment for each guess.

    label: the column to predict; None for the one with a usual name. text: the columns of texts, such as notes. Another
    is numeric if all its values are finite numbers and more than two differ, and categorical with 2 to 50 values;
    others are left out, and named. Raises InvalidInput if there is no such column, or the label has fewer than 2 or
    more than 100 values; DataUnavailable or DataCorrupt for a file that cannot be read.
    """
    table = read_table(path, None)
    if absent := [each for each in text if each not in table]:
        raise InvalidInput(f"--text {absent[0]!r}; allowed: one of the columns of {path}, {', '.join(table)}")
    chosen = label or _named(table, _LABELS)
    if chosen is None or chosen not in table:
        wrong = "no column has a usual name of a label" if chosen is None else f"--label {chosen!r}"
        raise InvalidInput(f"{wrong}; allowed: --label with one of the columns of {path}, {', '.join(table)}")
    classes = _values(table[chosen])
    if not 2 <= len(classes) <= _MOST_CLASSES:
        raise InvalidInput(
            f"{path}: column {chosen!r} has {len(classes)} values; allowed for a label: 2 to {_MOST_CLASSES}"
        )
    lines = ["# Proposed from the file: check every line. Categories are values of the records.",
             f"label = {_text(chosen)}", f"classes = {_list(classes)}  # class 0 first"]  # fmt: skip
    used = {chosen}
    for key, names, about in (
        ("patient", _PATIENTS, "its records are never split"),
        ("site", _SITES, "for --partition by-site"),
        ("split", _SPLITS, "private, public, test"),
    ):
        column = _named(table, names)
        if column is not None and column not in used and (key != "split" or set(_values(table[column])) <= set(PARTS)):
            used.add(column)
            lines.append(f"{key} = {_text(column)}  # {about}")
    left_out, constant = [], []
    for column, values in table.items():
        if column in used:
            continue
        kind = ['kind = "text"', f"vectors = {_text(USUAL_VECTORS)}"] if column in text else _kind(values)
        if column not in text and len(set(values)) == 1:
            constant.append(column)
            continue
        if kind is None:
            left_out.append(column)
            continue
        lines += ["", "[[feature]]", f"column = {_text(column)}", *kind]
        lines += ["may_miss = true"] if any(value in MISSING for value in values) else []
    if left_out:
        named = ", ".join(map(_text, left_out))
        lines += ["", f"# Left out, as neither numbers nor few categories (--text COLUMN for notes): {named}"]
    if constant:
        lines += ["", f"# Left out, as all records have the same value: {', '.join(map(_text, constant))}"]
    return "\n".join(lines) + "\n"


def _named(table: Mapping[str, list[str]], names: Sequence[str]) -> str | None:
    """The column with the first of these names, whatever its case."""
    lower = {column.lower(): column for column in table}
    return next((lower[name] for name in names if name in lower), None)


def _kind(values: list[str]) -> list[str] | None:
    """The lines of a feature with these values; None for a column of which no feature can be made."""
    known = _values(values)
    if not known:
        return None
    if len(known) > 2 and all(_number(value) for value in known):
        return ['kind = "numeric"']
    if len(known) > _MOST_CATEGORIES:
        return None
    return ['kind = "categorical"', f"categories = {_list(known)}"]


def _values(values: list[str]) -> list[str]:
    """The distinct values that are not missing: in the order of numbers where all are, else of text."""
    known = {value.strip() for value in values} - set(MISSING)
    return sorted(known, key=float) if all(_number(value) for value in known) else sorted(known)


def _number(value: str) -> bool:
    try:
        return math.isfinite(float(value))
    except ValueError:
        return False


def _text(value: str) -> str:
    # A JSON string without characters above the basic plane is a TOML one.
    return json.dumps(value, ensure_ascii=False)


def _list(values: list[str]) -> str:
    return f"[{', '.join(map(_text, values))}]"
