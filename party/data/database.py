"""Databases, read only, as tables or cohorts (OMOP, version 5): the one file that imports SQLAlchemy (extra `sql`).

A connection is told to refuse writing where the database can be (SQLite, PostgreSQL, MySQL and MariaDB), and only a
SELECT is sent anywhere. Neither messages nor representations show a URL's user, password or options.
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self  # what a driver returns, checked below

import sqlalchemy
import sqlalchemy.exc

from party.data.cohort import CohortSource, FeaturesFile, Noted, Person
from party.data.mapping import Form
from party.data.records import Columns, TableSource
from protocols.errors import DataCorrupt, DataUnavailable, InvalidInput
from protocols.reading import VALUES, read_text, wanted_columns
from runtime.settings import TomlTable

_PASSWORD_BYTES: Final = 4096
_AT_ONCE: Final = 10_000
# How a connection is told to refuse writing.
_READ_ONLY: Final = {
    "sqlite": "PRAGMA query_only = ON",
    "postgresql": "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
    "mysql": "SET SESSION TRANSACTION READ ONLY",
    "mariadb": "SET SESSION TRANSACTION READ ONLY",
}


@dataclass(frozen=True)
class SqlData:
    """url: SQLAlchemy's; password_file: a file that holds the password alone, None for none."""

    url: str = field(repr=False)
    password_file: Path | None = field(default=None, repr=False)

    @classmethod
    def of(cls, table: TomlTable, base: Path) -> Self:
        """From the keys url and password_file; paths are relative to `base`. Raises InvalidInput naming the key."""
        password = table.text("password_file", "")
        try:
            url = sqlalchemy.make_url(table.text("url"))
        except sqlalchemy.exc.ArgumentError:  # its text may hold the password
            raise InvalidInput(
                f"{table.path}: data.url is no URL; allowed: such as postgresql://reader@host/db"
            ) from None
        if url.get_backend_name() == "sqlite" and url.database:
            url = url.set(database=str(base / url.database))
        return cls(url.render_as_string(hide_password=False), base / password if password else None)

    @property
    def shown(self) -> str:
        """Kind, host and name of the database."""
        url = sqlalchemy.make_url(self.url)
        return f"{url.get_backend_name()}://{url.host or ''}/{url.database or ''}"

    def rows(
        self, statement: str, parameters: Mapping[str, Any] | None = None
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """The names of the columns that a SELECT gives, and its rows.

        Raises DataUnavailable if the database cannot be reached, DataCorrupt for a statement that it refuses, or too
        many values; InvalidInput for another statement than a SELECT, and for a driver that is not installed.
        """
        plain = statement.strip().rstrip(";").strip()
        if plain.split(None, 1)[:1] == [] or plain.split(None, 1)[0].lower() not in ("select", "with") or ";" in plain:
            raise InvalidInput(f"the query begins with {plain[:20]!r}; allowed: one SELECT, as nothing is written")
        url, password = self._secret()
        engine = None
        try:
            engine = sqlalchemy.create_engine(url, hide_parameters=True, poolclass=sqlalchemy.pool.NullPool)
            with engine.connect() as connection:
                if command := _READ_ONLY.get(url.get_backend_name()):
                    connection.execute(sqlalchemy.text(command))
                result = connection.execute(sqlalchemy.text(plain), parameters or {})
                names, found = list(result.keys()), []
                while block := result.fetchmany(_AT_ONCE):
                    found += [tuple(row) for row in block]
                    if len(found) * len(names) > VALUES:
                        raise DataCorrupt(f"{self.shown}: more than {VALUES} values; allowed: at most that")
                connection.rollback()
                return names, found
        except sqlalchemy.exc.NoSuchModuleError:
            raise InvalidInput(
                f"{self.shown}: SQLAlchemy has no such kind of database; allowed: one that it has"
            ) from None
        except ModuleNotFoundError as error:
            raise InvalidInput(f"{self.shown} needs the driver {error.name}, which is not installed") from None
        except sqlalchemy.exc.SQLAlchemyError as error:
            said = str(getattr(error, "orig", None) or type(error).__name__)
            said = said.replace(password, "***")[:200] if password else said[:200]
            if getattr(error, "connection_invalidated", False) or (engine is not None and "connect" in said.lower()):
                raise DataUnavailable(f"{self.shown} cannot be reached: {said}") from None
            raise DataCorrupt(f"{self.shown}: {said}; allowed: a query that the database answers") from None
        finally:
            if engine is not None:
                engine.dispose()

    def _secret(self) -> tuple[sqlalchemy.URL, str]:
        """The URL with its password, and the password, "" for none."""
        url = sqlalchemy.make_url(self.url)
        if self.password_file is not None:
            url = url.set(password=read_text(self.password_file, most=_PASSWORD_BYTES).strip())
        if url.get_backend_name() == "sqlite" and url.database:
            if not Path(url.database).is_file():  # SQLite would make it
                raise DataUnavailable(f"{url.database} does not exist; allowed: a SQLite database")
            url = url.set(database=f"file:{url.database}", query={"mode": "ro", "uri": "true"})
        return url, url.password or ""


def as_text(value: object, *, where: str) -> str:
    """A value of a database as the text that a table would hold; "" for none. Raises DataCorrupt for other kinds."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case float():
            return "" if math.isnan(value) else repr(value)
        case int() | decimal.Decimal() | str():
            return str(value)
        case datetime.date() | datetime.datetime():
            return value.isoformat()
    raise DataCorrupt(f"{where}: a value is {type(value).__name__}; allowed: numbers, texts and dates")


_QUERY_BYTES: Final = 2**20


@dataclass(frozen=True)
class SqlQuery(TableSource):
    """url, password_file: see Database; query: a file with one SELECT, which should say ORDER BY: teachers are trained
    anew where rows come in another order."""

    url: str = field(repr=False)
    query: Path
    password_file: Path | None = field(default=None, repr=False)

    @classmethod
    def of(cls, table: TomlTable, base: Path) -> Self:
        database = SqlData.of(table, base)
        return cls(database.url, base / table.text("query"), database.password_file)

    @property
    def shown(self) -> str:
        return f"{SqlData(self.url).shown} ({self.query.name})"

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.query,)

    def header(self, form: Form) -> list[str]:
        return self._answer[0]

    def columns(self, names: Sequence[str] | None, form: Form) -> Columns:
        """Values as texts; NULL is a missing one."""
        header, rows = self._answer
        wanted = wanted_columns(self.query, header if names is None else names, header)
        places = [header.index(name) for name in wanted]
        return {
            name: [as_text(row[place], where=f"{self.shown}: column {name!r}") for row in rows]
            for name, place in zip(wanted, places, strict=True)
        }

    @cached_property
    def _answer(self) -> tuple[list[str], list[tuple[object, ...]]]:
        # Asked once: a query may be slow, and a second answer may differ.
        return SqlData(self.url, self.password_file).rows(read_text(self.query, most=_QUERY_BYTES))


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
        database, schema = SqlData.of(table, base), table.text("schema", "")
        if schema and not schema.isidentifier():
            raise InvalidInput(f"{table.path}: data.schema is {schema!r}; allowed: the name of a schema")
        return cls(database.url, base / table.text("features"), database.password_file, schema)

    @property
    def shown(self) -> str:
        return f"{SqlData(self.url).shown} ({self.features.name})"

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.features,)

    def gather(self, file: FeaturesFile) -> tuple[Iterator[Person], dict[str, Iterator[Noted]]]:
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

    def _events(self, kind: str, codes: Iterable[str]) -> Iterator[Noted]:
        table, concept, day, value = _TABLES[kind]
        stands_for = self._descendants(codes)
        numbers = ", ".join(str(number) for number in sorted(stands_for))
        statement = f"SELECT person_id, {concept}, {day}, {value} FROM {{{table}}} WHERE {concept} IN ({numbers})"
        for person, number, when, amount in self._rows(statement)[1]:
            happened = _day(when)
            if happened is None:
                continue
            for code in stands_for[number]:
                yield Noted(str(person), code, happened, None if amount is None else float(amount))

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
        return SqlData(self.url, self.password_file).rows(statement.format(**{name: before + name for name in tables}))


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
