"""What a hospital proves to two servers about its sum: that the units which it declared could have sent it.

Two kinds, both of bits that are shared modulo p, of equations between them, and of sums of squares
(crypto/shared_squares.py proves the bits and the squares; the servers open what must be zero):

- `Counted`: each cell is a whole number of records, of a class as many in each partition as there are records of that
  class, and these are as many as were declared at most: exactly the sums of such records.
- `Bounded`: the norm of the sum is that of so many units at most, or up to a fifth more (`proved`). Nothing else is:
  where entries should not be below 0, they may be by half a unit of the leading digits.

Every sum of whole numbers that is compared stays below p in size, whatever the bits are, so what is zero modulo p is
zero.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np
from jaxtyping import Int64, UInt32
from numpy import ndarray

from protocols.crypto.field import P, from_integers, matrix_product, minus, plus, reduced, times
from protocols.crypto.shared_squares import BLOCK, Layout, Numbers, SharedSquares
from protocols.errors import InvalidInput
from protocols.sums.contributions import Claim

# Squares of the digits of one block stay below 2^30.
_MOST_DIGIT_BITS = 12
# What may pass, over what is claimed: with more numbers digits are shorter, and the roundings of all add up.
_MOST_OVER = 1.2


@dataclass(frozen=True)
class Proven(ABC):
    """What is proved of a sum of rows x columns whole numbers, in lattice units."""

    rows: int
    columns: int

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """What is shared."""

    @abstractmethod
    def bits(self, sums: Int64[ndarray, "*some rows columns"]) -> Numbers:
        """The bits that are shared of these sums, in range."""

    def squared(self, bits: Numbers, *, leads: bool) -> Numbers:
        """A server's share of the numbers whose squares are shared. leads: whether this server adds constants."""
        return bits[..., :0]

    @abstractmethod
    def zeros(self, shared: SharedSquares, *, leads: bool) -> Numbers:
        """A server's share of all that must be zero."""

    @abstractmethod
    def sums(self, bits: Numbers, *, leads: bool) -> UInt32[ndarray, "*some rows columns"]:
        """A server's share of the sum."""

    @property
    @abstractmethod
    def equations(self) -> int:
        """How many numbers must be zero."""

    @property
    def cells(self) -> int:
        return self.rows * self.columns


@dataclass(frozen=True)
class CountedCells(Proven):
    """Cells of records: each of `population` records at most, or fewer, says one step in `each` cells of its class in
    every partition. partitions: how many rows each has. Raises InvalidInput where counts may wrap around."""

    partitions: tuple[int, ...]
    each: int
    population: int
    step: int

    def __post_init__(self) -> None:
        most = max(*self.partitions, self.columns) + self.each + 1
        if most << self.width > P:
            raise InvalidInput(
                f"{most} counts of up to {self.population} records; allowed: together below 2^31, with fewer queries"
            )

    @property
    def width(self) -> int:
        """The bits of a number of records."""
        return self.population.bit_length()

    @property
    def _rooms(self) -> int:
        """How many cells have a proof of their own that they are no more than the records of their class: where a
        partition holds one step of each, they are because they add up."""
        return self.cells if self.each > 1 else 0

    @property
    def layout(self) -> Layout:
        return Layout((self.cells + self._rooms + self.columns + 1) * self.width, 0)

    @property
    def equations(self) -> int:
        return len(self.partitions) * self.columns + self._rooms + 1

    def bits(self, sums: Int64[ndarray, "*some rows columns"]) -> Numbers:
        counts = sums // self.step
        records = counts[..., : self.partitions[0], :].sum(axis=-2) // self.each
        some = counts.shape[:-2]
        parts = [counts.reshape(*some, -1), records, self.population - records.sum(axis=-1, keepdims=True)]
        if self._rooms:
            parts.insert(1, (records[..., None, :] - counts).reshape(*some, -1))
        return _bits(np.concatenate(parts, axis=-1), self.width)

    def zeros(self, shared: SharedSquares, *, leads: bool) -> Numbers:
        numbers = _composed(shared.bits.reshape(*shared.bits.shape[:-1], -1, self.width))
        counts, rooms, records, left = np.split(numbers, np.cumsum([self.cells, self._rooms, self.columns]), axis=-1)
        some = counts.shape[:-1]
        counts = counts.reshape(*some, self.rows, self.columns)
        due = times(records, from_integers(np.array([self.each])))
        starts = np.cumsum((0, *self.partitions[:-1]))
        totals = reduced(np.add.reduceat(counts.astype(np.uint64), starts, axis=-2))
        found = [minus(totals, due[..., None, :]).reshape(*some, -1)]
        if self._rooms:
            held = plus(counts, rooms.reshape(counts.shape))
            found.append(minus(held, records[..., None, :]).reshape(*some, -1))
        everybody = reduced(records.sum(axis=-1, keepdims=True, dtype=np.uint64) + left)
        return np.concatenate([*found, _less(everybody, self.population, leads=leads)], axis=-1)

    def sums(self, bits: Numbers, *, leads: bool) -> UInt32[ndarray, "*some rows columns"]:
        some = bits.shape[:-1]
        counts = _composed(bits[..., : self.cells * self.width].reshape(*some, -1, self.width))
        return times(counts, from_integers(np.array([self.step]))).reshape(*some, self.rows, self.columns)


