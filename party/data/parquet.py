"""Parquet tables, read as the strings a CSV file would hold: the one file that imports pyarrow (extra `parquet`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow
import pyarrow.parquet

from party.data.records import Records
from party.data.settings import DataSettings
from party.data.tables import table_records, wanted
from protocols.array_files import FILE_BYTES
from protocols.errors import DataCorrupt
from protocols.reading import open_file
from protocols.study.terms import Terms
from runtime.tables import VALUES, wanted_columns


def load_parquet(settings: DataSettings, terms: Terms) -> Records:
    """The records of a Parquet file; nulls and NaN count as missing. Raises DataUnavailable, DataCorrupt."""
    missing = settings.missing[0] if settings.missing else ""
    names = wanted(settings, terms, labelled=True)
    return table_records(read_parquet(settings.path, names, missing=missing), settings, terms)


def read_parquet(path: Path, names: Sequence[str], *, missing: str) -> dict[str, list[str]]:
    """The named columns of a Parquet file as strings; nulls and NaN become the string `missing`.

    Raises DataUnavailable if it is absent, DataCorrupt if it is not such a table, and as wanted_columns does.
    """
    try:
        with open_file(path, most=FILE_BYTES) as content, pyarrow.parquet.ParquetFile(content) as file:
            wanted = wanted_columns(path, names, file.schema_arrow.names)
            if file.metadata.num_rows * len(wanted) > VALUES:
                raise DataCorrupt(f"{path} has {file.metadata.num_rows} rows; allowed: at most {VALUES} values")
            table = file.read(columns=wanted)
        columns = {}
        for name in wanted:
            column = table.column(name)
            texts = column.cast(pyarrow.string()).to_pylist()
            if pyarrow.types.is_floating(column.type):
                texts = [missing if text == "nan" else text for text in texts]
            columns[name] = [missing if text is None else text for text in texts]
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise DataCorrupt(f"{path} cannot be read: {str(error)[:200]}; allowed: a Parquet table") from error
    return columns
