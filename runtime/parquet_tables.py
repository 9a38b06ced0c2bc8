"""Parquet tables, read as the strings a CSV file would hold: the one file that imports pyarrow (extra `parquet`)."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet

from protocols.array_files import FILE_BYTES, check_unpacked
from protocols.errors import DataCorrupt
from protocols.reading import VALUES, open_file, wanted_columns

_TEXTS = frozenset({pyarrow.string(), pyarrow.large_string(), pyarrow.binary(), pyarrow.large_binary()})


def parquet_header(path: Path) -> list[str]:
    """The names of the columns of a Parquet file. Raises DataUnavailable, DataCorrupt."""
    try:
        with open_file(path, most=FILE_BYTES) as content:
            return list(pyarrow.parquet.read_schema(content).names)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise DataCorrupt(f"{path} cannot be read: {str(error)[:200]}; allowed: a Parquet table") from error


def read_parquet(path: Path, names: Sequence[str] | None, *, missing: str) -> dict[str, list[str]]:
    """The named columns of a Parquet file, or all, as strings; nulls and NaN become the string `missing`.

    Raises DataUnavailable if it is absent, DataCorrupt if it is not such a table, and as wanted_columns does.
    """
    try:
        with open_file(path, most=FILE_BYTES) as content:
            schema = pyarrow.parquet.read_schema(content)
            wanted = wanted_columns(path, schema.names if names is None else names, schema.names)
            # As dictionaries: a few hundred bytes may say that a million rows hold the same long text.
            texts = [name for name in wanted if schema.field(name).type in _TEXTS]
            size = content.seek(0, io.SEEK_END)
            content.seek(0)
            file = pyarrow.parquet.ParquetFile(content, read_dictionary=texts)
            if file.metadata.num_rows * len(wanted) > VALUES:
                raise DataCorrupt(f"{path} has {file.metadata.num_rows} rows; allowed: at most {VALUES} values")
            check_unpacked(size, _unpacked(file.metadata, wanted), where=str(path))
            table = file.read(columns=wanted)
        return {name: _texts(table.column(name), missing) for name in wanted}
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise DataCorrupt(f"{path} cannot be read: {str(error)[:200]}; allowed: a Parquet table") from error


def _unpacked(metadata: pyarrow.parquet.FileMetaData, wanted: Sequence[str]) -> int:
    """The bytes that the wanted columns have once they are decompressed, as the file says."""
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    columns = (group.column(number) for group in groups for number in range(group.num_columns))
    return sum(each.total_uncompressed_size for each in columns if each.path_in_schema.partition(".")[0] in wanted)


def _texts(column: pyarrow.ChunkedArray, missing: str) -> list[str]:
    """The texts of a column; equal ones are one string in memory."""
    texts: list[str] = []
    for chunk in column.chunks:
        coded = chunk if pyarrow.types.is_dictionary(chunk.type) else chunk.cast(pyarrow.string()).dictionary_encode()
        known = [missing if text is None else text for text in coded.dictionary.cast(pyarrow.string()).to_pylist()]
        if pyarrow.types.is_floating(chunk.type):
            known = [missing if text == "nan" else text for text in known]
        known.append(missing)  # of nulls
        places = coded.indices.fill_null(len(known) - 1).to_numpy()
        texts += np.array(known, dtype=object)[places].tolist()
    return texts