@dataclass(frozen=True)
class Bounded(Proven):
    """A sum of norm `most`, or a little more. signed: whether entries may be below 0.

    Each number plus an offset is shared by its bits. Its leading digits e, rounded to units of 2^low, have the squares
    whose sum is bounded: in each block by the bits of a number of its own, and these together by the bits of what is
    left of the bound. Raises InvalidInput for sums of too many numbers.
    """

    most: int
    signed: bool

    def __post_init__(self) -> None:
        if self.proved > _MOST_OVER * self.most:
            raise InvalidInput(
                f"a sum of {self.cells} numbers, whose norm can be held to {self.proved / self.most:.2f} times the "
                f"claimed one; allowed: up to {_MOST_OVER}, with fewer numbers"
            )

    @cached_property
    def _digit_bits(self) -> int:
        """The bits of a digit's size: as many as keep the sum of all squares below p."""
        for bits in range(min(_MOST_DIGIT_BITS, self.most.bit_length()), 0, -1):
            bound = self._squares(bits)
            if (-(-self.cells // BLOCK) + 1) << bound.bit_length() <= P:
                return bits
        raise InvalidInput(f"a sum of {self.cells} numbers; allowed: fewer, so that squares of digits stay below 2^31")

    def _low(self, digit_bits: int) -> int:
        """How many bits of a number are below its leading digits."""
        low = 0
        while self.most + ((1 << low) >> 1) >= 1 << low + digit_bits:
            low += 1
        return low

    def _squares(self, digit_bits: int) -> int:
        """What no sum of squared digits exceeds, if the norm is `most`: each is rounded by one half."""
        low = self._low(digit_bits)
        return self.most**2 if low == 0 else int((self.most / 2**low + sqrt(self.cells) / 2) ** 2) + 1

    @cached_property
    def low(self) -> int:
        return self._low(self._digit_bits)

    @cached_property
    def squares(self) -> int:
        """The bound on the sum of squared digits."""
        return self._squares(self._digit_bits)

    @property
    def proved(self) -> float:
        """What the norm is at most, whatever was shared."""
        return sqrt(self.squares) if self.low == 0 else (sqrt(self.squares) + sqrt(self.cells) / 2) * 2**self.low

    @property
    def width(self) -> int:
        """The bits of a number."""
        return self.low + self._digit_bits + self.signed

    @property
    def _digit_offset(self) -> int:
        return self.signed << self._digit_bits

    @property
    def _offset(self) -> int:
        return (self._digit_offset << self.low) + ((1 << self.low) >> 1)

    @property
    def layout(self) -> Layout:
        return Layout(self.cells * self.width + self._bounds * self.squares.bit_length(), self.cells)

    @property
    def equations(self) -> int:
        return self._bounds

    @property
    def _bounds(self) -> int:
        """How many sums of squares have bits of their own: each block's, and what is left."""
        return -(-self.cells // BLOCK) + 1

    def bits(self, sums: Int64[ndarray, "*some rows columns"]) -> Numbers:
        moved = sums.reshape(*sums.shape[:-2], -1) + self._offset
        squares = ((moved >> self.low) - self._digit_offset) ** 2
        each = np.add.reduceat(squares, np.arange(0, self.cells, BLOCK), axis=-1)
        bounds = np.concatenate([each, self.squares - each.sum(axis=-1, keepdims=True)], axis=-1)
        return np.concatenate([_bits(moved, self.width), _bits(bounds, self.squares.bit_length())], axis=-1)

    def squared(self, bits: Numbers, *, leads: bool) -> Numbers:
        return _less(_composed(self._numbers(bits)[..., self.low :]), self._digit_offset, leads=leads)

    def zeros(self, shared: SharedSquares, *, leads: bool) -> Numbers:
        bounds = shared.bits[..., self.cells * self.width :]
        stated = _composed(bounds.reshape(*bounds.shape[:-1], self._bounds, -1))
        each = minus(reduced(shared.within.sum(axis=-1, dtype=np.uint64)), stated[..., :-1])
        total = reduced(stated.sum(axis=-1, keepdims=True, dtype=np.uint64))
        return np.concatenate([each, _less(total, self.squares, leads=leads)], axis=-1)

    def sums(self, bits: Numbers, *, leads: bool) -> UInt32[ndarray, "*some rows columns"]:
        numbers = _less(_composed(self._numbers(bits)), self._offset, leads=leads)
        return numbers.reshape(*bits.shape[:-1], self.rows, self.columns)

    def _numbers(self, bits: Numbers) -> Numbers:
        return bits[..., : self.cells * self.width].reshape(*bits.shape[:-1], self.cells, self.width)


def proof_of(claim: Claim, *, rows: int, columns: int) -> Proven:
    """How two servers are shown that a sum of this shape is one of the claim's. Raises InvalidInput."""
    if claim.whole:
        return CountedCells(rows, columns, claim.partitions, claim.each, claim.population, claim.step)
    return Bounded(rows, columns, claim.population * claim.weight_units, claim.signed)


def _bits(numbers: Int64[ndarray, "*some numbers"], width: int) -> Numbers:
    """The lowest bits of each number, one after the other."""
    found = (numbers[..., None] >> np.arange(width)) & 1
    return found.reshape(*numbers.shape[:-1], -1).astype(np.uint32)


def _composed(bits: UInt32[ndarray, "*some numbers width"]) -> Numbers:
    """Shares of numbers, from those of their bits."""
    powers = from_integers(1 << np.arange(bits.shape[-1], dtype=np.int64))
    return matrix_product(bits.reshape(1, -1, bits.shape[-1]), powers[None, :, None]).reshape(bits.shape[:-1])


def _less(shares: Numbers, constant: int, *, leads: bool) -> Numbers:
    """Shares of numbers less a constant, which one server takes off."""
    return minus(shares, from_integers(np.array([constant]))) if leads else shares
