"""Oblivious transfer: base transfers, their extension to correlated ones, and the equality test of two secrets.

Base transfers: COLUMNS random pairs of keys, of each of which the receiver has one and the sender both.

Masny & Rindal 2019, "Endemic oblivious transfer" (CCS), the protocol from a key agreement, over the subgroup of prime
order of edwards25519: secure against a malicious sender and a malicious receiver, if the hash to the group is a
random oracle and Diffie-Hellman is hard. The receiver knows the discrete logarithm of r_b + H_b(r_(1-b)) alone. A
malicious side can at most choose keys of its own, which the correlated transfers allow it (ibid., section 5).

Points outside of that subgroup are refused on both sides; where they are multiplied, libsodium does. The hash to the
group is Elligator 2, which reaches about half of the points. That is enough here: a receiver's points are uniform
whatever is added to them, and the proof, which must program the hash so that r + H(r') is a given problem times a
random number, draws that number again until the difference has a preimage, twice on average.

Correlated oblivious transfer: the receiver gets q_j ^ c_j D for each of its bits c_j, the sender all q_j and its D.

With D the garbler's offset, q_j is the label of zero of an input wire of the evaluator and the receiver's value its
active label: no ciphertext follows (the correlated transfer of Asharov, Lindell, Schneider & Zohner 2013). This is
IKNP (Ishai, Kilian, Nissim & Petrank 2003, figure 1) without its last hash, over the base transfers
above; the hash of labels stands in.

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

A test of whether two sides hold the same secret, from which neither learns anything else about the other's.

SPAKE2 (Abdalla & Pointcheval 2005; RFC 9382) over edwards25519 with key confirmation, the secret in the place of the
password. Password-authenticated key exchange is an equality test against malicious sides: whoever does not hold the
other's secret tests one guess in each run, and gets no other information (Abdalla, Barbosa, Bradley, Jarecki, Katz &
Xu 2020, "Universally composable relaxed password authenticated key exchange", CRYPTO: SPAKE2 under gap CDH and a
random oracle). Opening hashes of the secrets instead, even after commitments, would let a side that chose the other's
labels search the other's inputs behind its hash.

    first -> second   X = x G + w M
    second -> first   Y = y G + w N; the second side's tag
    first -> second   the first side's tag

One secret is compared in one run only: a second run is a second guess. So the scalars follow from a seed, and a run
that was interrupted is repeated with the same messages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from hmac import compare_digest

import nacl.bindings as group
import nacl.exceptions
import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from jaxtyping import Bool, UInt8, UInt64
from numpy import ndarray

from protocols.crypto.edwards import POINT_BYTES, is_point
from protocols.crypto.prg import derived_key, keystream, next_bytes
from protocols.crypto.randomness import RandomSource
from protocols.errors import MalformedMessage

COLUMNS = 128
# The receiver sends two points for each transfer.
BASE_ANSWER_BYTES = 2 * COLUMNS * POINT_BYTES
_NEUTRAL = b"\x01" + bytes(31)


class BaseSender:
    """The side that gets both keys of every pair. `message`: a point for the receiver."""

    def __init__(self, source: RandomSource) -> None:
        self._scalar = scalar(source)
        self.message = group.crypto_scalarmult_ed25519_base_noclamp(self._scalar)

    def keys(self, answer: bytes) -> list[tuple[bytes, bytes]]:
        """Both keys of every transfer, from the receiver's BASE_ANSWER_BYTES. Raises MalformedMessage."""
        points = [answer[at : at + POINT_BYTES] for at in range(0, len(answer), POINT_BYTES)]
        pairs = []
        for number in range(COLUMNS):
            both = points[2 * number : 2 * number + 2]
            first, second = (
                _key(number, choice, self.message, both, _multiple(self._scalar, self._agreed(number, choice, both)))
                for choice in range(2)
            )
            pairs.append((first, second))
        return pairs

    def _agreed(self, number: int, choice: int, points: list[bytes]) -> bytes:
        hashed = _hashed_to_group(number, choice, self.message, points[1 - choice])
        if points[choice] == _NEUTRAL:
            raise MalformedMessage("a base transfer holds the neutral element of the group")
        try:
            return group.crypto_core_ed25519_add(points[choice], hashed)
        except nacl.exceptions.RuntimeError:
            raise MalformedMessage("a base transfer does not hold points of the curve") from None


