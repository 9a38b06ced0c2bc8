"""Private records from a hospital's own files: CSV, Parquet, npz, image folders, or an installed loader.

A loader is a function (settings, terms) -> Records. To add one: one file and one line here, or an entry point of the
group `conclave.loaders` in a package that the hospital installed. Nothing is ever unpickled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from party.data.records import Records, check_records
from party.data.settings import DataSettings
from protocols.plugins import Parts, function_of
from protocols.study.terms import Terms
from runtime.distribution import installed_part

LOADERS: Final[Parts[Callable[[DataSettings, Terms], Records]]] = Parts(
    "data.loader",
    {
        "csv": "party.data.tables:load_csv",
        "parquet": "party.data.parquet:load_parquet",
        "npz": "party.data.npz:load_npz",
        "images": "party.data.images:load_images",
    },
    group="conclave.loaders",
    check=function_of("DataSettings and Terms that returns Records"),
)


def load_records(settings: DataSettings, terms: Terms) -> Records:
    """The hospital's records, encoded by the study's terms.

    Raises InvalidInput for an unknown loader, DataUnavailable for a missing file, DataCorrupt naming file, column, row,
    value and allowed values.
    """
    return check_records(installed_part(LOADERS, settings.loader)(settings, terms), settings, terms)
