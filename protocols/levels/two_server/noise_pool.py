"""A server's noise for a batch: drawn from committed randomness and a coin, and shown in part to the other server.

The server has ROWS_A_QUERY rows for each query of the batch; a row is the noise of one query. It commits to a seed for
each row. After a first coin, row j is drawn by inversion from SHAKE-256 of the coin, j and its seed: so the server
cannot choose it, nor have the same noise in two rows by giving them one seed. Then all rows get macs (linear_macs.py).
A second coin orders the rows: the first go to the queries in that order, and the rest are opened: their seeds, and a
hash of their macs.

This is cut and choose (Chaum 1983 and many since). A server that gave macs to other numbers in m of the K n rows is not
noticed only if none of the m is among the (K-1) n that are opened: with probability C(n, m) / C(K n, m) <= K^-m. Which
queries they then fall to is the coin's choice. Opened rows are never used, so what is opened says nothing of the noise.
That is for one batch. Three that fail end the study (batch_notes.py), and those that succeed do not count: one query a
batch, at least one succeeds before the third failure with probability 1 - (1 - 1/K)^3 = 58 %, and 3/(K - 1) = 1 does
on average.

Both coins follow from a number of each server, and a server's numbers and seeds from its seed of the batch, which its
ledger keeps. So a repetition uses the same rows, and who has both seeds can draw the noise again (`noise_of`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from jaxtyping import Int64, UInt8
from numpy import ndarray

from protocols.crypto.discrete_gaussian import WORDS, inverted, lattice_sigma
from protocols.crypto.field import from_integers
from protocols.crypto.linear_macs import Held, Kept
from protocols.crypto.prg import derived_key, keystream, next_bytes
from protocols.errors import Refused
from protocols.refusals.code import Code
from protocols.study.levels import guarded
from protocols.study.study import Study

_SEED_BYTES, _HASH_BYTES = 16, 32
# Rows for each query: the one that is used, and those that are opened.
ROWS_A_QUERY = 4


@dataclass(frozen=True)
class NoiseLaw:
    """The noise of one row: `width` draws of standard deviation `sigma`, in lattice units."""

    sigma: Fraction
    width: int

    @classmethod
    def of(cls, study: Study) -> NoiseLaw:
        """A server's whole noise in a query of a study at a level with two servers: a draw per class."""
        units = guarded(study.confidentiality).units
        return cls(lattice_sigma(study.gaussian.sigma, units=units), study.classes)

    def rows(
        self, seeds: UInt8[ndarray, "rows 16"], coin: bytes, *, positions: Int64[ndarray, " rows"]
    ) -> Int64[ndarray, "rows width"]:
        """The row of each seed under the first coin. positions: where it stands in the pool."""
        size = 8 * WORDS * self.width
        octets = b"".join(
            hashlib.shake_256(b"conclave noise row" + coin + row).digest(size) for row in _numbered(seeds, positions)
        )
        words = np.frombuffer(octets, dtype="<u8").astype(np.uint64).reshape(len(seeds), self.width, WORDS)
        return inverted(words, sigma=self.sigma)


@dataclass(frozen=True, eq=False)
class NoisePool:
    """The seeds of a server's rows, and the server's numbers for both coins.

    seed: 32 secret bytes of this batch alone, the same in every attempt at it.
    """

    seeds: UInt8[ndarray, "rows 16"] = field(repr=False)
    numbers: tuple[bytes, bytes] = field(repr=False)

    @classmethod
    def of(cls, seed: bytes, *, queries: int) -> NoisePool:
        """The pool for so many queries."""
        rows = ROWS_A_QUERY * queries
        seeds = next_bytes(keystream(derived_key("noise rows", seed)), _SEED_BYTES * rows).reshape(rows, _SEED_BYTES)
        one, two = (derived_key(f"{which} coin of noise", seed) for which in ("first", "second"))
        return cls(seeds, (one, two))

    @property
    def commitment(self) -> bytes:
        """Binds to every seed, and hides those that are not opened: each has 128 random bits."""
        return derived_key("noise pool", _leaves(self.seeds, np.arange(len(self.seeds))).tobytes())

    def rows(self, law: NoiseLaw, coin: bytes, at: Int64[ndarray, " rows"] | None = None) -> Int64[ndarray, "rows _"]:
        """The rows at these positions under the first coin, all of them if None."""
        at = np.arange(len(self.seeds)) if at is None else at
        return law.rows(self.seeds[at], coin, positions=at)

    def opening(self, order: Int64[ndarray, " rows"], queries: int, held: Held) -> bytes:
        """Shows all rows but the first `queries` of the order. held: all rows' numbers, row by row."""
        shown, hidden = np.sort(order[queries:]), np.sort(order[:queries])
        leaves = _leaves(self.seeds[hidden], hidden)
        return self.seeds[shown].tobytes() + leaves.tobytes() + _digest(held.macs, len(self.seeds), shown)


