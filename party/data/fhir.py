"""A FHIR bulk export (NDJSON, release 4): a cohort and features, as a file of codes says.

A code of the file is "system|code", or the code alone. An instant or a part of a date counts as its (first) day.
"""

from __future__ import annotations

import datetime
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self  # parsed JSON, checked below

from party.data.cohort import CohortSource
from party.data.features_file import Event, FeaturesFile, Person
from protocols.errors import DataCorrupt, DataUnavailable
from protocols.reading import parse_json
from runtime.tables import open_table
from runtime.toml_table import TomlTable

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

    def gather(self, file: FeaturesFile) -> tuple[Iterator[Person], dict[str, Iterator[Event]]]:
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

    def _events(self, kind: str, codes: set[str]) -> Iterator[Event]:
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
                yield Event(who.rpartition("/")[2], code, day, _amount(each, where))

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
                                raise DataCorrupt(f"{where} is no {resource}; allowed: one resource a line")
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
