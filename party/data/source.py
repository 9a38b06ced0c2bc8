"""A source: a kind of place that private records are read from, with the keys of [data] in node.toml that it needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from protocols.errors import DataCorrupt

if TYPE_CHECKING:
    from party.data.mapping import Form
    from party.data.records import Records
    from party.data.settings import DataSettings
    from protocols.study.terms import Terms
    from runtime.toml_table import TomlTable

Columns = Mapping[str, Sequence[str]]


class Source(ABC):
    """A kind of source, as a frozen dataclass of its keys. Nothing is ever written to a source."""

    @classmethod
    @abstractmethod
    def of(cls, table: TomlTable, base: Path) -> Self:
        """The source that [data] describes; it reads its own keys. base: paths are relative to it.

        Raises InvalidInput naming file and key.
        """

    @property
    @abstractmethod
    def shown(self) -> str:
        """How messages, pages and logs name it: never with a password."""

    @abstractmethod
    def records(self, settings: DataSettings, terms: Terms) -> Records:
        """The records. Raises DataUnavailable, DataCorrupt naming place, column, row, value and what is allowed."""

    def columns(self, names: Sequence[str] | None, form: Form) -> Columns:
        """The named columns as texts, or all of them: one text a row. Raises as records; DataCorrupt for no table."""
        raise DataCorrupt(f"{self.shown} is no table; allowed: a study of arrays or images")

    def header(self, form: Form) -> list[str]:
        """The names of all columns. Raises as columns."""
        return list(self.columns(None, form))

    @property
    def is_table(self) -> bool:
        """Whether it has columns."""
        return False

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that it reads, which nothing may overwrite."""
        return ()


@dataclass(frozen=True)
class FileSource(Source):
    """A source that is one file or one folder, `path`, and needs no other key."""

    path: Path

    @classmethod
    def of(cls, table: TomlTable, base: Path) -> Self:
        return cls(base / table.text("path"))

    @property
    def shown(self) -> str:
        return str(self.path)

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.path,)


class TableSource(Source):
    """A source of columns of texts, which the study's terms and this hospital's mapping turn into records."""

    @property
    def is_table(self) -> bool:
        return True

    @abstractmethod
    def columns(self, names: Sequence[str] | None, form: Form) -> Columns: ...

    def records(self, settings: DataSettings, terms: Terms) -> Records:
        from party.data.tables import table_records, wanted

        names = wanted(settings, terms, labelled=True)
        return table_records(self.columns(names, settings.mapping.form), settings, terms)
