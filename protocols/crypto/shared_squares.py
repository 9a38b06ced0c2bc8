"""A proof to two servers that numbers which they hold as shares modulo p are bits, and of the squares of others.

A fully linear proof (Boneh, Boneh, Corrigan-Gibbs, Gilboa & Ishai 2019, "Zero-knowledge proofs on secret-shared data
via fully linear PCPs"), of one gate, which squares. Each block of BLOCK numbers, and POINTS random ones, are the values
of a polynomial f at 0 to BLOCK + POINTS - 1. The prover shares the numbers, and the values of f^2: where the numbers
are bits they are the bits themselves. Once all is shared, the servers draw a coin. They open each f at POINTS points,
uniform because of the random values, and of all f^2 one random combination a point. No challenge follows from a hash
that a prover could try again. docs/explanation/security-arguments.md has soundness and privacy.

Every array may have further axes in front: one proof for each of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from math import prod
from typing import Final

import numpy as np
from jaxtyping import Int64, UInt32
from numpy import ndarray

from protocols.crypto.field import P, matrix_product, plus, reduced, times

# Values of a polynomial that say something; points that are opened of it, and values that hide these.
BLOCK: Final = 64
POINTS: Final = 3
_NODES = BLOCK + POINTS
# Values that determine the square of a polynomial.
_SQUARE = 2 * _NODES - 1

Numbers = UInt32[ndarray, "..."]
_Opened = tuple[Numbers, Numbers]


@dataclass(frozen=True)
class Layout:
    """What is shared of `bits` numbers, each 0 or 1, and of the squares of `squared` numbers that servers derive."""

    bits: int
    squared: int

    @property
    def blocks(self) -> tuple[int, int]:
        """How many blocks hold bits, and numbers whose squares are shared."""
        return -(-self.bits // BLOCK), -(-self.squared // BLOCK)

    @property
    def size(self) -> int:
        """How many numbers a share has."""
        bits, squared = self.blocks
        return self.bits + (bits + squared) * (POINTS + _SQUARE - BLOCK) + squared * BLOCK

    def parts(self, share: UInt32[ndarray, "*some size"]) -> SharedSquares:
        """A share, or all of it, by its parts."""
        bits, squared = self.blocks
        blocks = bits + squared
        sizes = [self.bits, blocks * POINTS, blocks * (_SQUARE - BLOCK)]
        numbers, hidden, beyond, within = np.split(share, np.cumsum(sizes), axis=-1)
        some = share.shape[:-1]
        return SharedSquares(
            numbers,
            hidden.reshape(*some, blocks, POINTS),
            beyond.reshape(*some, blocks, _SQUARE - BLOCK),
            within.reshape(*some, squared, BLOCK),
        )

    def proved(self, bits: Numbers, squared: Numbers, *, seed: bytes) -> UInt32[ndarray, "*some size"]:
        """What is shared of these numbers. seed: 16 random bytes that no server sees."""
        wires = np.concatenate([_blocks(bits), _blocks(squared)], axis=-2)
        from protocols.crypto.prg import derived_key, field_elements  # a study is read without cryptography

        hidden = field_elements(derived_key("hidden", seed), wires.size // BLOCK * POINTS)
        values = np.concatenate([wires, hidden.reshape(*wires.shape[:-1], POINTS)], axis=-1)
        values = np.concatenate([values, _product(values, _beyond())], axis=-1)
        squares = times(values, values)
        parts = (bits, values[..., BLOCK:_NODES], squares[..., BLOCK:], squares[..., self.blocks[0] :, :BLOCK])
        return np.concatenate([each.reshape(*bits.shape[:-1], -1) for each in parts], axis=-1)

    def opened(self, shared: SharedSquares, squared: Numbers, coin: Coin) -> _Opened:
        """What a server opens: each polynomial at each point, and at each point one sum of all squares.

        shared: its share; squared: its share of the numbers whose squares are shared.
        """
        bits = _blocks(shared.bits)
        wires = np.concatenate([bits, _blocks(squared)], axis=-2)
        values = _product(np.concatenate([wires, shared.hidden], axis=-1), np.ascontiguousarray(coin.values.T))
        within = np.concatenate([bits, shared.within], axis=-2)
        squares = _product_of(coin.factors, np.concatenate([within, shared.beyond], axis=-1))
        return values, reduced(times(squares, coin.squares).sum(axis=-1, dtype=np.uint64))


@dataclass(frozen=True, eq=False)
class SharedSquares:
    """A share by its parts. bits: the numbers; hidden: each polynomial's random values; beyond: values of its square
    beyond the block's; within: those in the block, where the block is not of bits."""

    bits: UInt32[ndarray, "*some bits"] = field(repr=False)
    hidden: UInt32[ndarray, "*some blocks points"] = field(repr=False)
    beyond: UInt32[ndarray, "*some blocks more"] = field(repr=False)
    within: UInt32[ndarray, "*some squared block"] = field(repr=False)


