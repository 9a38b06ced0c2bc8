"""A server's noise for a batch: drawn from committed randomness and a coin, and shown in part to the other server.

The server has ROWS_A_QUERY rows for each query of the batch; a row is the noise of one query. It commits to a seed for
each row. After a first coin, row j is drawn by inversion from SHAKE-256 of its seed and the coin: so the server
cannot choose it. Then all rows get macs (linear_macs.py). A second coin orders the rows: the first go to the queries in
that order, and the rest are opened: their seeds, and a hash of their macs.

This is cut and choose (Chaum 1983 and many since). A server that gave macs to other numbers in m of the K n rows is not
noticed only if none of the m is among the (K-1) n that are opened: with probability C(n, m) / C(K n, m) <= K^-m. Which
queries they then fall to is the coin's choice. Opened rows are never used, so what is opened says nothing of the noise.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from fractions import Fraction
from math import comb

import numpy as np
from jaxtyping import Int64, UInt8
from numpy import ndarray

from benchmarks.authenticated_inputs.inverted_gaussian import WORDS, inverted
from benchmarks.authenticated_inputs.linear_macs import Held, Kept
from protocols.crypto.field import from_integers
from protocols.crypto.prg_chacha import derived_key, keystream, next_bytes
from protocols.errors import MalformedMessage

SEED_BYTES, HASH_BYTES = 16, 32
# Rows for each query: the one that is used, and those that are opened.
ROWS_A_QUERY = 4


@dataclass(frozen=True)
class NoiseLaw:
    """The noise of one row: `counts[i]` draws of standard deviation `sigmas[i]`, in lattice units, in turn."""

    sigmas: tuple[Fraction, ...]
    counts: tuple[int, ...]

    @property
    def width(self) -> int:
        """Draws in a row."""
        return sum(self.counts)

    def rows(self, seeds: UInt8[ndarray, "rows 16"], coin: bytes) -> Int64[ndarray, "rows width"]:
        """The row of each seed under the first coin."""
        size = 8 * WORDS * self.width
        octets = b"".join(
            hashlib.shake_256(b"conclave noise row" + coin + seed.tobytes()).digest(size) for seed in seeds
        )
        words = np.frombuffer(octets, dtype="<u8").astype(np.uint64).reshape(len(seeds), self.width, WORDS)
        ends = np.cumsum(self.counts)[:-1]
        parts = zip(np.split(words, ends, axis=1), self.sigmas, strict=True)
        return np.concatenate([inverted(part, sigma=sigma) for part, sigma in parts], axis=1)


@dataclass(frozen=True, eq=False)
class NoisePool:
    """The seeds of a server's rows, and what it commits to them by."""

    seeds: UInt8[ndarray, "rows 16"] = field(repr=False)

    @classmethod
    def of(cls, secret: bytes, rows: int) -> NoisePool:
        """rows: of all of them. secret: 32 bytes, of this batch alone and the same in every attempt at it."""
        stream = keystream(derived_key("noise rows", secret))
        return cls(next_bytes(stream, SEED_BYTES * rows).reshape(rows, SEED_BYTES))

    @property
    def commitment(self) -> bytes:
        """Binds to every seed, and hides those that are not opened: each has 128 random bits."""
        return derived_key("noise pool", _leaves(self.seeds).tobytes())

    def opening(self, order: Int64[ndarray, " rows"], queries: int, held: Held) -> bytes:
        """Shows all rows but the first `queries` of the order. held: all rows' numbers, row by row."""
        shown = np.sort(order[queries:])
        leaves = _leaves(self.seeds[np.sort(order[:queries])])
        return self.seeds[shown].tobytes() + leaves.tobytes() + _digest(held.macs, len(self.seeds), shown)


def opening_bytes(rows: int, queries: int) -> int:
    """How long an opening is."""
    return SEED_BYTES * (rows - queries) + HASH_BYTES * (queries + 1)


def check_opening(
    opening: bytes, commitment: bytes, *, order: Int64[ndarray, " rows"], queries: int, law: NoiseLaw, coin: bytes,
    kept: Kept,
) -> None:  # fmt: skip
    """Raises MalformedMessage unless the opened rows are those of the committed seeds, and have macs as such.

    kept: the keys of all rows' numbers, row by row.
    """
    rows = len(order)
    shown, hidden = np.sort(order[queries:]), np.sort(order[:queries])
    octets = np.frombuffer(opening, dtype=np.uint8)
    seeds, leaves, digest = np.split(octets, [SEED_BYTES * len(shown), -HASH_BYTES])
    seeds = seeds.reshape(-1, SEED_BYTES)
    all_leaves = np.empty((rows, HASH_BYTES), dtype=np.uint8)
    all_leaves[hidden] = leaves.reshape(-1, HASH_BYTES)
    all_leaves[shown] = _leaves(seeds)
    if derived_key("noise pool", all_leaves.tobytes()) != commitment:
        raise MalformedMessage("the other server opens other seeds of noise than it had committed to")
    numbers = np.zeros((rows, law.width), dtype=np.uint32)
    numbers[shown] = from_integers(law.rows(seeds, coin))
    if _digest(kept.macs(numbers.reshape(-1)), rows, shown) != digest.tobytes():
        raise MalformedMessage("the other server's noise is not what its seeds and the coin give")


def row_order(coin: bytes, rows: int) -> Int64[ndarray, " rows"]:
    """All rows in the order of the second coin."""
    words = next_bytes(keystream(derived_key("order of rows", coin)), 8 * rows).view("<u8")
    return np.argsort(words, kind="stable").astype(np.int64)


def unnoticed(falsified: int, *, queries: int, rows_a_query: int = ROWS_A_QUERY) -> float:
    """The probability that none of so many falsified rows is opened: all of them are then used."""
    return comb(queries, falsified) / comb(rows_a_query * queries, falsified)


def _leaves(seeds: UInt8[ndarray, "rows 16"]) -> UInt8[ndarray, "rows 32"]:
    hashes = b"".join(hashlib.sha256(b"conclave noise seed" + seed.tobytes()).digest() for seed in seeds)
    return np.frombuffer(hashes, dtype=np.uint8).reshape(-1, HASH_BYTES)


def _digest(macs: ndarray, rows: int, shown: Int64[ndarray, " shown"]) -> bytes:
    return derived_key("opened noise", macs.reshape(len(macs), rows, -1)[:, shown].astype("<u4").tobytes())
