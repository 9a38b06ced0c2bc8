"""What it would cost two servers to check that a shared sum is one that so many units could send: a prototype.

    python benchmarks/bounded_sums.py [--cells 3200] [--hospitals 250] [--malformed 20000]

No level calls this: where records vote, `two_server` shares sums modulo 2^32 or 2^64, which have no such proofs, and
checks nothing. docs/decisions/0075-a-proof-of-sums.md has the protocol, its argument and what is missing.

A hospital shares its sum S bit by bit modulo p, and squares of polynomials through the bits, and a second time through
the cells' leading digits e. The servers draw a coin once all is shared, open each polynomial at three points of the
coin, which is uniform because of three random values in it, and of the squares one sum a point. So x^2 = x for each
bit, and sum e^2, in integers, is what a bound leaves room for. The proof is fully linear (Boneh, Boneh, Corrigan-Gibbs,
Gilboa & Ishai 2019, "Zero-knowledge proofs on secret-shared data via fully linear PCPs"), of one gate, and no
challenge follows from a hash that a hospital could try again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from math import isqrt, log2, prod, sqrt
from typing import Protocol

import numpy as np
from jaxtyping import Int64, UInt32
from numpy import ndarray

from protocols.crypto.field import P, from_integers, matrix_product, minus, plus, reduced, times
from protocols.crypto.prg import derived_key, field_elements

# Values of a polynomial that say something; points that are opened of it, and values that hide these.
BLOCK, POINTS = 64, 3
_NODES = BLOCK + POINTS
# Values that determine the square of a polynomial.
_SQUARE = 2 * _NODES - 1
_SLACK_BITS = 30

Numbers = UInt32[ndarray, "..."]


@dataclass(frozen=True)
class NormBound:
    """Sums of `cells` whole numbers whose norm is at most `most`, or a little more: see `proved`."""

    cells: int
    most: int

    @property
    def digit(self) -> int:
        """The bound of a leading digit: so that the sum of their squares is at most 2^30, and does not wrap."""
        return 1 << int((30 - log2(self.cells)) / 2)

    @property
    def low(self) -> int:
        """How many bits of a cell are below its leading digit."""
        return max(0, (2 * self.most // (2 * self.digit - 3)).bit_length())

    @property
    def bits(self) -> int:
        """The bits of a cell: of S + half of their range, and half a unit of the leading digit, which rounds."""
        return self.low + self.digit.bit_length()

    @property
    def offset(self) -> int:
        return (self.digit << self.low) + ((1 << self.low) >> 1)

    @property
    def squares(self) -> int:
        """The bound on the sum of squared digits, which no sum within the norm exceeds."""
        return int((self.most / 2**self.low + sqrt(self.cells) / 2) ** 2) + 1

    @property
    def proved(self) -> float:
        """What the norm is at most, whatever was shared."""
        return (sqrt(self.squares) + sqrt(self.cells) / 2) * 2**self.low

    def shared(self, sums: Int64[ndarray, " cells"]) -> Numbers:
        """The numbers that are shared of these sums: bits of the cells, then bits of what the bound leaves."""
        moved = sums + self.offset
        rest = self.squares - int((self.digits(moved) ** 2).sum())
        bits = (moved[:, None] >> np.arange(self.bits)) & 1
        return np.concatenate([bits.ravel(), (rest >> np.arange(_SLACK_BITS)) & 1]).astype(np.uint32)

    def digits(self, moved: Int64[ndarray, " cells"]) -> Int64[ndarray, " cells"]:
        """The leading digits, rounded, of numbers to which the offset was added."""
        return (moved >> self.low) - self.digit

    def of_cells(self, numbers: Numbers, *, low: int, constant: int, leads: bool) -> Numbers:
        """Shares of the cells from their bits, from `low` on, less a constant that the first server takes off."""
        bits = numbers[: self.cells * self.bits].reshape(self.cells, self.bits)[:, low:]
        powers = from_integers(np.array([1 << at for at in range(self.bits - low)], dtype=np.int64))
        found = matrix_product(bits[None], powers[None, :, None])[0, :, 0]
        return minus(found, from_integers(np.array([constant if leads else 0])))

    def wires(self, numbers: Numbers, *, leads: bool) -> Numbers:
        """The blocks whose squares are proved: all bits, then the leading digits."""
        digits = self.of_cells(numbers, low=self.low, constant=self.digit, leads=leads)
        return np.concatenate([_blocks(numbers), _blocks(digits)])

    def sums(self, numbers: Numbers, *, leads: bool) -> Numbers:
        """This server's share of the sums."""
        return self.of_cells(numbers, low=0, constant=self.offset, leads=leads)

    @property
    def blocks(self) -> tuple[int, int]:
        """How many blocks hold bits, and leading digits."""
        return -(-(self.cells * self.bits + _SLACK_BITS) // BLOCK), -(-self.cells // BLOCK)

    def size(self) -> int:
        """How many numbers a server's share has."""
        bits, digits = self.blocks
        more = (bits + digits) * (POINTS + _SQUARE - BLOCK) + digits * BLOCK
        return self.cells * self.bits + _SLACK_BITS + more


@dataclass(frozen=True, eq=False)
class Proof:
    """A share of a sum and its proof, or all of it. hidden: each polynomial's random values; squares: values of its
    square beyond the block's; of_digits: those of leading digits within the block."""

    numbers: Numbers
    hidden: Numbers
    squares: Numbers
    of_digits: Numbers

    def parts(self) -> tuple[Numbers, ...]:
        return self.numbers, self.hidden, self.squares, self.of_digits


def proved(bound: NormBound, numbers: Numbers, *, seed: bytes) -> Proof:
    """An honest hospital's proof of the numbers."""
    wires = bound.wires(numbers, leads=True)
    hidden = field_elements(derived_key("hidden", seed), len(wires) * POINTS).reshape(-1, POINTS)
    values = np.concatenate([wires, hidden], axis=1)
    beyond = matrix_product(values[None], _beyond()[None])[0]
    square = times(np.concatenate([values, beyond], axis=1), np.concatenate([values, beyond], axis=1))
    return Proof(numbers, hidden, square[:, BLOCK:], square[bound.blocks[0] :, :BLOCK])


def shares(proof: Proof, *, seed: bytes) -> tuple[Proof, Proof]:
    """The coordinator's share, which is sent, and the guardian's, which a seed of 16 bytes gives."""
    sizes = [each.size for each in proof.parts()]
    stream = np.split(field_elements(derived_key("guardian's proof", seed), sum(sizes)), np.cumsum(sizes)[:-1])
    guardian = Proof(*(each.reshape(part.shape) for each, part in zip(stream, proof.parts(), strict=True)))
    return Proof(*(minus(a, b) for a, b in zip(proof.parts(), guardian.parts(), strict=True))), guardian


@dataclass(frozen=True, eq=False)
class Coin:
    """What both servers draw once everything is shared: for each point, factors that open a block and its square."""

    values: Numbers
    squares: Numbers
    factors: Numbers

    @classmethod
    def of(cls, seed: bytes, bound: NormBound) -> Coin:
        """Points are none at which a polynomial has values of its own."""
        high, low = field_elements(derived_key("points", seed), 2 * POINTS).astype(np.int64).reshape(2, POINTS)
        # Of two numbers: of one, the points that its remainder gives twice are twice as likely, and can be made roots.
        points, count = _SQUARE + (high * P + low) % (P - _SQUARE), sum(bound.blocks)
        factors = field_elements(derived_key("factors", seed), POINTS * count).reshape(POINTS, count)
        return cls(_lagrange(_NODES, points), _lagrange(_SQUARE, points), factors)


def opened(bound: NormBound, share: Proof, coin: Coin, *, leads: bool) -> tuple[Numbers, Numbers, Numbers]:
    """What a server says: each polynomial at each point; of all squares a sum a point; what is left of the bound."""
    bits, wires = bound.blocks[0], bound.wires(share.numbers, leads=leads)
    values = matrix_product(np.concatenate([wires, share.hidden], axis=1)[None], coin.values.T[None])[0]
    within = np.concatenate([wires[:bits], share.of_digits])
    squares = matrix_product(coin.factors[None], np.concatenate([within, share.squares], axis=1)[None])[0]
    summed = reduced(times(squares, coin.squares).sum(axis=1, dtype=np.uint64))
    slack = share.numbers[-_SLACK_BITS:]
    powers = from_integers(np.array([1 << at for at in range(_SLACK_BITS)], dtype=np.int64))
    left = reduced(np.array([times(slack, powers).sum(dtype=np.uint64) + share.of_digits.sum(dtype=np.uint64)]))
    return values, summed, minus(left, from_integers(np.array([bound.squares if leads else 0])))


def holds(coin: Coin, one: tuple[Numbers, ...], other: tuple[Numbers, ...]) -> bool:
    """Whether what both servers opened fits."""
    values, summed, left = (plus(a, b) for a, b in zip(one, other, strict=True))
    squares = times(times(values, values), coin.factors.T).sum(axis=0, dtype=np.uint64)
    return bool((reduced(squares) == summed).all() and not left.any())


@cache
def _beyond() -> Numbers:
    """The matrix from a polynomial's values to those at which only its square is shared."""
    return np.ascontiguousarray(_lagrange(_NODES, np.arange(_NODES, _SQUARE)).T)


def _blocks(numbers: Numbers) -> Numbers:
    return np.pad(numbers, (0, -len(numbers) % BLOCK)).reshape(-1, BLOCK)


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


# How the numbers that are shared are malformed.
Change = Callable[[NormBound, Numbers, np.random.Generator], None]


class ProofChange(Protocol):
    """How the proof of them is."""

    def __call__(self, proof: Proof, rng: np.random.Generator) -> None: ...


def _bit(value: int, *, slack: bool = False) -> Change:
    def changed(bound: NormBound, numbers: Numbers, rng: np.random.Generator) -> None:
        start, stop = (len(numbers) - _SLACK_BITS, len(numbers)) if slack else (0, bound.cells * bound.bits)
        numbers[rng.integers(start, stop)] = value % P

    return changed


def _cancelling(bound: NormBound, numbers: Numbers, rng: np.random.Generator) -> None:
    numbers[rng.choice(bound.cells * bound.bits, 2, replace=False)] = (2, P - 1)


def _long(bound: NormBound, numbers: Numbers, rng: np.random.Generator) -> None:
    """A cell of the largest leading digit: beyond the norm, of bits alone."""
    at = int(rng.integers(bound.cells)) * bound.bits
    numbers[at : at + bound.bits] = 1


def _other(field: str) -> ProofChange:
    def changed(proof: Proof, rng: np.random.Generator) -> None:
        part = getattr(proof, field)
        at = tuple(int(rng.integers(size)) for size in part.shape)
        part[at] = (int(part[at]) + int(rng.integers(1, P))) % P

    return changed


MALFORMED: dict[str, tuple[Change | None, ProofChange | None]] = {
    "a bit is 2": (_bit(2), None),
    "a bit is -1": (_bit(-1), None),
    "a bit is one half": (_bit((P + 1) // 2), None),
    "a bit is large": (_bit(1 << 29), None),
    "two bits that cancel": (_cancelling, None),
    "a cell beyond the norm": (_long, None),
    "a bit of the room is 2": (_bit(2, slack=True), None),
    "a bit of the room is -1": (_bit(-1, slack=True), None),
    "another square": (None, _other("squares")),
    "another square of a digit": (None, _other("of_digits")),
}


def accepted(
    bound: NormBound, numbers: Numbers, coin: Coin, *, seed: bytes, change: Callable[[Proof], None] | None = None
) -> bool:
    """Whether the servers take these numbers, with the proof that an honest hospital would make of them, or changed."""
    proof = proved(bound, numbers, seed=seed)
    if change is not None:
        change(proof)
    one, other = shares(proof, seed=seed)
    return holds(coin, opened(bound, one, coin, leads=True), opened(bound, other, coin, leads=False))


def count_accepted(trials: int, *, kind: str, seed: int) -> int:
    """How many of so many malformed sums of small size are taken, each under one of 50 coins."""
    bound, rng = NormBound(cells=5, most=300), np.random.default_rng(seed)
    coins = [Coin.of(rng.bytes(32), bound) for _ in range(50)]
    of_numbers, of_proof = MALFORMED[kind]
    taken = 0
    for trial in range(trials):
        numbers = bound.shared(rng.integers(-100, 101, 5))
        if of_numbers is not None:
            of_numbers(bound, numbers, rng)
        change = None if of_proof is None else partial(of_proof, rng=rng)
        taken += accepted(bound, numbers, coins[trial % 50], seed=rng.bytes(16), change=change)
    return taken


def main() -> None:
    """Costs of one hospital, and how many malformed sums are taken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=3200)
    parser.add_argument("--most", type=int, default=2**23)
    parser.add_argument("--hospitals", type=int, default=250)
    parser.add_argument("--malformed", type=int, default=0)
    asked = parser.parse_args()
    bound, rng = NormBound(asked.cells, asked.most), np.random.default_rng(1)
    width = isqrt(asked.most**2 // asked.cells)
    sums = rng.integers(-width, width + 1, asked.cells)
    coin, took = Coin.of(bytes(32), bound), []
    for _ in range(5):
        at = [time.process_time()]
        one, other = shares(proved(bound, bound.shared(sums), seed=bytes(16)), seed=bytes(16))
        at.append(time.process_time())
        shares(one, seed=bytes(16))  # as the guardian expands its seed, and a subtraction
        said = opened(bound, one, coin, leads=True)
        at.append(time.process_time())
        assert holds(coin, said, opened(bound, other, coin, leads=False))
        took.append(np.diff(at))
    made, checked = np.min(took, axis=0)
    total = plus(bound.sums(one.numbers, leads=True), bound.sums(other.numbers, leads=False))
    assert (total == from_integers(sums)).all()
    said_bytes = 4 * sum(each.size for each in said)
    print(
        f"{asked.cells} cells of {bound.bits} bits; norm at most {bound.most}, proved {bound.proved / bound.most:.3f}"
    )
    print(f"a hospital: {1e3 * made:.0f} ms of processor time, {4e-6 * bound.size():.2f} MB to the coordinator")
    print(f"a server and hospital: {1e3 * checked:.0f} ms, {said_bytes / 1e3:.1f} kB to the other server")
    print(f"{asked.hospitals} hospitals: {asked.hospitals * checked:.1f} s a server, "
          f"{4e-6 * bound.size() * asked.hospitals:.0f} MB")  # fmt: skip
    for kind in MALFORMED if asked.malformed else ():
        print(f"{kind}: {count_accepted(asked.malformed, kind=kind, seed=2)} of {asked.malformed} taken", flush=True)


if __name__ == "__main__":
    main()
