"""Accountants that analyse votes and charge nothing, by name: their figures are private. Nothing that charges imports
them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protocols.errors import InvalidInput
from protocols.plugins import Parts

if TYPE_CHECKING:
    from protocols.research.data_dependent import DataDependentAccountant


def _check(name: str, loaded: object) -> DataDependentAccountant:
    from protocols.research.data_dependent import DataDependentAccountant

    if not (isinstance(loaded, type) and issubclass(loaded, DataDependentAccountant) and loaded.name == name):
        raise InvalidInput(f"it is {loaded!r}; allowed: a DataDependentAccountant of that name")
    return loaded()


# To add one: one file and one line, or a plugin (docs/how-to/add-a-part.md).
DATA_DEPENDENT: Final[Parts[DataDependentAccountant]] = Parts(
    "accountant",
    {"papernot2018": "protocols.research.data_dependent:Papernot2018"},
    group="conclave.analyses",
    check=_check,
)
