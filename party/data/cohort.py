"""A cohort, a label and features, made of persons and events as a features file says; and FHIR exports as their source.

One record per person: its index day is that of the first event of the cohort; all else is looked for in days around it.
The features file holds codes only, and the operator can hand it round: hospitals with OMOP databases and with FHIR
exports have the same features.
"""

from __future__ import annotations

import datetime
import re
import zlib
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self  # parsed JSON, checked below

import numpy as np

from party.data.mapping import Form
from party.data.records import Columns, DataSettings, Records, TableSource
from protocols.errors import DataCorrupt, DataUnavailable, InvalidInput
from protocols.reading import VALUES, parse_json, read_toml, wanted_columns
from protocols.study.terms import Terms
from runtime.settings import TomlTable
from runtime.tables import open_table

_KINDS: Final = ("condition", "measurement", "drug", "procedure")
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
class Noted:
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
    """cohort: whose first event is the index day; columns: the features, and labels last: one, or a finding each."""

    cohort: Wanted
    columns: tuple[Wanted, ...]

    @property
    def codes(self) -> dict[str, set[str]]:
        """The codes that are looked for, by kind of event."""
        found: dict[str, set[str]] = defaultdict(set)
        for each in (self.cohort, *self.columns):
            if each.kind in _KINDS:
                found[each.kind] |= set(each.codes)
        return dict(found)


def _read_features(path: Path) -> FeaturesFile:
    """The file. Raises DataUnavailable, InvalidInput naming file and key."""
    table = TomlTable(path, read_toml(path))
    features = tuple(_wanted(each, label=False) for each in table.tables("feature"))
    several = isinstance(table.values.get("label"), list)
    of_labels = table.tables("label") if several else [table.table("label")]
    labels = (_wanted(each, label=True) for each in of_labels)
    found = FeaturesFile(_cohort(table.table("cohort")), (*features, *labels))
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


def _table_of(file: FeaturesFile, persons: Iterable[Person], events: Mapping[str, Iterable[Noted]]) -> CohortTable:
    """The table of a cohort. events: by kind, those of the file's codes. Raises DataCorrupt if a person is twice."""
    by_person: dict[str, list[tuple[str, Noted]]] = defaultdict(list)
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


def _value(wanted: Wanted, person: Person, own: Sequence[tuple[str, Noted]], start: datetime.date) -> str:
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
    kinds = [kind for kind in _KINDS if kind in table.values]
    codes = table.labels(kinds[0]) if len(kinds) == 1 else ()
    if not codes or not all(_CODE.fullmatch(code) for code in codes):
        raise InvalidInput(f"{table.path}: {table.name}; allowed: one of {', '.join(_KINDS)}, with a list of codes")
    return kinds[0], codes


class CohortSource(TableSource):
    """A subclass gathers persons and events. Who is not in the cohort is a record that is not used: so whether somebody
    is in it changes nobody else's teacher."""

    features: Path

    @abstractmethod
    def gather(self, file: FeaturesFile) -> tuple[Iterable[Person], Mapping[str, Iterable[Noted]]]:
        """All persons, and the events of the file's codes by kind. Raises DataUnavailable, DataCorrupt."""

    def header(self, form: Form) -> list[str]:
        return [*(each.column for each in _read_features(self.features).columns), IDENTITY]

    def columns(self, names: Sequence[str] | None, form: Form) -> Columns:
        """Of the cohort alone."""
        header = self.header(form)
        return {name: self._table.columns[name] for name in wanted_columns(self.features, names or header, header)}

    def records(self, settings: DataSettings, terms: Terms) -> Records:
        """One record per person of the source, used if the person is in the cohort."""
        if settings.group:
            raise DataCorrupt(f"{self.shown}: data.group is {settings.group!r}; allowed: none with a cohort")
        found, table = super().records(settings, terms), self._table
        shape = (len(table.everybody), *found.inputs.shape[1:])
        if np.prod(shape) > VALUES:
            raise DataCorrupt(f"{self.shown}: {len(table.everybody)} persons; allowed: at most {VALUES} values")
        inputs = np.zeros(shape, np.float32)
        labels = np.zeros((len(table.everybody), *found.labels.shape[1:]), np.int64)
        used = np.zeros(len(table.everybody), bool)
        inputs[table.rows], labels[table.rows], used[table.rows] = found.inputs, found.labels, found.usable
        return Records(inputs, labels, table.everybody if settings.patient else None, None, used)

    @cached_property
    def _table(self) -> CohortTable:
        # Gathered once: a second answer of a database may differ.
        file = _read_features(self.features)
        return _table_of(file, *self.gather(file))


_LINE: Final = 2**24
# Of each kind of event: the resource, where its code is, and where its day may be.
_RESOURCES: Final = {
    "condition": ("Condition", "code", ("onsetDateTime", "onsetPeriod", "recordedDate")),
    "measurement": ("Observation", "code", ("effectiveDateTime", "effectivePeriod", "effectiveInstant", "issued")),
    "drug": ("MedicationRequest", "medicationCodeableConcept", ("authoredOn",)),
    "procedure": ("Procedure", "code", ("performedDateTime", "performedPeriod")),
}
# What was entered in error, or turned out not to be so, did not happen.
_NOT_SO: Final = frozenset({"entered-in-error", "refuted", "cancelled", "not-done", "stopped"})


