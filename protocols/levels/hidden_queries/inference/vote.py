"""The last gate: scores shared modulo 2^32 -> one-hot of the argmax, shared over F_p; ties to the lowest class.

Three openings: masked differences of all pairs of scores; their masked lookups (comparison.py), which give integer
shares of each comparison; and, masked modulo a power of two, how many others each class beats. The winner alone beats
all others, so a dealt table over F_p, looked up at the opened number, is the one-hot vote v.

The servers' check needs shares of k v too, with a key k for each query and repetition that the answering party alone
knows. Whoever knew it together with a server could shift that server's messages unnoticed, so the dealer must not, nor
the querying party. The dealer knows the table's shares t_Q + t_A, and deals a uniform x to the answering party and
shares w_Q + w_A = x t_Q. The answering party sends k - x, uniform to the querying party, with its last reply. Then
(k - x) t_Q + w_Q and k t_A + w_A, looked up at the opened number, add up to k v: the products of one-time tables
(Ishai et al. 2013) by the dealt product of Beaver 1991.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt8, UInt32
from numpy import ndarray

from protocols.crypto.field import plus, times
from protocols.crypto.prg import SEED_BYTES, Stream, derived_key
from protocols.levels.hidden_queries.inference import comparison
from protocols.levels.hidden_queries.inference.comparison import Arrays, Digits, Piece
from protocols.levels.two_server.shares import REPETITIONS


@dataclass(frozen=True)
class VoteGate:
    """Votes of `queries` rows of scores."""

    queries: int
    classes: int
    digits: Digits

    @property
    def pairs(self) -> int:
        """Differences per query."""
        return self.classes * (self.classes - 1) // 2

    @property
    def entries(self) -> int:
        """Entries of a table: the least power of two that is no less than the classes."""
        return 1 << (self.classes - 1).bit_length()

    @property
    def free(self) -> tuple[Piece, ...]:
        numbers = self.queries * self.pairs
        return (
            Piece("ring", "<u4", (numbers,)),
            Piece("xor", "<u1", (self.digits.lookups, -(-numbers // 8))),
            Piece("ring", "<u1", (self.queries, self.classes)),
        )

    @property
    def derived(self) -> tuple[Piece, ...]:
        numbers = self.queries * self.pairs
        return (
            Piece("xor", "<u8", (self.digits.lookups, numbers)),
            Piece("ring", "<u1", (self.digits.products, numbers)),
            Piece("field", "<u4", (self.entries, self.queries, self.classes)),
        )

    @property
    def keyed(self) -> Piece:
        """The answering party's share of x times the querying party's table."""
        return Piece("field", "<u4", (REPETITIONS, self.entries, self.queries, self.classes))

    def keyed_secret(self, table: UInt32[ndarray, "entries queries classes"], seed: bytes) -> ndarray:
        """What the shares of `keyed` add up to. table: the querying party's; seed: dealt to the answering party."""
        return times(table, key_masks(seed, self.queries)[:, None, :, None])

    def secrets(self, free: Arrays) -> Arrays:
        """Tables of digits, products of masks, and the table of votes."""
        mask, lookup_masks, win_masks = free
        mask = self.digits.wrapped(mask)
        bits = np.unpackbits(lookup_masks, axis=1, count=len(mask))
        made = comparison.sign_products(self.digits, bits, self.digits.top_bits(mask))
        seen = np.arange(self.entries, dtype=np.uint8)[:, None, None] - win_masks
        wins = (seen & np.uint8(self.entries - 1)) == self.classes - 1
        return comparison.tables(self.digits, mask), made, wins.astype(np.uint32)


