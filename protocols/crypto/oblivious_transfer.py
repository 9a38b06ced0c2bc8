"""Correlated oblivious transfer: the receiver gets q_j ^ c_j D for each of its bits c_j, the sender all q_j and its D.

With D the garbler's offset, q_j is the label of zero of an input wire of the evaluator and the receiver's value its
active label: no ciphertext follows (the correlated transfer of Asharov, Lindell, Schneider & Zohner 2013). This is
IKNP (Ishai, Kilian, Nissim & Petrank 2003, figure 1) without its last hash, over the base transfers of
base_transfers.py; the hash of labels stands in.

    receiver -> sender   a matrix of bits, one column for each bit of D
    sender -> receiver   a challenge, which chooses a linear hash h
    receiver -> sender   h(c) of its bits and h(t_i) of each column

**The check.** Column i of the sender is q_i = t_i ^ D_i c_i, where c_i are the bits that the receiver put into column
i; honest receivers put the same c into all. The sender demands h(q_i) = T_i ^ D_i X of the answer (X, T): the check
of Roy 2022, "SoftSpokenOT: quieter OT extension from small-field silent VOLE" (CRYPTO), for the repetition code.
(Keller, Orsini & Scholl 2015 also add the columns up, which is shorter; Roy found their proof of that wrong.) The
argument is short. Let a receiver send any c_i and any (X, T). By linearity column i passes if h(t_i) ^ T_i = D_i
(h(c_i) ^ X). Where h(c_i) = X that does not depend on D; elsewhere it holds for at most one value of D_i, which the
receiver must guess. Two different c_i have the same hash with probability at most blocks/2^128 (GHASH; McGrew & Viega
2004), so that up to 128^2/2 times that, 2^-103 for half a million bits, all columns that need no guess hold the same
bits. A receiver that cheats in k columns therefore passes with probability 2^-k, knows k bits of D if it does, and
loses the session if it does not: guessing D without cheating is as easy.

**What the answer shows.** A block of fresh random bits at the end of c makes h(c) uniform; T follows from it and from
what the sender has.
"""

from __future__ import annotations

from collections.abc import Sequence
from hmac import compare_digest

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from jaxtyping import Bool, UInt8, UInt64
from numpy import ndarray

from protocols.crypto.base_transfers import COLUMNS
from protocols.crypto.prg_chacha import keystream, next_bytes
from protocols.crypto.randomness import RandomSource
from protocols.errors import MalformedMessage

CHALLENGE_BYTES = 16
# Of GHASH.
_BLOCK_BYTES = 16
ANSWER_BYTES = (COLUMNS + 1) * _BLOCK_BYTES


class CorrelatedReceiver:
    """Extends its pairs of keys to any number of correlated transfers, call by call.

    `extend` and, with the sender's challenge, `answer` alternate.
    """

    def __init__(self, pairs: Sequence[tuple[bytes, bytes]], source: RandomSource) -> None:
        """source: of fresh bytes, which hide the receiver's bits in its answer."""
        self._streams = [(keystream(first), keystream(second)) for first, second in pairs]
        self._source = source
        self._unchecked: UInt8[ndarray, "129 octets"] | None = None

    def extend(self, bits: Bool[ndarray, " count"]) -> tuple[UInt64[ndarray, "count 2"], bytes]:
        """A label for each bit, and the message to the sender."""
        padded = np.zeros(_octets(bits.size), dtype=np.uint8)
        packed = np.packbits(bits, bitorder="little")
        padded[: packed.size] = packed
        padded[-_BLOCK_BYTES:] = np.frombuffer(self._source(_BLOCK_BYTES), dtype=np.uint8)
        rows = np.empty((COLUMNS + 1, padded.size), dtype=np.uint8)
        rows[COLUMNS] = padded
        message = np.empty((COLUMNS, padded.size), dtype=np.uint8)
        for column, sent, (first, second) in zip(rows, message, self._streams, strict=False):
            column[:] = next_bytes(first, padded.size)
            sent[:] = column ^ next_bytes(second, padded.size) ^ padded
        self._unchecked = rows
        return _rows(rows[:COLUMNS])[: bits.size], message.tobytes()

    def answer(self, challenge: bytes) -> bytes:
        """The hashes under the challenge, of ANSWER_BYTES, which `extend` must have preceded."""
        assert self._unchecked is not None
        rows, self._unchecked = self._unchecked, None
        return _hashes(challenge, rows).tobytes()


class CorrelatedSender:
    """The sender: bits are those of the secret D, keys those that they chose.

    `receive` and `checked` alternate, so that no label is used before the receiver's message was checked.
    """

    def __init__(self, bits: Bool[ndarray, "128"], keys: Sequence[bytes]) -> None:
        self._bits = bits
        self._streams = [keystream(key) for key in keys]
        self._unchecked: tuple[UInt8[ndarray, "128 octets"], int] | None = None

    @staticmethod
    def message_bytes(count: int) -> int:
        """The size of the receiver's message for `count` transfers."""
        return COLUMNS * _octets(count)

    def receive(self, message: bytes, count: int) -> None:
        """Takes the receiver's message, of `message_bytes(count)` bytes. The challenge must be drawn afterwards."""
        received = np.frombuffer(message, dtype=np.uint8).reshape(COLUMNS, -1)
        columns = np.empty_like(received)
        for column, sent, bit, stream in zip(columns, received, self._bits.tolist(), self._streams, strict=True):
            column[:] = next_bytes(stream, received.shape[1]) ^ (sent * np.uint8(bit))
        self._unchecked = columns, count

    def checked(self, challenge: bytes, answer: bytes) -> UInt64[ndarray, "count 2"]:
        """The label of zero of each transfer.

        challenge: CHALLENGE_BYTES that the receiver learned after its message was taken; answer: its ANSWER_BYTES to
        them. Raises MalformedMessage if the message was not made with the same bits in every column.
        """
        assert self._unchecked is not None
        (columns, count), self._unchecked = self._unchecked, None
        theirs = np.frombuffer(answer, dtype=np.uint8).reshape(COLUMNS + 1, _BLOCK_BYTES)
        expected = theirs[:COLUMNS] ^ np.where(self._bits[:, None], theirs[COLUMNS], np.uint8(0))
        if not compare_digest(_hashes(challenge, columns).tobytes(), expected.tobytes()):
            raise MalformedMessage("the transfers of the other server's inputs are inconsistent")
        return _rows(columns)[:count]


def _octets(count: int) -> int:
    """The bytes of a column: whole blocks for `count` bits, and one of random bits, which hides them in the hash."""
    bits = 8 * _BLOCK_BYTES
    return (count + bits - 1) // bits * _BLOCK_BYTES + _BLOCK_BYTES


def _hashes(challenge: bytes, rows: UInt8[ndarray, "rows octets"]) -> UInt8[ndarray, "rows 16"]:
    """GHASH of each row, without the block of the length, which all rows share.

    The tag of AES-GCM (NIST SP 800-38D) of no plaintext is GHASH of the associated data under a key that the challenge
    determines, plus a constant of key and nonce. The constant is the tag of zeros. Secrecy of the key, and a nonce used
    once, matter for encryption; nothing is encrypted here, and the challenge is public.
    """
    mac, nonce = AESGCM(challenge), bytes(12)
    constant = np.frombuffer(mac.encrypt(nonce, b"", bytes(rows.shape[1])), dtype=np.uint8)
    tags = [mac.encrypt(nonce, b"", row.tobytes()) for row in rows]
    return np.frombuffer(b"".join(tags), dtype=np.uint8).reshape(len(rows), _BLOCK_BYTES) ^ constant


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
