"""Parquet tables: the one file that imports pyarrow (extra `parquet`)."""

from __future__ import annotations

import pyarrow
import pyarrow.parquet

from party.data.features import table_records, wanted_columns
from party.data.records import VALUES, Records, check_file
from party.data.settings import DataSettings
from protocols.errors import DataCorrupt
from protocols.study.terms import Terms


def load_parquet(settings: DataSettings, terms: Terms) -> Records:
    """The records of a Parquet file; nulls and NaN are missing. Raises DataUnavailable, DataCorrupt."""
    check_file(settings)
    path = settings.path
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            names = wanted_columns(settings, terms, file.schema_arrow.names)
            if file.metadata.num_rows * len(names) > VALUES:
                raise DataCorrupt(f"{path} has {file.metadata.num_rows} rows; allowed: at most {VALUES} values")
            table = file.read(columns=names)
        # Texts are what a CSV file would hold, so that both are read by the same rules.
        missing = settings.missing[0] if settings.missing else ""
        columns = {}
        for name in names:
            column = table.column(name)
            texts = column.cast(pyarrow.string()).to_pylist()
            if pyarrow.types.is_floating(column.type):
                texts = [missing if text == "nan" else text for text in texts]
            columns[name] = [missing if text is None else text for text in texts]
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise DataCorrupt(f"{path} cannot be read: {str(error)[:200]}; allowed: a Parquet table") from error
    return table_records(columns, settings, terms)