@dataclass(frozen=True, eq=False)
class Coin:
    """What follows from a coin: for each point, factors that give a block and its square there, and one a block."""

    values: Numbers
    squares: Numbers
    factors: Numbers

    @classmethod
    def of(cls, seed: bytes, layout: Layout) -> Coin:
        """Points are none at which a polynomial has values of its own."""
        from protocols.crypto.prg import derived_key, field_elements  # as above

        high, low = field_elements(derived_key("points", seed), 2 * POINTS).astype(np.int64).reshape(2, POINTS)
        # Of two numbers: of one, the points that its remainder gives twice are twice as likely, and can be made roots.
        points, count = _SQUARE + (high * P + low) % (P - _SQUARE), sum(layout.blocks)
        factors = field_elements(derived_key("factors", seed), POINTS * count).reshape(POINTS, count)
        return cls(_lagrange(_NODES, points), _lagrange(_SQUARE, points), factors)

    def holds(self, one: _Opened, other: _Opened) -> ndarray:
        """Whether what both servers opened fits: one truth for each proof."""
        values, sums = plus(one[0], other[0]), plus(one[1], other[1])
        squares = times(times(values, values), self.factors.T).sum(axis=-2, dtype=np.uint64)
        return np.asarray((reduced(squares) == sums).all(axis=-1))


@cache
def _beyond() -> Numbers:
    """The matrix from a polynomial's values to those at which only its square is shared."""
    return np.ascontiguousarray(_lagrange(_NODES, np.arange(_NODES, _SQUARE)).T)


def _blocks(numbers: Numbers) -> Numbers:
    more = [(0, 0)] * (numbers.ndim - 1) + [(0, -numbers.shape[-1] % BLOCK)]
    return np.pad(numbers, more).reshape(*numbers.shape[:-1], -1, BLOCK)


def _product(left: Numbers, right: UInt32[ndarray, "inner columns"]) -> Numbers:
    """left @ right, for rows of any number of axes."""
    rows = left.reshape(1, -1, left.shape[-1])
    return matrix_product(rows, right[None])[0].reshape(*left.shape[:-1], right.shape[-1])


def _product_of(left: UInt32[ndarray, "rows inner"], right: Numbers) -> Numbers:
    """left @ right, for stacks of matrices on the right."""
    stacked = right.reshape(-1, *right.shape[-2:])
    found = matrix_product(np.broadcast_to(left, (len(stacked), *left.shape)), stacked)
    return found.reshape(*right.shape[:-2], *found.shape[-2:])


def _lagrange(nodes: int, points: Int64[ndarray, " points"]) -> Numbers:
    """For each point the factors with which values at 0 to nodes - 1 give the value there, for no point among them."""
    found = np.empty((len(points), nodes), dtype=np.uint32)
    for row, point in zip(found, points.tolist(), strict=True):
        whole = prod(point - each for each in range(nodes)) % P
        row[:] = [whole * weight * pow(point - node, -1, P) % P for node, weight in enumerate(_weights(nodes))]
    return found


@cache
def _weights(nodes: int) -> list[int]:
    """The inverse of each node's product of differences to all others (Berrut & Trefethen 2004, section 3)."""
    return [pow(prod(node - each for each in range(nodes) if each != node), -1, P) for node in range(nodes)]
