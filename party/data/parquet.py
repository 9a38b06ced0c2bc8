"""A hospital's records in a Parquet table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from party.data.mapping import Form
from party.data.records import Columns, FileSource, TableSource
from runtime.parquet_tables import parquet_header, read_parquet


@dataclass(frozen=True)
class ParquetFile(FileSource, TableSource):
    """path: a .parquet file. Nulls and NaN count as missing."""

    def header(self, form: Form) -> list[str]:
        return parquet_header(self.path)

    def columns(self, names: Sequence[str] | None, form: Form) -> Columns:
        return read_parquet(self.path, names, missing=form.missing[0] if form.missing else "")
