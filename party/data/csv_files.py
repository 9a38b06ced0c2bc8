"""CSV files, plain or compressed with gzip: delimiter and encoding are those of the hospital's mapping."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from party.data.mapping import Form
from party.data.source import Columns, FileSource, TableSource
from runtime.tables import first_rows, read_csv


@dataclass(frozen=True)
class CsvFile(FileSource, TableSource):
    """path: a .csv file, or .csv.gz, with a header."""

    def header(self, form: Form) -> list[str]:
        rows = first_rows(self.path, delimiter=form.delimiter or ",", encoding=form.encoding or "utf-8", most=1)
        return [name.strip() for name in rows[0]] if rows else []

    def columns(self, names: Sequence[str] | None, form: Form) -> Columns:
        """The columns, in UTF-8 and between commas unless the form says otherwise."""
        return read_csv(self.path, names, delimiter=form.delimiter or ",", encoding=form.encoding or "utf-8")
