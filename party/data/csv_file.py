"""CSV tables (RFC 4180, UTF-8, with a header)."""

from __future__ import annotations

import csv
from typing import Final

from party.data.features import table_records, wanted_columns
from party.data.records import VALUES, Records, check_file
from party.data.settings import DataSettings
from protocols.errors import DataCorrupt
from protocols.study.terms import Terms

_COLUMNS: Final = 20_000


def load_csv(settings: DataSettings, terms: Terms) -> Records:
    """The records of a CSV file. Raises DataUnavailable, DataCorrupt."""
    return table_records(csv_columns(settings, terms, labelled=True), settings, terms)


def csv_columns(settings: DataSettings, terms: Terms, *, labelled: bool) -> dict[str, list[str]]:
    """The needed columns of a CSV file, as texts; labelled: the labels too. Raises DataUnavailable, DataCorrupt."""
    check_file(settings)
    path = settings.path
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, delimiter=settings.delimiter, strict=True)
            header = [name.strip() for name in next(reader, [])]
            if len(header) > _COLUMNS:
                raise DataCorrupt(f"{path} has {len(header)} columns; allowed: at most {_COLUMNS}")
            names = wanted_columns(settings, terms, header, labelled=labelled)
            places = [header.index(name) for name in names]
            kept: list[list[str]] = [[] for _ in names]
            for row, fields in enumerate(reader, start=1):
                if not fields:  # an empty line
                    continue
                if len(fields) != len(header):
                    raise DataCorrupt(
                        f"{path}: row {row} (line {reader.line_num}) has {len(fields)} fields; allowed: {len(header)}, "
                        "as the header"
                    )
                if row * len(names) > VALUES:
                    raise DataCorrupt(f"{path} has more than {VALUES} values; allowed: at most that")
                for column, place in zip(kept, places, strict=True):
                    column.append(fields[place])
    except (csv.Error, OSError, UnicodeDecodeError) as error:
        raise DataCorrupt(f"{path} cannot be read: {str(error)[:200]}; allowed: CSV in UTF-8 with a header") from error
    return dict(zip(names, kept, strict=True))
