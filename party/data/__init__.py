"""Private records from a hospital's own files and databases. Nothing is ever written there, and nothing is unpickled.

A kind of source is a Source: one file and one line here, or an entry point of the group `conclave.loaders` in a package
that the hospital installed.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from party.data.mapping import Form
from party.data.records import DataSettings, Records, Source, check_records
from protocols.errors import InvalidInput
from protocols.plugins import Parts
from protocols.study.terms import Terms
from runtime.distribution import installed_part


def _source(name: str, loaded: object) -> type[Source]:
    if not (isinstance(loaded, type) and issubclass(loaded, Source)):
        raise InvalidInput(f"it is {loaded!r}; allowed: a subclass of party.data.records.Source")
    return loaded


LOADERS: Final[Parts[type[Source]]] = Parts(
    "data.loader",
    {
        "csv": "party.data.files:CsvFile",
        "parquet": "party.data.parquet:ParquetFile",
        "npz": "party.data.files:NpzFile",
        "images": "party.data.images:ImageFolder",
        "jsonl": "party.data.files:JsonLines",
        "sql": "party.data.database:SqlQuery",
        "omop": "party.data.database:OmopDatabase",
        "fhir": "party.data.cohort:FhirExport",
        "dicom": "party.data.dicom:DicomFolder",
    },
    group="conclave.loaders",
    check=_source,
)
# The kinds of files that a command line may name, by what their names end in.
_FILES: Final = {
    **dict.fromkeys((".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt"), "csv"),
    **dict.fromkeys((".jsonl", ".ndjson"), "jsonl"),
    ".parquet": "parquet",
    ".npz": "npz",
}


def source_kind(loader: str) -> type[Source]:
    """The kind of source of that name. Raises InvalidInput, also where an extra is missing."""
    return installed_part(LOADERS, loader)


def of_file(settings: DataSettings, path: Path) -> DataSettings:
    """The settings for another file (or a folder of images) of this hospital's, written as its own: without patients.

    Raises InvalidInput for a name that ends in something else.
    """
    ending = next((each for each in sorted(_FILES, key=len, reverse=True) if path.name.lower().endswith(each)), None)
    if ending is None and not path.is_dir():
        raise InvalidInput(f"{path.name} is of an unknown kind; allowed: a folder of images, {', '.join(_FILES)}")
    loader = "images" if ending is None else _FILES[ending]
    kind: type = source_kind(loader)
    # A CSV file beside a Parquet table or a database is not written as these.
    mapping = settings.mapping
    if loader == "csv" != settings.loader:
        mapping = replace(mapping, form=Form())
    return DataSettings(name=settings.name, loader=loader, source=kind(path), mapping=mapping)


def load_records(settings: DataSettings, terms: Terms) -> Records:
    """The hospital's records, encoded by the study's terms.

    Raises DataUnavailable for a missing file, DataCorrupt naming file, column, row, value and allowed values.
    """
    return check_records(settings.source.records(settings, terms), settings, terms)
