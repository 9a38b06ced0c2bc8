"""What is made of a hospital's events: a cohort, a label and features, as a file says that the operator can hand round.

One record a person: its index day is that of the first event of the cohort; all else is looked for in days around it.
The file holds codes only, so hospitals with OMOP databases and with FHIR exports have the same features.
"""

from __future__ import annotations

import datetime
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from protocols.errors import DataCorrupt, InvalidInput
from protocols.reading import read_toml
from runtime.toml_table import TomlTable

KINDS: Final = ("condition", "measurement", "drug", "procedure")
PERSON: Final = ("age", "sex")
IDENTITY: Final = "person"
_TAKES: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {
    "first": lambda values: values[0],
    "last": lambda values: values[-1],
    "mean": lambda values: sum(values) / len(values),
    "least": min,
    "most": max,
}
_DAYS: Final = 36_525
_CODE: Final = re.compile(r"[!-~]{1,200}")


@dataclass(frozen=True)
class Person:
    """identity: in the source; born, died: None if not known; sex: "male", "female" or "" for anything else."""

    identity: str
    born: datetime.date | None
    sex: str
    died: datetime.date | None


@dataclass(frozen=True)
class Event:
    """Something that happened to a person. value: of a measurement, None without one."""

    person: str
    code: str
    day: datetime.date
    value: float | None = None


@dataclass(frozen=True)
class Wanted:
    """A column. kind: of KINDS, "death", or of PERSON; codes: of the events; window: days from the index day, both
    included; take: what becomes of several: a key of _TAKES, "count" or "present"; words: for present and not."""

    column: str
    kind: str
    codes: tuple[str, ...] = ()
    window: tuple[int, int] = (0, 0)
    take: str = "present"
    words: tuple[str, str] = ("yes", "no")


@dataclass(frozen=True)
class FeaturesFile:
    """cohort: whose first event is the index day; columns: the features, and the label last."""

    cohort: Wanted
    columns: tuple[Wanted, ...]

    @property
    def codes(self) -> dict[str, set[str]]:
        """The codes that are looked for, by kind of event."""
        found: dict[str, set[str]] = defaultdict(set)
        for each in (self.cohort, *self.columns):
            if each.kind in KINDS:
                found[each.kind] |= set(each.codes)
        return dict(found)


def read_features(path: Path) -> FeaturesFile:
    """The file. Raises DataUnavailable, InvalidInput naming file and key."""
    table = TomlTable(path, read_toml(path))
    features = tuple(_wanted(each, label=False) for each in table.tables("feature"))
    found = FeaturesFile(_cohort(table.table("cohort")), (*features, _wanted(table.table("label"), label=True)))
    table.done()
    names = [each.column for each in found.columns]
    if len(set(names)) < len(names) or IDENTITY in names:
        raise InvalidInput(
            f"{path}: the columns are {', '.join(names)[:300]}; allowed: each once, and not {IDENTITY!r}"
        )
    return found


@dataclass(frozen=True)
class CohortTable:
    """columns: texts by name, one a person of the cohort, "" where there is no value; everybody: the identities of all
    persons, in order; rows: the place among them of each person of the cohort."""

    columns: Mapping[str, list[str]] = field(repr=False)
    everybody: list[str] = field(repr=False)
    rows: list[int] = field(repr=False)


def table_of(file: FeaturesFile, persons: Iterable[Person], events: Mapping[str, Iterable[Event]]) -> CohortTable:
    """The table of a cohort. events: by kind, those of the file's codes. Raises DataCorrupt if a person is twice."""
    by_person: dict[str, list[tuple[str, Event]]] = defaultdict(list)
    for kind, happened in events.items():
        for each in happened:
            by_person[each.person].append((kind, each))
    found: dict[str, list[str] | None] = {}
    for person in persons:
        if person.identity in found:
            raise DataCorrupt("a person is given twice; allowed: each once")
        own = sorted(by_person.get(person.identity, ()), key=lambda pair: (pair[1].day, pair[1].code))
        cohort = (each.day for kind, each in own if kind == file.cohort.kind and each.code in file.cohort.codes)
        start = next(cohort, None)
        found[person.identity] = None if start is None else [_value(each, person, own, start) for each in file.columns]
    everybody = sorted(found, key=lambda name: (len(name), name))
    table = [(row, values) for row, name in enumerate(everybody) if (values := found[name]) is not None]
    columns = {each.column: [values[at] for _, values in table] for at, each in enumerate(file.columns)}
    rows = [row for row, _ in table]
    return CohortTable({**columns, IDENTITY: [everybody[row] for row in rows]}, everybody, rows)


def _value(wanted: Wanted, person: Person, own: Sequence[tuple[str, Event]], start: datetime.date) -> str:
    if wanted.kind == "sex":
        return person.sex
    if wanted.kind == "age":
        if person.born is None:
            return ""
        return str(start.year - person.born.year - ((start.month, start.day) < (person.born.month, person.born.day)))
    first, last = wanted.window
    if wanted.kind == "death":
        return wanted.words[not (person.died is not None and first <= (person.died - start).days <= last)]
    found = [
        each
        for kind, each in own
        if kind == wanted.kind and each.code in wanted.codes and first <= (each.day - start).days <= last
    ]
    if wanted.take == "present":
        return wanted.words[not found]
    if wanted.take == "count":
        return str(len(found))
    values = [each.value for each in found if each.value is not None]
    return repr(float(_TAKES[wanted.take](values))) if values else ""


def _cohort(table: TomlTable) -> Wanted:
    kind, codes = _events(table)
    table.done()
    return Wanted("", kind, codes)


def _wanted(table: TomlTable, *, label: bool) -> Wanted:
    column = table.text("column")
    if "person" in table.values:
        kind = table.text("person")
        if kind not in PERSON:
            raise InvalidInput(f"{table.path}: {table.name}person is {kind!r}; allowed: {', '.join(PERSON)}")
        table.done()
        return Wanted(column, kind)
    if "death" in table.values:
        table.flag("death")
        kind, codes = "death", tuple[str, ...]()
    else:
        kind, codes = _events(table)
    take = table.text("take", "present" if label or kind != "measurement" else "last")
    allowed = ("present",) if kind == "death" else ("present", "count", *(_TAKES if kind == "measurement" else ()))
    if take not in allowed:
        raise InvalidInput(f"{table.path}: {table.name}take is {take!r}; allowed: {', '.join(allowed)}")
    window = table.values.get("window")
    table.seen.add("window")
    days = window if isinstance(window, list) else []
    if len(days) != 2 or not all(type(day) is int and abs(day) <= _DAYS for day in days) or days[0] > days[1]:
        raise InvalidInput(
            f"{table.path}: {table.name}window is {str(window)[:80]}; allowed: [first, last] day, 0 is the index day"
        )
    words = (table.text("present", "yes"), table.text("absent", "no"))
    table.done()
    return Wanted(column, kind, codes, (days[0], days[1]), take, words)


def _events(table: TomlTable) -> tuple[str, tuple[str, ...]]:
    kinds = [kind for kind in KINDS if kind in table.values]
    codes = table.labels(kinds[0]) if len(kinds) == 1 else ()
    if not codes or not all(_CODE.fullmatch(code) for code in codes):
        raise InvalidInput(f"{table.path}: {table.name}; allowed: one of {', '.join(KINDS)}, with a list of codes")
    return kinds[0], codes
