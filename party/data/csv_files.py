"""CSV files, plain or compressed with gzip: delimiter and encoding are those of the hospital's mapping."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from party.data.mapping import Form
from party.data.source import Columns, FileSource, TableSource
from runtime.tables import first_rows, read_csv


@dataclass(frozen=True)
class CsvFile(FileSource, TableSource):
    """path: a file with a header, also packed with gzip (.gz): in UTF-8, and parted by commas, or by tabs where its
    name ends in .tsv, unless the form says otherwise."""

    def header(self, form: Form) -> list[str]:
        rows = first_rows(self.path, delimiter=self._delimiter(form), encoding=form.encoding or "utf-8", most=1)
        return [name.strip() for name in rows[0]] if rows else []

    def columns(self, names: Sequence[str] | None, form: Form) -> Columns:
        return read_csv(self.path, names, delimiter=self._delimiter(form), encoding=form.encoding or "utf-8")

    def _delimiter(self, form: Form) -> str:
        tabs = self.path.name.lower().endswith((".tsv", ".tsv.gz"))
        return form.delimiter or ("\t" if tabs else ",")