@dataclass(frozen=True)
class FhirExport(CohortSource):
    """path: a folder of files such as Patient.ndjson or Observation.0.ndjson.gz; features: a features file."""

    path: Path
    features: Path

    @classmethod
    def of(cls, table: TomlTable, base: Path) -> Self:
        return cls(base / table.text("path"), base / table.text("features"))

    @property
    def shown(self) -> str:
        return f"{self.path} ({self.features.name})"

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.path, self.features)

    def gather(self, file: FeaturesFile) -> tuple[Iterator[Person], dict[str, Iterator[Noted]]]:
        if not self.path.is_dir():
            raise DataUnavailable(f"{self.path} does not exist or is not a folder; allowed: a FHIR bulk export")
        return self._persons(), {kind: self._events(kind, codes) for kind, codes in file.codes.items()}

    def _persons(self) -> Iterator[Person]:
        found = False
        for where, each in self._resources("Patient"):
            found = True
            sex, died = _text(each, "gender", where), _text(each, "deceasedDateTime", where)
            yield Person(
                identity=_text(each, "id", where, needed=True),
                born=_day(_text(each, "birthDate", where), where),
                sex=sex if sex in ("male", "female") else "",
                died=_day(died, where),
            )
        if not found:
            raise DataCorrupt(f"{self.path} holds no patient; allowed: Patient.ndjson among the files")

    def _events(self, kind: str, codes: set[str]) -> Iterator[Noted]:
        resource, place, days = _RESOURCES[kind]
        for where, each in self._resources(resource):
            named = _codes(each.get(place), where) & codes
            if not named or _NOT_SO & _statuses(each):
                continue
            day = next((found for key in days if (found := _day(_when(each.get(key)), where)) is not None), None)
            subject = each.get("subject")
            who = subject.get("reference") if isinstance(subject, dict) else None
            if day is None or not isinstance(who, str):
                continue
            for code in sorted(named):
                yield Noted(who.rpartition("/")[2], code, day, _amount(each, where))

    def _resources(self, resource: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each resource of a kind, and where it stands. Raises DataCorrupt."""
        for path in sorted(self.path.glob(f"{resource}*.ndjson*")):
            if path.name.removesuffix(".gz").split(".")[0] != resource:
                continue
            try:
                with open_table(path, encoding="utf-8") as lines:
                    number = 0
                    while line := lines.readline(_LINE):
                        number += 1
                        where = f"{path}, line {number}"
                        if line.strip():
                            value = parse_json(line, where=where)
                            if not isinstance(value, dict) or value.get("resourceType") != resource:
                                raise DataCorrupt(f"{where} is no {resource}; allowed: one resource per line")
                            yield where, value
            except (OSError, EOFError, zlib.error, UnicodeError) as error:
                why = "it is not UTF-8" if isinstance(error, UnicodeError) else str(error)[:200]
                raise DataCorrupt(f"{path} cannot be read: {why}; allowed: NDJSON") from None


def _text(values: dict[str, Any], key: str, where: str, *, needed: bool = False) -> str:
    value = values.get(key, "")
    if not isinstance(value, str) or (needed and not value):
        raise DataCorrupt(f"{where}: {key} is {type(value).__name__}; allowed: a text")
    return value


def _codes(concept: object, where: str) -> set[str]:
    """The codes of a concept, with and without their systems. Raises DataCorrupt."""
    codings = concept.get("coding", []) if isinstance(concept, dict) else []
    if not isinstance(codings, list) or not all(isinstance(each, dict) for each in codings):
        raise DataCorrupt(f"{where}: coding is no list of codes; allowed: FHIR's CodeableConcept")
    pairs = [(each.get("system"), each.get("code")) for each in codings]
    return {str(code) for _, code in pairs} | {f"{system}|{code}" for system, code in pairs}


def _statuses(values: dict[str, Any]) -> set[str]:
    said = values.get("verificationStatus")
    codings = said.get("coding", []) if isinstance(said, dict) else []
    listed = codings if isinstance(codings, list) else []
    verified = {str(each.get("code")) for each in listed if isinstance(each, dict)}
    return verified | {str(values.get("status"))}


def _amount(values: dict[str, Any], where: str) -> float | None:
    quantity = values.get("valueQuantity")
    amount = quantity.get("value") if isinstance(quantity, dict) else values.get("valueInteger")
    if amount is None:
        return None
    if isinstance(amount, bool) or not isinstance(amount, int | float):
        raise DataCorrupt(f"{where}: value is {type(amount).__name__}; allowed: a number")
    return float(amount)


def _when(value: object) -> str:
    start = value.get("start") if isinstance(value, dict) else value
    return start if isinstance(start, str) else ""


def _day(text: str, where: str) -> datetime.date | None:
    if not text:
        return None
    day = text[:10]
    try:
        return datetime.date.fromisoformat(day if len(day) == 10 else f"{day}-01-01"[:10])
    except ValueError:
        raise DataCorrupt(f"{where}: a day is no date; allowed: YYYY-MM-DD, YYYY-MM or YYYY") from None
