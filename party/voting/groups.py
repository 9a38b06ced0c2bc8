"""Which of a hospital's records belong to which of its seats: all to its one seat, or each to its privacy group."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from party.data.records import Records
from party.lifetime import seats_of
from protocols.errors import InvalidInput
from protocols.study.deployed import DeployedStudy


def rows_of_seats(
    records: Records, study: DeployedStudy, party: str
) -> list[tuple[str, Int64[ndarray, " rows"]]]:
    """Each seat of a party with the positions of its records.

    Raises InvalidInput for unknown groups, groups without seats (or the reverse), and a unit in two groups.
    """
    seats = seats_of(study, party)
    grouped = seats != (party,)
    if grouped != (records.groups is not None):
        raise InvalidInput(
            f"the study has {'privacy groups' if grouped else 'one seat'} for {party!r} and data.group is "
            f"{'not set' if grouped else 'set'}; allowed: data.group if and only if there are privacy groups"
        )
    known = [seat.partition("/")[2] for seat in seats]
    for row, name in enumerate(records.groups or ()):
        if name not in known:
            raise InvalidInput(
                f"data.group, row {row + 1}: no privacy group of the study; allowed: {', '.join(known)}"
            )
    if records.groups is None:
        return [(party, np.arange(len(records.labels)))]
    names = np.array(records.groups)
    found = [(seat, np.flatnonzero(names == group)) for seat, group in zip(seats, known, strict=True)]
    holders = [set(records.units[rows].tolist()) for _, rows in found]
    if sum(map(len, holders)) != len(set().union(*holders)):
        raise InvalidInput("a patient is in two privacy groups; allowed: one, as each has its own budget")
    return found
