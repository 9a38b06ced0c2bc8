"""Contributions: what each protected unit says in a study, once, in whole lattice units.

A record says psi(y) x phi(x) (blocks.py), rounded towards zero to a norm of at most its party's weight W. A unit (a
record, a patient, a party) says the sum of its records' matrices, scaled down to W where it is longer. So a unit's
matrix depends on its own data and on public values only, and its norm is at most W, exactly, as everything is an
integer. Replacing one unit moves the sum of all by at most Delta W in the whole study: Delta = 2, as
|v - v'| <= |v| + |v'|; where no entry that a unit can send is below 0, v.v' >= 0 and Delta = sqrt(2)
(docs/explanation/mathematics.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isqrt, sqrt

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from protocols.errors import InvalidInput
from protocols.sums.blocks import NORM_STEPS, TARGET_STEPS, Blocks

LARGEST_WEIGHT = 2**33
# A sum of one unit is that unit: whoever sees sums before the noise would see it.
FEWEST_UNITS = 2
# Entries that are held at once.
_CHUNK = 2**22
# What a record says that says nothing.
_NOTHING = -1
# A root in float64 is further than this from a whole number, or it is found in whole numbers.
_NEAR = 2.0**-12
# Half of the bits of an entry whose square is taken in two parts.
_HALF = 22

Said = Int64[ndarray, "records numbers"]
Sum = Int64[ndarray, "rows columns"]


def said(
    blocks: Blocks,
    records: Float32[ndarray, "records ..."],
    labels: Int64[ndarray, "records *findings"],
    *,
    classes: int,
) -> Said:
    """What each record says, before it is weighed: its class, or its findings, and phi; where blocks are cells alone,
    its cells, row times classes plus class, for each of them and each finding that is known.

    labels: classes; or of several findings -1, 0 or 1, with two columns of the sum for each where blocks are cells
    alone; classes: the columns of the sum. A record that is not finite says nothing, nor does one of no class, and
    nothing is said of a finding that is not known. Raises InvalidInput for records of another shape.
    """
    finite = np.isfinite(records.reshape(len(records), -1)).all(axis=1)
    rows = labels.reshape(len(records), -1)
    states = classes // rows.shape[1] if blocks.plain or labels.ndim == 1 else 2
    known = finite[:, None] & (rows >= 0) & (rows < states)
    if blocks.plain:
        shown = np.where(finite.reshape(-1, *[1] * (records.ndim - 1)), records, np.float32(0))
        columns = np.arange(rows.shape[1]) * states + rows
        cells = blocks.cells(blocks.features(shown))[:, :, None] * classes + columns[:, None]
        return np.where(known[:, None], cells, _NOTHING).reshape(len(records), -1)
    return np.concatenate([np.where(known, rows, _NOTHING), blocks.of_records(records)], axis=1)


def contribution_sum(
    blocks: Blocks,
    said: Said,
    units: Int64[ndarray, " records"] | None,
    *,
    weight_units: int,
    classes: int,
    known_at: Int64[ndarray, " records"] | None = None,
    fewest: int = FEWEST_UNITS,
    mean: bool = False,
) -> Sum:
    """The sum of a party's contributions, in lattice units.

    said: as the function of this name gave it; units: the number of each record's protected unit; None: each record is
    one of its own. weight_units: W, 1 to LARGEST_WEIGHT. known_at: at how many hospitals each record's unit is known; a
    unit that is known at j, the most of its records, has the weight floor(W / j). None: at this one alone. fewest: 0
    where others judge, so that nothing depends on how many vote. mean: where blocks are cells, a unit says the mean of
    what its records say, rounded towards zero, in the place of their sum: no longer than the longest of them, so W at
    most, and in each block as much as one record. Where a unit is longer than W, S its squared norm, its entries x
    become sign(x) isqrt(x^2 W^2 // S). Raises InvalidInput on fewer records than `fewest`, and on a weight that is out
    of range, or of which nothing is left.
    """
    if len(said) < fewest:
        raise InvalidInput(f"the party has {len(said)} record{'s' * (len(said) != 1)}; allowed: at least {fewest}")
    if not 1 <= weight_units <= LARGEST_WEIGHT:
        raise InvalidInput(f"the weight is {weight_units} lattice units; allowed: 1 to {LARGEST_WEIGHT}")

    def of_weight(rows: ndarray, held: Int64[ndarray, " records"] | None, weight: int) -> Sum:
        return _sum(blocks, said[rows], held, weight=weight, classes=classes, mean=mean)

    return divided_sum(of_weight, len(said), units, weight_units=weight_units, known_at=known_at)


def divided_sum(
    of_weight: Callable[[ndarray, Int64[ndarray, " records"] | None, int], Sum],
    records: int,
    units: Int64[ndarray, " records"] | None,
    *,
    weight_units: int,
    known_at: Int64[ndarray, " records"] | None,
) -> Sum:
    """The sum of what units say that are divided among hospitals. of_weight: what the records at these places say,
    whose units are these, with this weight; the rest as in contribution_sum."""
    if known_at is None:
        return of_weight(np.arange(records), units, weight_units)
    if units is not None and len(units):
        _, member = np.unique(units, return_inverse=True)
        known_at = most_hospitals(known_at, member)[member]
    parts = [(np.flatnonzero(known_at == hospitals), hospitals) for hospitals in np.unique(known_at).tolist()]
    sums = [
        of_weight(rows, None if units is None else units[rows], weight_units // hospitals) for rows, hospitals in parts
    ]
    return sum(sums[1:], start=sums[0]) if sums else of_weight(np.arange(0), None, weight_units)


def most_hospitals(
    known_at: Int64[ndarray, " records"], member: Int64[ndarray, " records"]
) -> Int64[ndarray, " units"]:
    """At how many hospitals each unit is known: the most that any of its records says. member: each record's unit, from
    0 on without a gap."""
    most = np.zeros(member.max(initial=-1) + 1, np.int64)
    np.maximum.at(most, member, known_at)
    return most


def _sum(
    blocks: Blocks, said: Said, units: Int64[ndarray, " records"] | None, *, weight: int, classes: int, mean: bool
) -> Sum:
    """The sum of units that have one weight."""
    if blocks.plain:
        found = _cell_sum(said, units, weight_units=weight, cell_count=blocks.rows * classes, mean=mean)
        return found.reshape(blocks.rows, classes)
    told = said.shape[1] - blocks.rows
    return graded_sum(said[:, told:], blocks.psi(said[:, :told], classes), units, weight=weight)


def _cell_sum(
    cells: Int64[ndarray, "records votes"],
    units: Int64[ndarray, " records"] | None,
    *,
    weight_units: int,
    cell_count: int,
    mean: bool,
) -> Int64[ndarray, " cells"]:
    """The sum where a record says 1/sqrt(votes) in each of its cells, or nothing in the place of some.

    A unit with c_q of its records in cell q, S = sum c_q^2, has entries floor(c_q W / sqrt(max(S, votes))); or, of r
    records, floor(c_q floor(W / sqrt(votes)) / r), if it says their mean.
    """
    votes = cells.shape[1]
    if votes > weight_units**2:
        raise InvalidInput(
            f"a record votes in {votes} cells with a weight of {weight_units} lattice units; allowed: 1 to "
            f"{weight_units**2} cells, as nothing is left of a vote below one unit"
        )
    spoken = (cells != _NOTHING).any(axis=1)
    cells, units = cells[spoken], units if units is None else units[spoken]
    if len(cells) and (cells.min() < _NOTHING or cells.max() >= cell_count):
        raise InvalidInput(f"votes are in cells {cells.min()} to {cells.max()}; allowed: 0 to {cell_count - 1}")
    ordered, filled = np.sort(cells, axis=1), cells != _NOTHING
    if ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != _NOTHING)).any():
        raise InvalidInput("a record votes in one cell twice; allowed: once in each")
    if units is None:
        return np.bincount(cells[filled], minlength=cell_count) * isqrt(weight_units**2 // votes)
    _, member = np.unique(units, return_inverse=True)
    touched, counts = np.unique((member[:, None] * cell_count + cells)[filled], return_counts=True)
    unit, cell = np.divmod(touched, cell_count)
    total = np.zeros(cell_count, dtype=np.int64)
    if mean:
        np.add.at(total, cell, counts * isqrt(weight_units**2 // votes) // np.bincount(member)[unit])
        return total
    squares = np.bincount(unit, weights=counts.astype(np.float64) ** 2)  # whole numbers below 2**53: exact
    # Pairs (c_q, max(S, votes)) as complex numbers, which sort fast; both parts are exact.
    pairs, which = np.unique(counts + 1j * np.maximum(squares[unit], votes), return_inverse=True)
    entries = [isqrt(int(pair.real) ** 2 * weight_units**2 // int(pair.imag)) for pair in pairs.tolist()]
    np.add.at(total, cell, np.array(entries, dtype=np.int64)[which])
    return total


def graded_sum(
    phi: Int64[ndarray, "records rows"],
    psi: Int64[ndarray, "records columns"],
    units: Int64[ndarray, " records"] | None,
    *,
    weight: int,
) -> Sum:
    """The sum where a record says psi(y) x phi(x), in NORM_STEPS and TARGET_STEPS; a psi of zeros says nothing."""
    spoken = psi.any(axis=1)
    phi, psi = phi[spoken], psi[spoken]
    total = np.zeros((phi.shape[1], psi.shape[1]), dtype=np.int64)
    if units is None:
        member = np.arange(len(phi))
    else:
        _, member = np.unique(units[spoken], return_inverse=True)
        order = np.argsort(member, kind="stable")
        phi, psi, member = phi[order], psi[order], member[order]
    most = max(1, _CHUNK // total.size)
    for chunk, firsts in _chunks(member, most=most):
        held, code = phi[chunk], psi[chunk]
        if len(held) <= most:
            matrices = _matrices(held, code, weight=weight)
            if len(firsts) < len(held):
                matrices = _shortened(np.add.reduceat(matrices, firsts, axis=0), weight=weight)
        else:
            # One unit of more records than are held together: its matrices are added up in parts.
            unit = np.zeros_like(total)
            for start in range(0, len(held), most):
                part = slice(start, start + most)
                unit += _matrices(held[part], code[part], weight=weight).sum(axis=0)
            matrices = _shortened(unit[None], weight=weight)
        total += matrices.sum(axis=0)
    return total


def _chunks(member: Int64[ndarray, " records"], *, most: int) -> Iterator[tuple[slice, Int64[ndarray, " units"]]]:
    """Slices of whole units, of about `most` records each or of one unit; and where each unit begins in its slice."""
    firsts = np.flatnonzero(np.diff(member, prepend=-1))
    ends, start = np.append(firsts[1:], len(member)), 0
    while start < len(firsts):
        stop = max(start + 1, int(np.searchsorted(ends, firsts[start] + most, side="right")))
        yield slice(int(firsts[start]), int(ends[stop - 1])), firsts[start:stop] - firsts[start]
        start = stop


def _matrices(
    phi: Int64[ndarray, "records rows"], psi: Int64[ndarray, "records columns"], *, weight: int
) -> Int64[ndarray, "records rows columns"]:
    """psi x phi times the weight, rounded towards zero: products stay below 2**62."""
    product = (np.abs(phi)[:, :, None] * (np.abs(psi) * weight)[:, None, :]) // (NORM_STEPS * TARGET_STEPS)
    return product * np.sign(phi)[:, :, None] * np.sign(psi)[:, None, :]


def _shortened(units: Int64[ndarray, "units rows columns"], *, weight: int) -> Int64[ndarray, "units rows columns"]:
    """Each unit's matrix, scaled down to the weight where it is longer."""
    flat = units.reshape(len(units), -1)
    squares = squared_norms(flat)
    longer = np.array([square > weight**2 for square in squares])
    found = flat.copy()
    for at in np.flatnonzero(longer).tolist():
        found[at] = _scaled(flat[at], squares[at], weight=weight)
    return found.reshape(units.shape)


def _scaled(entries: Int64[ndarray, " entries"], square: int, *, weight: int) -> Int64[ndarray, " entries"]:
    """sign(x) isqrt(x^2 W^2 // S). In float64, but where that is too near a whole number to tell its side."""
    size = np.abs(entries)
    value = size.astype(np.float64) * (weight / sqrt(float(square)))  # at most W: off by less than 2**-17
    root = np.floor(value).astype(np.int64)
    near = np.flatnonzero((np.abs(value - np.rint(value)) < _NEAR) & (size > 0))
    root[near] = [isqrt(x * x * weight**2 // square) for x in size[near].tolist()]
    return np.sign(entries) * root


def squared_norms(vectors: Int64[ndarray, "units entries"]) -> list[int]:
    """The sum of squares of each vector, exactly, which need not fit 64 bits."""
    sizes = np.abs(vectors)
    if sizes.max(initial=0) >= 2 ** (2 * _HALF) or vectors.shape[1] > 2**18:
        return [sum(x * x for x in row) for row in sizes.tolist()]
    high, low = np.divmod(sizes, 2**_HALF)
    parts = ((high * high).sum(axis=1), (high * low).sum(axis=1), (low * low).sum(axis=1))
    return [(a << 2 * _HALF) + (b << _HALF + 1) + c for a, b, c in zip(*(each.tolist() for each in parts), strict=True)]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a party's sum is held to: `population` units at most, each of norm `weight_units` at most, could send it.

    signed: whether entries may be below 0; most_in_all: of the sizes of all entries together, in lattice units.
    partitions: of records of one class each, that say one step in as many cells of their class in each partition, of
    so many rows, and in `votes` cells in all; (): entries are of any size.
    """

    population: int
    weight_units: int
    signed: bool
    most_in_all: int
    votes: int = 1
    partitions: tuple[int, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether every entry is a whole number of records' steps."""
        return bool(self.partitions)

    @property
    def step(self) -> int:
        """What a record says in each of its cells, in lattice units."""
        return isqrt(self.weight_units**2 // self.votes)

    @property
    def each(self) -> int:
        """How many cells of each partition a record fills."""
        return self.votes // len(self.partitions)

    def check(self, sums: Sum) -> None:
        """Raises InvalidInput for sums of which it can be told that no such units give them: entries out of range, or
        too large together; whole steps of no set of records; or a norm above that of all units in one direction.

        The values are not in the message: they are about records.
        """
        most = self.population * self.weight_units
        least = -most if self.signed else 0
        # Float64 adds without wrapping around, and errs by far less than the bound allows for.
        sizes = np.abs(sums.astype(np.float64))
        if sums.min() < least or sums.max() > most or sizes.sum() > self.most_in_all * (1 + 1e-9):
            raise InvalidInput(
                f"sums of contributions of shape {sums.shape} are out of range; allowed: {least} to {most} in each "
                f"cell, and {self.most_in_all} in all"
            )
        if not (self._of_records(sums) if self.whole else squared_norms(sums.reshape(1, -1))[0] <= most**2):
            cells = f"in {self.each} cells of each partition" if self.whole else "each as it likes"
            raise InvalidInput(
                f"sums of contributions of shape {sums.shape} are of no set of units; allowed: of at most "
                f"{self.population} units of weight {self.weight_units}, {cells}"
            )

    def _of_records(self, sums: Sum) -> bool:
        steps, rest = np.divmod(sums, self.step)
        totals = np.add.reduceat(steps, np.cumsum((0, *self.partitions[:-1])), axis=0)
        records, odd = np.divmod(totals, self.each)
        same = not (rest.any() or odd.any()) and bool((records == records[0]).all())
        return same and bool((steps <= records[0]).all()) and int(records[0].sum()) <= self.population


def least_weight(entries: int) -> int:
    """The least weight in lattice units at which rounding leaves a record of so many entries as it is, nearly."""
    return 100 * (isqrt(entries - 1) + 1)
