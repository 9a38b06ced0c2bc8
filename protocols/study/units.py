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


def large_delta(delta: float, unit: str, units: int | None, *, parties: int) -> str | None:
    """A warning of a delta above 1/units; else None. units: None where their number is not known: each party has at
    least one."""
    least, most = ("at least ", "at most ") if units is None and unit != "party" else ("", "")
    units = parties if units is None else units
    if delta <= 1 / units:
        return None
    plural = "parties" if unit == "party" else f"{unit}s"
    return (
        f"delta is {delta:g}, and there are {least}{units} {plural}: publishing one of them, chosen at random, has a "
        f"delta of {most}{1 / units:.2g}, so give less than that"
    )
