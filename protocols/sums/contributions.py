"""Contributions: what each protected unit says in a study of record votes, once, in whole lattice units.

A unit (a record, a patient, a party) has a vector over cells (queries x classes), entries >= 0, that depends on its own
data and on public values only, and whose L2 norm is at most its party's weight W. Replacing one unit then moves the sum
by at most sqrt(2) W in the whole study: v, v' >= 0 and of norm <= W give |v - v'|^2 <= |v|^2 + |v'|^2 <= 2 W^2.
Everything is an integer, so no rounding breaks the bound.
"""

from __future__ import annotations

from math import isqrt

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from protocols.errors import InvalidInput

LARGEST_WEIGHT = 2**33
# A sum of one unit is that unit: whoever sees sums before the noise would see it.
FEWEST_UNITS = 2


def contribution_sum(
    cells: Int64[ndarray, "records votes"],
    units: Int64[ndarray, " records"] | None,
    *,
    weight_units: int,
    cell_count: int,
) -> Int64[ndarray, " cells"]:
    """The sum of a party's contributions, in lattice units.

    cells: the cells that each record votes in, each in [0, cell_count), no cell twice; units: the number of each
    record's protected unit; None: each record is one of its own. weight_units: W, 1 to LARGEST_WEIGHT.

    A record votes evenly. A unit with c_q of its records in cell q, S = sum c_q^2, has entries
    floor(c_q W / sqrt(max(S, votes))): the sum of its records' votes, scaled down to W where it is longer.
    Raises InvalidInput on fewer than FEWEST_UNITS records, on a cell out of range or twice, and on a weight that is out
    of range, or of which nothing is left.
    """
    records, votes = cells.shape
    if records < FEWEST_UNITS:
        raise InvalidInput(f"the party has {records} record{'s' * (records != 1)}; allowed: at least {FEWEST_UNITS}")
    if not 1 <= weight_units <= LARGEST_WEIGHT:
        raise InvalidInput(f"the weight is {weight_units} lattice units; allowed: 1 to {LARGEST_WEIGHT}")
    if not 1 <= votes <= weight_units**2:
        raise InvalidInput(
            f"a record votes in {votes} cells with a weight of {weight_units} lattice units; allowed: 1 to "
            f"{weight_units**2} cells, as nothing is left of a vote below one unit"
        )
    if records and (cells.min() < 0 or cells.max() >= cell_count):
        raise InvalidInput(f"votes are in cells {cells.min()} to {cells.max()}; allowed: 0 to {cell_count - 1}")
    ordered = np.sort(cells, axis=1)
    if (ordered[:, 1:] == ordered[:, :-1]).any():
        raise InvalidInput("a record votes in one cell twice; allowed: once in each")
    if units is None:
        return np.bincount(cells.ravel(), minlength=cell_count) * isqrt(weight_units**2 // votes)
    _, member = np.unique(units, return_inverse=True)
    touched, counts = np.unique(member[:, None] * cell_count + cells, return_counts=True)
    unit, cell = np.divmod(touched, cell_count)
    squares = np.bincount(unit, weights=counts.astype(np.float64) ** 2)  # whole numbers below 2**53: exact
    # Pairs (c_q, max(S, votes)) as complex numbers, which sort fast; both parts are exact.
    pairs, which = np.unique(counts + 1j * np.maximum(squares[unit], votes), return_inverse=True)
    entries = [isqrt(int(pair.real) ** 2 * weight_units**2 // int(pair.imag)) for pair in pairs.tolist()]
    total = np.zeros(cell_count, dtype=np.int64)
    np.add.at(total, cell, np.array(entries, dtype=np.int64)[which])
    return total


def check_contributions(contributions: Int64[ndarray, "units cells"], *, weight_units: int) -> None:
    """Raises InvalidInput unless every unit's entries are >= 0 and its norm is at most the weight, exactly."""
    if contributions.size == 0:
        return
    low, high = int(contributions.min()), int(contributions.max())
    if low < 0 or high > weight_units:
        raise InvalidInput(f"entries of contributions span [{low}, {high}]; allowed: 0 to {weight_units}")
    # Python's integers: squares of 2**33 do not fit 64 bits.
    largest = max((contributions.astype(object) ** 2).sum(axis=1))
    if largest > weight_units**2:
        raise InvalidInput(f"a contribution has the squared norm {largest}; allowed: at most {weight_units**2}")


def check_sums(sums: Int64[ndarray, "queries classes"], *, most: int, most_in_all: int) -> None:
    """Raises InvalidInput unless a party's sums are from 0 to `most` in each cell, and together at most `most_in_all`.

    See RecordVotes.bounds. The values are not in the message: they are about records.
    """
    # Float64 adds without wrapping around, and errs by far less than the bound allows for.
    if sums.size == 0 or sums.min() < 0 or sums.max() > most or sums.sum(dtype=np.float64) > most_in_all * (1 + 1e-9):
        raise InvalidInput(
            f"sums of contributions of shape {sums.shape} are out of range; allowed: 0 to {most} in each cell, and "
            f"{most_in_all} in all"
        )
