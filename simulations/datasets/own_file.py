"""The user's own data: CSV, Parquet and JSON lines with a schema beside them, npz archives of arrays.

The formats are described in docs/reference/datasets.md.
"""

from __future__ import annotations

from pathlib import Path

from protocols.errors import DataUnavailable, InvalidInput
from simulations.datasets.dataset import Dataset
from simulations.datasets.own_npz import load_npz
from simulations.datasets.own_schema import read_schema
from simulations.datasets.own_table import load_table
from simulations.datasets.request import DatasetRequest

_TABLES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".jsonl", ".ndjson")
SUFFIXES = (*_TABLES, ".npz")


def is_file_name(name: str) -> bool:
    """Whether a data set of this name is a file of the user's own."""
    return name.lower().endswith(SUFFIXES)


def table_name(path: Path) -> str:
    """The file's name without the suffix of a table. Raises InvalidInput for another suffix."""
    for suffix in _TABLES:
        if path.name.lower().endswith(suffix):
            return path.name[: -len(suffix)]
    raise InvalidInput(f"the file is {path}; allowed: names ending in {', '.join(_TABLES)}")


def load_file(path: Path, request: DatasetRequest) -> Dataset:
    """The data set in a file with one of SUFFIXES; a table's schema is NAME.schema.toml beside it unless the request
    names one.

    Without a split in the file, records are cut by shares (0.6, 0.25 and 0.15 unless the schema says
    otherwise), whole patients together, stratified by class and site.
    Raises DataUnavailable (the file or its schema is absent), InvalidInput (the schema or a size is wrong)
    and DataCorrupt (the file is not what it should be; the message names column and row).
    """
    if not is_file_name(path.name):
        raise InvalidInput(f"the file is {path}; allowed: names ending in {', '.join(SUFFIXES)}")
    if not path.is_file():
        raise DataUnavailable(f"there is no file {path}; name an existing {', '.join(SUFFIXES)} file")
    sizes = (request.private_size, request.public_size, request.test_size)
    if path.suffix.lower() == ".npz":
        if request.schema is not None:
            raise InvalidInput(f"a schema was given for {path}; allowed: only with tables")
        if request.time is not None:
            raise InvalidInput(f"the column of time is {request.time!r}; {path} has no columns, a table has")
        return load_npz(path, seed=request.seed, sizes=sizes)
    schema = read_schema(request.schema or path.with_name(f"{table_name(path)}.schema.toml"))
    return load_table(path, schema, seed=request.seed, sizes=sizes, groups=request.groups, time=request.time)