class BaseReceiver:
    """The side that takes one key of each pair. `message`: BASE_ANSWER_BYTES for the sender; `keys`: one per transfer.

    Raises MalformedMessage if the sender's offer is not a point.
    """

    def __init__(self, offer: bytes, bits: Bool[ndarray, "128"], source: RandomSource) -> None:
        check_point(offer, "the offer of base transfers")
        sent: list[bytes] = []
        self.keys: list[bytes] = []
        for number, choice in enumerate(bits.astype(np.int64).tolist()):
            secret = scalar(source)
            other = group.crypto_scalarmult_ed25519_base_noclamp(scalar(source))
            own = group.crypto_core_ed25519_sub(
                group.crypto_scalarmult_ed25519_base_noclamp(secret), _hashed_to_group(number, choice, offer, other)
            )
            both = [(own, other)[choice], (other, own)[choice]]
            sent += both
            self.keys.append(_key(number, choice, offer, both, _multiple(secret, offer)))
        self.message = b"".join(sent)


def scalar(source: RandomSource) -> bytes:
    """A uniform scalar of edwards25519."""
    return group.crypto_core_ed25519_scalar_reduce(source(group.crypto_core_ed25519_NONREDUCEDSCALARBYTES))


def check_point(point: bytes, what: str) -> None:
    """Raises MalformedMessage unless `point` is the one encoding of a point of prime order."""
    if len(point) != POINT_BYTES or not is_point(point):
        raise MalformedMessage(f"{what} does not hold a point of the group of prime order")


def _multiple(factor: bytes, point: bytes) -> bytes:
    """factor * point. Raises MalformedMessage for a point that is not of prime order, and the neutral element."""
    try:
        return group.crypto_scalarmult_ed25519_noclamp(factor, point)
    except nacl.exceptions.RuntimeError:
        raise MalformedMessage("an agreement does not hold a point of the group of prime order") from None


def _hashed_to_group(number: int, choice: int, offer: bytes, point: bytes) -> bytes:
    about = (number.to_bytes(2, "little"), choice.to_bytes(1, "little"), offer, point)
    return group.crypto_core_ed25519_from_uniform(derived_key("base transfer point", *about))


def _key(number: int, choice: int, offer: bytes, points: list[bytes], shared: bytes) -> bytes:
    about = (number.to_bytes(2, "little"), choice.to_bytes(1, "little"))
    return derived_key("base transfer", *about, offer, *points, shared)


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


TRANSFER_TAG_BYTES = 32
# RFC 9382, section 6: points of which nobody knows the discrete logarithm.
_M = bytes.fromhex("d048032c6ea0b6d697ddc2e86bda85a33adac920f1bf18e1b0c6d166a5cecdaf")
_N = bytes.fromhex("d3bfb518f44f3430f29d0c92af503865a1ed3281dc69b35dd868ba85f886c4ab")


@dataclass(frozen=True)
class Tags:
    """What this side sends to confirm that the secrets are equal, and what the other must send."""

    own: bytes = field(repr=False)
    expected: bytes = field(repr=False)

    def confirmed_by(self, tag: bytes) -> bool:
        """Whether the other side holds the same secret."""
        return compare_digest(self.expected, tag)


class EqualityTest:
    """One side of one test. `message`: the point for the other side, of 32 bytes."""

    def __init__(self, secret: bytes, *, first: bool, seed: bytes, context: bytes) -> None:
        """secret: any bytes; first: whether this is the side that speaks first; seed: 32 secret random bytes, used for
        one secret only; context: public bytes of this run, the same on both sides.
        """
        self._first, self._context = first, context
        self._scalar = _scalar("equality scalar", seed, secret, context)
        self._secret = _scalar("equality secret", secret, context)
        self.message = group.crypto_core_ed25519_add(
            group.crypto_scalarmult_ed25519_base_noclamp(self._scalar), _multiple(self._secret, _M if first else _N)
        )

    def tags(self, theirs: bytes) -> Tags:
        """The tags that follow from the other side's point. Raises MalformedMessage."""
        check_point(theirs, "the test of equality")
        unmasked = group.crypto_core_ed25519_sub(theirs, _multiple(self._secret, _N if self._first else _M))
        points = (self.message, theirs) if self._first else (theirs, self.message)
        # Only a side that knows the secret can make the difference neutral: then this run is its guess.
        key = derived_key("equality", self._context, *points, self._secret, _multiple(self._scalar, unmasked))
        tags = derived_key("first side agrees", key), derived_key("second side agrees", key)
        return Tags(*tags) if self._first else Tags(*reversed(tags))


def _scalar(label: str, *parts: bytes) -> bytes:
    wide = hashlib.sha512(derived_key(label, *parts)).digest()
    return group.crypto_core_ed25519_scalar_reduce(wide)
