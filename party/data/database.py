"""Databases, read only: the one file that imports SQLAlchemy (extra `sql`).

A connection is told to refuse writing where the database can be (SQLite, PostgreSQL, MySQL and MariaDB), and only a
SELECT is sent anywhere. Neither messages nor representations show a URL's user, password or options.
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self  # what a driver returns, checked below

import sqlalchemy
import sqlalchemy.exc

from protocols.errors import DataCorrupt, DataUnavailable, InvalidInput
from protocols.reading import read_text
from runtime.tables import VALUES
from runtime.toml_table import TomlTable

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
class Database:
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
