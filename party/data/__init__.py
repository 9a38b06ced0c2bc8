"""Private records from a hospital's own files: CSV, Parquet, npz, image folders, or an installed loader.

A loader is a function (settings, terms) -> Records. To add one: one file and one line here, or an entry point of the
group `conclave.loaders` in a package that the hospital installed. Nothing is ever unpickled.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Final

from party.data.records import Records, check_records
from party.data.settings import DataSettings
from protocols.errors import InvalidInput
from protocols.study.terms import Terms
from runtime.distribution import install

Loader = Callable[[DataSettings, Terms], Records]

LOADERS: Final[dict[str, str]] = {
    "csv": "party.data.tables:load_csv",
    "parquet": "party.data.parquet:load_parquet",
    "npz": "party.data.npz:load_npz",
    "images": "party.data.images:load_images",
}
ENTRY_POINTS: Final = "conclave.loaders"
_EXTRA_OF_PACKAGE: Final = {"pyarrow": "parquet", "PIL": "images"}


def load_records(settings: DataSettings, terms: Terms) -> Records:
    """The hospital's records, encoded by the study's terms.

    Raises InvalidInput for an unknown loader, DataUnavailable for a missing file, DataCorrupt naming file, column, row,
    value and allowed values.
    """
    return check_records(_loader(settings.loader)(settings, terms), settings, terms)


def _loader(name: str) -> Loader:
    if name in LOADERS:
        module, _, function = LOADERS[name].partition(":")
        try:
            loader: Loader = getattr(importlib.import_module(module), function)
        except ModuleNotFoundError as missing:
            extra = _EXTRA_OF_PACKAGE.get((missing.name or "").partition(".")[0])
            if extra is None:
                raise
            raise InvalidInput(
                f"loader {name!r} needs {missing.name}, which is not installed: {install(extra)}"
            ) from missing
        return loader
    installed = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if name not in installed:
        raise InvalidInput(f"data.loader is {name!r}; allowed: {', '.join([*LOADERS, *sorted(installed)])}")
    own: Loader = installed[name].load()
    return own
