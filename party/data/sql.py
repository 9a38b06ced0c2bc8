"""One query of a database, one row a record (extra `sql`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final, Self

from party.data.database import Database, as_text
from party.data.mapping import Form
from party.data.source import Columns, TableSource
from protocols.reading import read_text
from runtime.tables import wanted_columns
from runtime.toml_table import TomlTable

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
        database = Database.of(table, base)
        return cls(database.url, base / table.text("query"), database.password_file)

    @property
    def shown(self) -> str:
        return f"{Database(self.url).shown} ({self.query.name})"

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
        return Database(self.url, self.password_file).rows(read_text(self.query, most=_QUERY_BYTES))
