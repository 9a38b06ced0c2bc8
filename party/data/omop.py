"""A database of the OMOP common data model, version 5 (extra `sql`): a cohort and features, as a file of codes says."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self  # the values of a database

from party.data.cohort import CohortSource
from party.data.database import Database
from party.data.features_file import Event, FeaturesFile, Person
from protocols.errors import DataCorrupt, InvalidInput
from runtime.toml_table import TomlTable

# The table of each kind of event, its concept, its day, and its value.
_TABLES: Final = {
    "condition": ("condition_occurrence", "condition_concept_id", "condition_start_date", "NULL"),
    "measurement": ("measurement", "measurement_concept_id", "measurement_date", "value_as_number"),
    "drug": ("drug_exposure", "drug_concept_id", "drug_exposure_start_date", "NULL"),
    "procedure": ("procedure_occurrence", "procedure_concept_id", "procedure_date", "NULL"),
}
_SEX: Final = {8507: "male", 8532: "female"}


@dataclass(frozen=True)
class OmopDatabase(CohortSource):
    """url, password_file: see Database; features: a features file whose codes are concept ids: each stands for its
    descendants too, where the table concept_ancestor has them; schema: of the tables, "" for the default."""

    url: str = field(repr=False)
    features: Path
    password_file: Path | None = field(default=None, repr=False)
    schema: str = ""

    @classmethod
    def of(cls, table: TomlTable, base: Path) -> Self:
        database, schema = Database.of(table, base), table.text("schema", "")
        if schema and not schema.isidentifier():
            raise InvalidInput(f"{table.path}: data.schema is {schema!r}; allowed: the name of a schema")
        return cls(database.url, base / table.text("features"), database.password_file, schema)

    @property
    def shown(self) -> str:
        return f"{Database(self.url).shown} ({self.features.name})"

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.features,)

    def gather(self, file: FeaturesFile) -> tuple[Iterator[Person], dict[str, Iterator[Event]]]:
        return self._persons(), {kind: self._events(kind, codes) for kind, codes in file.codes.items()}

    def _persons(self) -> Iterator[Person]:
        _, dead = self._rows("SELECT person_id, death_date FROM {death}")
        died = {person: _day(day) for person, day in dead}
        _, persons = self._rows(
            "SELECT person_id, gender_concept_id, year_of_birth, month_of_birth, day_of_birth FROM {person}"
        )
        for person, sex, year, month, day in persons:
            # Where only the year is known, people are taken to be born in the middle of it.
            born = None if year is None else datetime.date(int(year), int(month or 7), int(day or 1))
            yield Person(str(person), born, _SEX.get(sex, ""), died.get(person))

    def _events(self, kind: str, codes: Iterable[str]) -> Iterator[Event]:
        table, concept, day, value = _TABLES[kind]
        stands_for = self._descendants(codes)
        numbers = ", ".join(str(number) for number in sorted(stands_for))
        statement = f"SELECT person_id, {concept}, {day}, {value} FROM {{{table}}} WHERE {concept} IN ({numbers})"
        for person, number, when, amount in self._rows(statement)[1]:
            happened = _day(when)
            if happened is None:
                continue
            for code in stands_for[number]:
                yield Event(str(person), code, happened, None if amount is None else float(amount))

    def _descendants(self, codes: Iterable[str]) -> dict[int, set[str]]:
        """The concepts that stand for codes: each itself, and its descendants."""
        wrong = [code for code in codes if not code.isdecimal() or not code.isascii()]
        if wrong:
            raise InvalidInput(f"{self.features}: code {wrong[0]!r}; allowed in OMOP: concept ids, whole numbers")
        found: dict[int, set[str]] = {}
        for code in codes:
            found.setdefault(int(code), set()).add(code)
        asked = ", ".join(str(number) for number in sorted(found))
        statement = (
            "SELECT ancestor_concept_id, descendant_concept_id FROM {concept_ancestor} "
            f"WHERE ancestor_concept_id IN ({asked})"
        )
        try:
            pairs = self._rows(statement)[1]
        except DataCorrupt:  # a database without vocabularies
            return found
        for ancestor, descendant in pairs:
            found.setdefault(descendant, set()).add(str(ancestor))
        return found

    def _rows(self, statement: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        before = f"{self.schema}." if self.schema else ""
        tables = ("person", "death", "concept_ancestor", *(each[0] for each in _TABLES.values()))
        return Database(self.url, self.password_file).rows(statement.format(**{name: before + name for name in tables}))


def _day(value: object) -> datetime.date | None:
    """A day; SQLite keeps it as a text. Raises DataCorrupt."""
    match value:
        case None | "":
            return None
        case datetime.datetime():
            return value.date()
        case datetime.date():
            return value
        case str():
            try:
                return datetime.date.fromisoformat(value[:10])
            except ValueError:
                pass
    raise DataCorrupt(f"a day is {type(value).__name__}, and no date; allowed: YYYY-MM-DD")
