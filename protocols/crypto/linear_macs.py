"""MACs of one server's numbers under keys of the other: key = alpha times number + mac.

The holder has numbers x and macs m, the other side a secret alpha in F_p and keys k, with k = alpha x + m for each
number. Holder and keeper compute with them as with numbers: the same linear combination of x, of m and of k fulfils the
same equation, and public numbers are the keeper's to subtract. A holder that claims another number must guess alpha.

This is the product evaluation of Keller, Orsini & Scholl 2016, "MASCOT: faster malicious arithmetic secure computation
with oblivious transfer" (CCS), protocol 1, after Gilboa 1999: the keeper chooses with the bits of its alpha between two
seeds, once, and whatever number the holder has costs it BITS field elements from then on.

A keeper sends nothing but its base transfers, so it cannot make a tag depend on a number. A holder may use other
numbers for other bits of alpha (the "errors" of that paper). Then k = alpha x + m + sum_j alpha_j e_j, where it chose
e_j: its tags fit only if it guesses the bits alpha_j for which e_j is not zero, so that each bit that it may learn
costs it half of its chance to go on. In all, a wrong number is accepted in one repetition with probability at most 2/p.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, UInt32
from numpy import ndarray

from protocols.crypto.channel import elements
from protocols.crypto.field import BITS, P, minus, plus, times
from protocols.crypto.prg import derived_key, field_elements

_POWERS = np.array([1 << bit for bit in range(BITS)], dtype=np.uint32)


@dataclass(frozen=True, eq=False)
class Held:
    """A server's numbers with their macs, one per repetition."""

    numbers: UInt32[ndarray, " count"] = field(repr=False)
    macs: UInt32[ndarray, "repetitions count"] = field(repr=False)

    @staticmethod
    def of_all(parts: Sequence[Held]) -> Held:
        """The numbers of several chunks, which follow each other."""
        return Held(np.concatenate([each.numbers for each in parts]), np.hstack([each.macs for each in parts]))

    def __getitem__(self, at: slice | ndarray) -> Held:
        return Held(self.numbers[at], self.macs[:, at])


@dataclass(frozen=True, eq=False)
class Kept:
    """The other server's keys of the same numbers, and its alpha of each repetition."""

    alphas: UInt32[ndarray, " repetitions"] = field(repr=False)
    keys: UInt32[ndarray, "repetitions count"] = field(repr=False)

    @staticmethod
    def of_all(parts: Sequence[Kept]) -> Kept:
        """The keys of several chunks' numbers, which follow each other."""
        return Kept(parts[0].alphas, np.hstack([each.keys for each in parts]))

    def __getitem__(self, at: slice | ndarray) -> Kept:
        return Kept(self.alphas, self.keys[:, at])

    def macs(self, numbers: UInt32[ndarray, " count"]) -> UInt32[ndarray, "repetitions count"]:
        """The macs that belong to these numbers: those of a holder that says the truth."""
        return minus(self.keys, times(self.alphas[:, None], numbers))


class Holder:
    """The side whose numbers get macs. pairs: both seeds of each of `repetitions` times BITS base transfers."""

    def __init__(self, pairs: Sequence[tuple[bytes, bytes]], *, repetitions: int) -> None:
        self._pairs = pairs[: repetitions * BITS]
        self._repetitions = repetitions

    def authenticate(self, chunk: int, numbers: UInt32[ndarray, " count"]) -> tuple[Held, bytes]:
        """The numbers of a chunk with macs, and the message to the keeper, `message_bytes` long.

        chunk: counts up from 0; under one set of seeds a chunk serves one set of numbers.
        """
        message = np.empty((self._repetitions, BITS, numbers.size), dtype="<u4")
        macs = np.zeros((self._repetitions, numbers.size), dtype=np.uint32)
        for at, (first, second) in enumerate(self._pairs):
            repetition, bit = divmod(at, BITS)
            unchosen = field_elements(_key(at, chunk, first), numbers.size)
            weighted = times(numbers, _POWERS[bit : bit + 1])
            masked = plus(minus(unchosen, field_elements(_key(at, chunk, second), numbers.size)), weighted)
            message[repetition, bit] = masked
            macs[repetition] = plus(macs[repetition], unchosen)
        return Held(numbers, macs), message.tobytes()


def message_bytes(count: int, *, repetitions: int) -> int:
    """The length of a holder's message about `count` numbers."""
    return 4 * repetitions * BITS * count


class Keeper:
    """The side with the keys. bits: those of its alphas, lowest first; seeds: those that they chose."""

    def __init__(self, bits: Bool[ndarray, " transfers"], seeds: Sequence[bytes], *, repetitions: int) -> None:
        self._bits = bits[: repetitions * BITS].reshape(repetitions, BITS)
        self._seeds = seeds[: repetitions * BITS]
        values = (self._bits.astype(np.uint64) << np.arange(BITS, dtype=np.uint64)).sum(axis=1)
        self.alphas = (values % np.uint64(P)).astype(np.uint32)

    def receive(self, chunk: int, message: bytes, count: int) -> Kept:
        """The keys of `count` numbers of a chunk. Raises MalformedMessage unless the message holds field elements."""
        repetitions = len(self.alphas)
        corrections = elements(message, (repetitions, BITS, count))
        keys = np.zeros((repetitions, count), dtype=np.uint32)
        for at, seed in enumerate(self._seeds):
            repetition, bit = divmod(at, BITS)
            chosen = field_elements(_key(at, chunk, seed), count)
            added = corrections[repetition, bit] * np.uint32(self._bits[repetition, bit])
            keys[repetition] = plus(keys[repetition], plus(chosen, added))
        return Kept(self.alphas, keys)


def _key(transfer: int, chunk: int, seed: bytes) -> bytes:
    return derived_key("mac", transfer.to_bytes(2, "little"), chunk.to_bytes(4, "little"), seed)