def noise_of(seeds: tuple[bytes, bytes], law: NoiseLaw, *, queries: int) -> tuple[Int64[ndarray, "queries width"], ...]:
    """The noise of coordinator and guardian in a batch, in units, from their seeds, as both servers' checks give it."""
    pools = [NoisePool.of(seed, queries=queries) for seed in seeds]
    first, second = (coin_of(pools[0].numbers[at], pools[1].numbers[at]) for at in range(2))
    used = row_order(second, ROWS_A_QUERY * queries)[:queries]
    return tuple(pool.rows(law, first, used) for pool in pools)


def coin_of(coordinators: bytes, guardians: bytes) -> bytes:
    """The coin that two numbers make."""
    return derived_key("coin of noise", coordinators, guardians)


def opening_bytes(rows: int, queries: int) -> int:
    """How long an opening is."""
    return _SEED_BYTES * (rows - queries) + _HASH_BYTES * (queries + 1)


def check_opening(
    opening: bytes, commitment: bytes, *, order: Int64[ndarray, " rows"], queries: int, law: NoiseLaw, coin: bytes,
    kept: Kept,
) -> None:  # fmt: skip
    """Raises Refused("false_inputs") unless the opened rows are those of the committed seeds, and have macs as such.

    kept: the keys of all rows' numbers, row by row.
    """
    rows = len(order)
    shown, hidden = np.sort(order[queries:]), np.sort(order[:queries])
    octets = np.frombuffer(opening, dtype=np.uint8)
    seeds, leaves, digest = np.split(octets, [_SEED_BYTES * len(shown), -_HASH_BYTES])
    seeds = seeds.reshape(-1, _SEED_BYTES)
    all_leaves = np.empty((rows, _HASH_BYTES), dtype=np.uint8)
    all_leaves[hidden] = leaves.reshape(-1, _HASH_BYTES)
    all_leaves[shown] = _leaves(seeds, shown)
    if derived_key("noise pool", all_leaves.tobytes()) != commitment:
        raise Refused(Code.FALSE_INPUTS, "the other server opens other seeds of noise than it had committed to")
    numbers = np.zeros((rows, law.width), dtype=np.uint32)
    numbers[shown] = from_integers(law.rows(seeds, coin, positions=shown))
    if _digest(kept.macs(numbers.reshape(-1)), rows, shown) != digest.tobytes():
        raise Refused(Code.FALSE_INPUTS, "the other server's noise is not what its seeds and the coin give")


def row_order(coin: bytes, rows: int) -> Int64[ndarray, " rows"]:
    """All rows in the order of the second coin."""
    words = next_bytes(keystream(derived_key("order of rows", coin)), 8 * rows).view("<u8")
    return np.argsort(words, kind="stable").astype(np.int64)


def _leaves(seeds: UInt8[ndarray, "rows 16"], positions: Int64[ndarray, " rows"]) -> UInt8[ndarray, "rows 32"]:
    hashes = b"".join(hashlib.sha256(b"conclave noise seed" + row).digest() for row in _numbered(seeds, positions))
    return np.frombuffer(hashes, dtype=np.uint8).reshape(-1, _HASH_BYTES)


def _numbered(seeds: UInt8[ndarray, "rows 16"], positions: Int64[ndarray, " rows"]) -> list[bytes]:
    """Each row's position in the pool, in four bytes, and its seed."""
    return [int(at).to_bytes(4, "little") + seed.tobytes() for at, seed in zip(positions, seeds, strict=True)]


def _digest(macs: ndarray, rows: int, shown: Int64[ndarray, " shown"]) -> bytes:
    return derived_key("opened noise", macs.reshape(len(macs), rows, -1)[:, shown].astype("<u4").tobytes())
