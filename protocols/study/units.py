"""Whose data one epsilon protects, a unit: a record, a patient, or all of a party's."""

from __future__ import annotations

from typing import Literal

from protocols.errors import InvalidInput

Unit = Literal["record", "patient", "party"]
UNITS: tuple[Unit, ...] = ("record", "patient", "party")
# The units of which a node counts each one's votes: a sum of a whole party's data is that party.
COUNTED: tuple[Unit, ...] = ("record", "patient")


def votes_per_unit(unit: str, *, teachers: int) -> int:
    """1 for a record (it lies in one shard); `teachers` for a party: the cost is quadratic in that, not linear."""
    if unit not in UNITS:
        raise InvalidInput(f"unit is {unit!r}; allowed: {', '.join(UNITS)}")
    return teachers if unit == "party" else 1