class Vote:
    """One party's side of the gate. leads: it adds the public constants."""

    def __init__(self, gate: VoteGate, free: Arrays, derived: Arrays, *, leads: bool) -> None:
        self._gate, self._leads = gate, leads
        self._mask, self._lookup_masks, self._win_masks = free
        self._tables, self._products, self._votes = derived
        self._left, self._right = np.triu_indices(gate.classes, 1)

    def masked(self, scores: UInt32[ndarray, "queries classes"]) -> UInt32[ndarray, " numbers"]:
        """This party's share of the masked differences, lower class minus higher."""
        differences = (scores[:, self._left] - scores[:, self._right]).reshape(-1)
        return self._gate.digits.wrapped(differences + self._mask)

    def lookups(self, mine: UInt32[ndarray, " numbers"], theirs: UInt32[ndarray, " numbers"]) -> UInt8[ndarray, "_ _"]:
        """This party's share of the masked lookups."""
        self._opened = self._gate.digits.wrapped(mine + theirs)
        return comparison.looked_up(self._gate.digits, self._tables, self._opened) ^ self._lookup_masks

    def wins(self, mine: UInt8[ndarray, "_ _"], theirs: UInt8[ndarray, "_ _"]) -> UInt8[ndarray, "queries classes"]:
        """This party's share of how many others each class beats, masked."""
        lost = comparison.sign_shares(
            self._gate.digits, self._products, mine ^ theirs, self._opened, leads=self._leads
        ).reshape(self._gate.queries, self._gate.pairs)
        pairs = np.arange(self._gate.pairs)
        # A lower class that does not lose to a higher one beats it: [y < 0] counts for the higher, 1 - [y < 0] for
        # the lower. Sums stay below 2^24, so float32 is exact.
        signs = np.zeros((self._gate.pairs, self._gate.classes), dtype=np.float32)
        signs[pairs, self._left], signs[pairs, self._right] = -1, 1
        counts = (lost.astype(np.float32) @ signs).astype(np.int32)
        if self._leads:
            counts += np.arange(self._gate.classes - 1, -1, -1, dtype=np.int32)
        return (counts.astype(np.uint8) + self._win_masks) & np.uint8(self._gate.entries - 1)

    def shares(
        self, mine: UInt8[ndarray, "queries classes"], theirs: UInt8[ndarray, "queries classes"]
    ) -> UInt32[ndarray, "queries classes"]:
        """This party's share, over F_p, of the one-hot votes."""
        return votes_at(self._votes, mine, theirs)

    @property
    def table(self) -> UInt32[ndarray, "entries queries classes"]:
        """This party's share of the table of votes."""
        return self._votes


def votes_at(
    table: UInt32[ndarray, "*tables entries queries classes"],
    mine: UInt8[ndarray, "queries classes"],
    theirs: UInt8[ndarray, "queries classes"],
) -> UInt32[ndarray, "*tables queries classes"]:
    """The table, or each of several, looked up at what the two masked shares of wins open to."""
    opened = (mine + theirs) & np.uint8(table.shape[-3] - 1)
    at = np.broadcast_to(opened.astype(np.intp), (*table.shape[:-3], 1, *opened.shape))
    return np.take_along_axis(table, at, axis=-3)[..., 0, :, :]


def keyed_at(
    votes: UInt32[ndarray, "queries classes"],
    factors: UInt32[ndarray, "repetitions queries"],
    dealt: UInt32[ndarray, "repetitions queries classes"],
) -> UInt32[ndarray, "repetitions queries classes"]:
    """A party's share of k v. votes: its share of v; factors: k, or k - x at the querying party; dealt: its share of x
    times the querying party's share of v.
    """
    return plus(times(votes, factors[..., None]), dealt)


def key_masks(seed: bytes, queries: int) -> UInt32[ndarray, "repetitions queries"]:
    """x, from the seed that is dealt to the answering party."""
    return Stream(derived_key("key masks", seed)[:SEED_BYTES]).field((REPETITIONS, queries))


def keyed_masks(seed: bytes, gate_shape: tuple[int, ...]) -> UInt32[ndarray, "repetitions entries queries classes"]:
    """The querying party's share of x times its table, of `VoteGate.keyed`'s shape; see `keyed_seed`."""
    return Stream(seed).field(gate_shape)


def keyed_seed(seed: bytes) -> bytes:
    """The seed of `keyed_masks`, from the one that is dealt to the querying party. It is stored in the masks' place."""
    return derived_key("keyed masks", seed)[:SEED_BYTES]
