"""Correlated oblivious transfer: the receiver gets q_j ^ c_j D for each of its bits c_j, the sender all q_j and its D.

With D the garbler's offset, q_j is the label of zero of an input wire of the evaluator and the receiver's value its
active label: no ciphertext follows (the correlated transfer of Asharov, Lindell, Schneider & Zohner 2013). This is IKNP
(Ishai, Kilian, Nissim & Petrank 2003, figure 1) without its last hash; the hash of labels stands in, which is
correlation robust for inputs that the evaluator knew beforehand. Both sides are semi-honest: a receiver that sends an
inconsistent matrix could learn bits of D (Keller, Orsini & Scholl 2015 check against that; this does not).

128 base transfers: Chou & Orlandi 2015, "The simplest protocol for oblivious transfer", over the subgroup of prime
order of edwards25519, keys being hashes of the whole exchange and of the transfer's number. Random, one-time, and for
semi-honest sides, which is as far as its proof is undisputed.
"""

from __future__ import annotations

from collections.abc import Sequence

import nacl.bindings as group
import numpy as np
from jaxtyping import Bool, UInt8, UInt64
from numpy import ndarray

from protocols.crypto.edwards import is_point
from protocols.crypto.prg_chacha import derived_key, keystream, next_bytes
from protocols.crypto.randomness import RandomSource
from protocols.errors import MalformedMessage

COLUMNS = 128
POINT_BYTES = 32


class BaseSender:
    """The side of the base transfers that offers COLUMNS pairs of keys."""

    def __init__(self, source: RandomSource) -> None:
        self._scalar = _scalar(source)
        self.message = group.crypto_scalarmult_ed25519_base_noclamp(self._scalar)

    def keys(self, answer: bytes) -> list[tuple[bytes, bytes]]:
        """Both keys of every transfer, from the receiver's points. Raises MalformedMessage."""
        shift = group.crypto_scalarmult_ed25519_noclamp(self._scalar, self.message)
        pairs = []
        for number in range(COLUMNS):
            point = answer[POINT_BYTES * number : POINT_BYTES * (number + 1)]
            _check_point(point)
            shared = group.crypto_scalarmult_ed25519_noclamp(self._scalar, point)
            other = group.crypto_core_ed25519_sub(shared, shift)
            pairs.append((_key(number, self.message, point, shared), _key(number, self.message, point, other)))
        return pairs


class BaseReceiver:
    """The side of the base transfers that takes one key of each pair. Raises MalformedMessage if the offer is not a
    point.
    """

    def __init__(self, offer: bytes, bits: Bool[ndarray, "128"], source: RandomSource) -> None:
        _check_point(offer)
        points, self.keys = [], []
        for number, bit in enumerate(bits.tolist()):
            scalar = _scalar(source)
            point = group.crypto_scalarmult_ed25519_base_noclamp(scalar)
            # Both are computed, so that the time does not reveal which was sent.
            point = (point, group.crypto_core_ed25519_add(point, offer))[bit]
            points.append(point)
            shared = group.crypto_scalarmult_ed25519_noclamp(scalar, offer)
            self.keys.append(_key(number, offer, point, shared))
        self.message = b"".join(points)


class CorrelatedReceiver:
    """Extends its pairs of keys to any number of correlated transfers, call by call."""

    def __init__(self, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        self._streams = [(keystream(first), keystream(second)) for first, second in pairs]

    def extend(self, bits: Bool[ndarray, " count"]) -> tuple[UInt64[ndarray, "count 2"], bytes]:
        """A label for each bit, and the message to the sender."""
        packed = np.packbits(bits, bitorder="little")
        columns = np.empty((COLUMNS, packed.size), dtype=np.uint8)
        message = np.empty_like(columns)
        for column, sent, (first, second) in zip(columns, message, self._streams, strict=True):
            column[:] = next_bytes(first, packed.size)
            sent[:] = column ^ next_bytes(second, packed.size) ^ packed
        return _rows(columns)[: bits.size], message.tobytes()


class CorrelatedSender:
    """The sender: bits are those of the secret D, keys those that they chose."""

    def __init__(self, bits: Bool[ndarray, "128"], keys: Sequence[bytes]) -> None:
        self._bits = bits.tolist()
        self._streams = [keystream(key) for key in keys]

    @staticmethod
    def message_bytes(count: int) -> int:
        """The size of the receiver's message for `count` transfers."""
        return COLUMNS * ((count + 7) // 8)

    def extend(self, message: bytes, count: int) -> UInt64[ndarray, "count 2"]:
        """The label of zero of each transfer; message: of `message_bytes(count)` bytes."""
        received = np.frombuffer(message, dtype=np.uint8).reshape(COLUMNS, -1)
        columns = np.empty_like(received)
        for column, sent, bit, stream in zip(columns, received, self._bits, self._streams, strict=True):
            column[:] = next_bytes(stream, received.shape[1]) ^ (sent * np.uint8(bit))
        return _rows(columns)[:count]


def bits_of(secret: UInt64[ndarray, "2"]) -> Bool[ndarray, "128"]:
    """A label's bits in the order of the columns."""
    octets = secret.astype("<u8").view(np.uint8)
    return np.unpackbits(octets, bitorder="little").astype(np.bool_)


# The masks of three rounds of swaps that transpose 8 x 8 bits in a word (Warren, "Hacker's Delight", section 7-3).
_SWAPS = ((7, 0x00AA00AA00AA00AA), (14, 0x0000CCCC0000CCCC), (28, 0x00000000F0F0F0F0))


def _rows(columns: UInt8[ndarray, "128 octets"]) -> UInt64[ndarray, "transfers 2"]:
    """The transposed matrix of bits, one label per row."""
    count = columns.shape[1]
    words = np.ascontiguousarray(columns.T).view("<u8")
    for shift, mask in _SWAPS:
        swapped = (words ^ (words >> np.uint64(shift))) & np.uint64(mask)
        words ^= swapped ^ (swapped << np.uint64(shift))
    octets = words.view(np.uint8).reshape(count, COLUMNS // 8, 8).transpose(0, 2, 1)
    return np.ascontiguousarray(octets).reshape(8 * count, COLUMNS // 8).view("<u8").astype(np.uint64)


def _scalar(source: RandomSource) -> bytes:
    return group.crypto_core_ed25519_scalar_reduce(source(group.crypto_core_ed25519_NONREDUCEDSCALARBYTES))


def _check_point(point: bytes) -> None:
    if not is_point(point):
        raise MalformedMessage("a base transfer does not hold a point of the group of prime order")


def _key(number: int, offer: bytes, point: bytes, shared: bytes) -> bytes:
    return derived_key("base transfer", number.to_bytes(2, "little"), offer, point, shared)
