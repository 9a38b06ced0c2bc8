"""The last gate: scores shared modulo 2^32 -> one-hot of the argmax, shared over F_p; ties to the lowest class.

Three openings give shares of the winner: masked differences of all pairs of scores; their masked lookups
(comparison.py), which give integer shares of each comparison; and, masked modulo a power of two, how many others each
class beats. The winner alone beats all others, so dealt tables of numbers, looked up there, add up to its number a.

Then the vote is *chosen*, not computed. The answering party draws a rotation r that nobody else knows, and sends its
share of a plus r, modulo `entries`: the querying party learns o = a + r, which is uniform. For each o' the answering
party makes the share that a coordinator has at `two_server` of the vote for o' - r, with all that the servers' check
takes, under keys that it alone knows; the querying party takes one of them by oblivious transfer, from dealt pads
(Beaver 1995, "Precomputing oblivious transfer"). So whatever was sent, opened or dealt before, what it takes is a share
of *one vote*: the computation decides for which class, and nothing decides whether the vote is well formed.

A dealer that deals other pads than it should moves what is taken by a number that it knows, the same for each choice:
as if a server moved its share, which the servers' check refuses or not whatever the vote is (docs/explanation/
security-arguments.md, "Whether a hidden query's vote counts says nothing of it").
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt8, UInt32
from numpy import ndarray

from protocols.crypto.field import minus, plus, times
from protocols.levels.hidden_queries.inference import comparison
from protocols.levels.hidden_queries.inference.comparison import Digits, Piece
from protocols.levels.two_server.shares import REPETITIONS
from protocols.wire.messages import Arrays


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
            Piece("ring", "<u1", (self.entries, self.queries, self.classes)),
        )

    @property
    def index(self) -> Piece:
        """Shares of the winner's number, and choices: modulo `entries`."""
        return Piece("ring", "<u1", (self.queries,))

    @property
    def pads(self) -> Piece:
        """What hides the votes among which the querying party chooses: of v, and of k v for each repetition."""
        return Piece("field", "<u4", (1 + REPETITIONS, self.entries, self.queries, self.classes))

    @property
    def pad(self) -> Piece:
        """The pads of the dealt choices."""
        return Piece("field", "<u4", (1 + REPETITIONS, self.queries, self.classes))

    def modulo(self, numbers: UInt8[ndarray, "..."]) -> UInt8[ndarray, "..."]:
        """Modulo `entries`."""
        return numbers & np.uint8(self.entries - 1)

    def secrets(self, free: Arrays) -> Arrays:
        """Tables of digits, products of masks, and the tables of the winner's number."""
        mask, lookup_masks, win_masks = free
        mask = self.digits.wrapped(mask)
        bits = np.unpackbits(lookup_masks, axis=1, count=len(mask))
        made = comparison.sign_products(self.digits, bits, self.digits.top_bits(mask))
        seen = np.arange(self.entries, dtype=np.uint8)[:, None, None] - win_masks
        wins = self.modulo(seen) == self.classes - 1
        return comparison.tables(self.digits, mask), made, wins * np.arange(self.classes).astype(np.uint8)


class Vote:
    """One party's side of the gate. leads: it adds the public constants."""

    def __init__(self, gate: VoteGate, free: Arrays, derived: Arrays, *, leads: bool) -> None:
        self._gate, self._leads = gate, leads
        self._mask, self._lookup_masks, self._win_masks = free
        self._tables, self._products, self._numbers = derived
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
        return self._gate.modulo(counts.astype(np.uint8) + self._win_masks)

    def index(
        self, mine: UInt8[ndarray, "queries classes"], theirs: UInt8[ndarray, "queries classes"]
    ) -> UInt8[ndarray, " queries"]:
        """This party's share of the winner's number."""
        opened = self._gate.modulo(mine + theirs).astype(np.intp)
        found = np.take_along_axis(self._numbers, opened[None], axis=0)[0]
        return self._gate.modulo(found.sum(axis=1, dtype=np.uint8))


def choosable(
    gate: VoteGate, rotation: UInt8[ndarray, " queries"], keys: UInt32[ndarray, "repetitions queries"],
    zero: UInt32[ndarray, "numbers queries classes"],
) -> UInt32[ndarray, "numbers entries queries classes"]:  # fmt: skip
    """For each o' the coordinator's share of the vote for o' - rotation, and of k times it. zero: of a vote of zeros.

    Where o' - rotation is no class, which an honest computation never takes, the vote is for the last one.
    """
    voted = gate.modulo(np.arange(gate.entries, dtype=np.uint8)[:, None] - rotation)
    votes = (np.minimum(voted, gate.classes - 1)[..., None] == np.arange(gate.classes)).astype(np.uint32)
    return plus(np.concatenate([votes[None], times(votes, keys[:, None, :, None])]), zero[:, None])


def padded_messages(
    gate: VoteGate,
    messages: UInt32[ndarray, "numbers entries queries classes"],
    pads: UInt32[ndarray, "numbers entries queries classes"],
    moved: UInt8[ndarray, " queries"],
) -> UInt32[ndarray, "numbers entries queries classes"]:
    """What is sent: message i under pad i - moved, so that who has pad s can read message s + moved."""
    at = gate.modulo(np.arange(gate.entries, dtype=np.uint8)[:, None] - moved).astype(np.intp)
    return plus(messages, np.take_along_axis(pads, at[None, ..., None], axis=1))


def chosen_messages(
    sent: UInt32[ndarray, "numbers entries queries classes"], choice: UInt8[ndarray, " queries"],
    pad: UInt32[ndarray, "numbers queries classes"],
) -> UInt32[ndarray, "numbers queries classes"]:  # fmt: skip
    """The chosen message of each query; or the pads of the dealt choices, if `pad` is zero and all pads are `sent`."""
    at = choice.astype(np.intp)[None, None, :, None]
    return minus(np.take_along_axis(sent, at, axis=1)[:, 0], pad)
