"""A hospital's records in a file of JSON lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from party.data.mapping import Form
from party.data.source import Columns, FileSource, TableSource
from runtime.jsonl_tables import jsonl_header, read_jsonl


@dataclass(frozen=True)
class JsonLines(FileSource, TableSource):
    """path: a .jsonl or .ndjson file in UTF-8, an object a line. A null counts as missing."""

    def header(self, form: Form) -> list[str]:
        return jsonl_header(self.path)

    def columns(self, names: Sequence[str] | None, form: Form) -> Columns:
        return read_jsonl(self.path, names, missing=form.missing[0] if form.missing else "")
