"""Garbled circuits of a noisy argmax: the hash of wire labels, the circuit over abstract gates, and half gates.

The hash of wire labels: fixed-key AES made tweakable circular correlation robust.

H(x, i) = pi(pi(x) ^ i) ^ pi(x), with pi = AES-128 under a public key: TMMO of Guo, Katz, Wang & Yu 2020, "Efficient and
secure multiparty computation from fixed-key block ciphers" (IEEE S&P), which is tweakable circular correlation robust
for inputs that an adversary chooses, if pi is an ideal permutation. One AES call (pi(x ^ i) ^ x ^ i) would be cheaper
but needs naturally derived keys, and here the labels of inputs come from known seeds.

Guo et al. 2020, "Better concrete security for half-gates garbling (in the multi-instance setting)" (CRYPTO): with one
key for everybody, C gates over all sessions and T calls of AES leave about T C / 2^128. The key is therefore drawn at
the start of each session. Then C counts the hashes of one session (2^22 for 1,000 queries of 10 classes, 2^26 for 150),
and work done before the session is useless: above 100 bits.

The circuit of a noisy argmax over two shares, written once over abstract gates: plain bits, garbler, evaluator.

For each query and class it takes the two shares a, b in [0, p) of a number x in F_p and forms D = a + b + 1 mod 2^31
by a chain of carries. With x in [0, p): a + b = x + p c for a bit c, so D = x + 1 - c. The bit c is never computed:

- *Argmax*: the shares are doubled beforehand, so x = 2 y with y in [0, 2^30): then D // 2 = y, whatever c is. 30 ANDs
  per class, after which y is an ordinary integer of 30 bits and a tournament compares (30) and selects (30).
- *Threshold*: if y was shifted so that a threshold lies at 2^29, the top bit of the winner's y says whether it is
  reached: one AND per query, to select that bit in the last round.

Both comparisons and the adder are the one-AND gates of Kolesnikov, Sadeghi & Schneider 2009, "Improved garbled circuit
building blocks", figures 2 and 5. A word is an array with its bits on the first axis, lowest first, then classes, then
queries: one call of `conjunction` is one bit of all classes and queries at once.

Garbled gates: half gates with free exclusive or and point-and-permute, a batch of gates at a time.

Zahur, Rosulek & Evans 2015, "Two halves make a whole", figure 2: two ciphertexts per AND. A wire has the labels W and
W ^ R for 0 and 1, R being the garbler's secret with its lowest bit set, so that a label's lowest bit is the value under
a random mask (Kolesnikov & Schneider 2008 for the exclusive or, Beaver, Micali & Rogaway 1990 for the bit). The
evaluator holds one label per wire. Labels are hashed as above; each half gate has its own tweak.

Ciphertexts are sent in frames of FRAME_BYTES as they are made, so neither side ever holds all tables of a circuit, and
the evaluator works while the garbler garbles.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from jaxtyping import Bool, UInt64
from numpy import ndarray

from protocols.crypto.channel import Channel, receive
from protocols.crypto.field import BITS

CIPHER_BYTES = 16
_BLOCK_BYTES = 16

# A label is 128 bits: two little-endian words on the last axis.
_Labels = UInt64[ndarray, "*wires 2"]


class LabelHash:
    """H under one key. Inputs and results are arrays of labels, contiguous and of any shape."""

    def __init__(self, key: bytes) -> None:
        # Labels are single blocks of high entropy under a public permutation, which is what this mode applies.
        self._encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()

    def permuted(self, labels: UInt64[ndarray, "*wires 2"]) -> UInt64[ndarray, "*wires 2"]:
        """pi of each label."""
        labels = np.ascontiguousarray(labels)
        if not labels.size:
            return labels
        buffer = np.empty(labels.nbytes + _BLOCK_BYTES, dtype=np.uint8)
        flat = memoryview(labels.reshape(-1).view(np.uint8))  # type: ignore[arg-type]  # an array has a buffer
        self._encryptor.update_into(flat, memoryview(buffer))  # type: ignore[arg-type]  # as above
        return buffer[: labels.nbytes].view(np.uint64).reshape(labels.shape)

    def finished(
        self, permuted: UInt64[ndarray, "*wires 2"], tweaks: UInt64[ndarray, "*tweaked"]
    ) -> UInt64[ndarray, "*wires 2"]:
        """H from pi(x): tweaks, below 2^64, broadcast against the wires."""
        tweaked = permuted.copy()
        tweaked[..., 0] ^= tweaks
        result = self.permuted(tweaked)
        result ^= permuted
        return result


@runtime_checkable
class Gates(Protocol):
    """The gates over some kind of wires; the exclusive or of wires is `^` on their arrays."""

    def conjunction(self, left: ndarray, right: ndarray) -> ndarray:
        """left AND right; both broadcast."""

    def negation(self, wires: ndarray) -> ndarray:
        """NOT wires."""


class PlainGates:
    """Gates over booleans, which count the ANDs: the circuit's meaning, for tests and for sizes."""

    def __init__(self) -> None:
        self.conjunctions = 0

    def conjunction(self, left: Bool[ndarray, "..."], right: Bool[ndarray, "..."]) -> Bool[ndarray, "..."]:
        result = left & right
        self.conjunctions += result.size
        return result

    def negation(self, wires: Bool[ndarray, "..."]) -> Bool[ndarray, "..."]:
        return ~wires


@dataclass(frozen=True, eq=False)
class OutcomeWires:
    """Output wires: whether a query passed the threshold (None without one), and the label's bits, lowest first."""

    passed: ndarray | None = field(repr=False)
    label: ndarray = field(repr=False)


def noisy_argmax(gates: Gates, left: ndarray, right: ndarray, *, threshold: bool) -> OutcomeWires:
    """The outcome's wires. left, right: wires of the shares, [BITS, classes, queries]; ties go to the lowest class.

    The label of a query that does not pass is zero.
    """
    top, label = _argmax(gates, _sums(gates, left, right)[1:], with_top=threshold)
    return OutcomeWires(top[0], gates.conjunction(label, top[0])) if threshold else OutcomeWires(None, label)


def conjunctions_a_query(*, classes: int, threshold: bool) -> int:
    """How many AND gates the circuit has for one query."""
    gates = PlainGates()
    wires = np.zeros((BITS, classes, 1), dtype=bool)
    noisy_argmax(gates, wires, wires, threshold=threshold)
    return gates.conjunctions


def _sums(gates: Gates, left: ndarray, right: ndarray) -> ndarray:
    """left + right + 1 modulo 2^BITS."""
    total = left ^ right
    total[0] = gates.negation(total[0])
    # With a carry in of one, the first carry is an OR.
    carry = gates.negation(gates.conjunction(gates.negation(left[0]), gates.negation(right[0])))
    for bit in range(1, BITS):
        total[bit] ^= carry
        if bit < BITS - 1:
            carry = carry ^ gates.conjunction(left[bit] ^ carry, right[bit] ^ carry)
    return total


def _argmax(gates: Gates, values: ndarray, *, with_top: bool) -> tuple[ndarray, ndarray]:
    """The top bit of the largest value, [1, queries] (none, if not with_top), and the bits of its class.

    Neighbours are compared, so ties go to the lower class.

    An entry is a value's bits followed by its class's. After k rounds it stands for 2^k classes; round k decides bit k
    of the winner's class.
    """
    width, entries = len(values), values
    unneeded = width - 1 if with_top else width
    while entries.shape[1] > 1:
        paired = entries.shape[1] // 2 * 2
        left, right = entries[:, 0:paired:2], entries[:, 1:paired:2]
        higher = _greater(gates, right[:width], left[:width])
        if entries.shape[1] == 2:
            # The other bits of the winner's value are not needed.
            left, right = left[unneeded:], right[unneeded:]
        chosen = np.concatenate([left ^ gates.conjunction(left ^ right, higher), higher[None]])
        if paired < entries.shape[1]:
            # An entry without a partner advances, with a zero for this bit.
            alone = np.concatenate([entries[:, paired:], np.zeros_like(entries[:1, paired:])])
            chosen = np.concatenate([chosen, alone], axis=1)
        entries = chosen
    winner = entries[:, 0]
    return winner[: width - unneeded], winner[width - unneeded :]


def _greater(gates: Gates, left: ndarray, right: ndarray) -> ndarray:
    """left > right, of unsigned words."""
    above = left[0] ^ gates.conjunction(left[0], right[0])
    for bit in range(1, len(left)):
        above = left[bit] ^ gates.conjunction(left[bit] ^ above, right[bit] ^ above)
    return above


LABEL_BYTES = 16
# Two ciphertexts of one AND gate.
GATE_BYTES = 2 * LABEL_BYTES
_FRAME_BYTES = 2**20


def colours(labels: UInt64[ndarray, "*wires 2"]) -> Bool[ndarray, "*wires"]:
    """The lowest bit of each label."""
    return (labels[..., 0] & np.uint64(1)).astype(np.bool_)


def chosen(bits: Bool[ndarray, "*wires"], labels: UInt64[ndarray, "..."]) -> UInt64[ndarray, "..."]:
    """The labels where the bit is set, zero elsewhere, without branching on the bit; both broadcast."""
    return _kept(bits.astype(np.uint64), labels)


class TableWriter:
    """Sends tables, a batch's garbler halves first, in whole frames; `flush` sends what is left of a circuit."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._pending = bytearray()

    def write(self, table: UInt64[ndarray, "2 *gates 2"]) -> None:
        self._pending += memoryview(table.reshape(-1).view(np.uint8))  # type: ignore[arg-type]  # an array has a buffer
        while len(self._pending) >= _FRAME_BYTES:
            self._channel.send(bytes(self._pending[:_FRAME_BYTES]))
            del self._pending[:_FRAME_BYTES]

    def flush(self) -> None:
        if self._pending:
            self._channel.send(bytes(self._pending))
            self._pending.clear()


class TableReader:
    """Reads the tables of a circuit with a given number of gates from frames. Raises MalformedMessage,
    ChannelClosed.
    """

    def __init__(self, channel: Channel, gates: int) -> None:
        self._channel = channel
        self._coming = gates * GATE_BYTES
        self._pending = bytearray()

    def read(self, gates: tuple[int, ...]) -> UInt64[ndarray, "2 *gates 2"]:
        size = math.prod(gates) * GATE_BYTES
        while len(self._pending) < size:
            frame = receive(self._channel, min(_FRAME_BYTES, self._coming), "a frame of garbled tables")
            self._coming -= len(frame)
            self._pending += frame
        table = np.frombuffer(self._pending[:size], dtype="<u8").astype(np.uint64, copy=False).reshape(2, *gates, 2)
        del self._pending[:size]
        return table


class Garbler:
    """Gates over the labels of zero. One offset, one hash and one counter of tweaks per session."""

    def __init__(self, offset: UInt64[ndarray, "2"], hashing: LabelHash, writer: TableWriter) -> None:
        self._offset = offset
        self._hash = hashing
        self._writer = writer
        self._tweak = 0

    def negation(self, wires: UInt64[ndarray, "*wires 2"]) -> UInt64[ndarray, "*wires 2"]:
        return _flipped(wires, self._offset)

    def conjunction(self, left: UInt64[ndarray, "..."], right: UInt64[ndarray, "..."]) -> UInt64[ndarray, "..."]:
        shape = np.broadcast_shapes(left.shape, right.shape)
        tweaks = _tweaks(self._tweak, shape[:-1])
        self._tweak += 2 * tweaks.size
        of_left, left_difference = self._both(left, shape, tweaks)
        of_right, right_difference = self._both(right, shape, tweaks + np.uint64(1))
        table = np.empty((2, *shape), dtype=np.uint64)
        # The garbler's half: its hidden bit is the right wire's colour.
        garblers = np.bitwise_xor(left_difference, _coloured(right, self._offset), out=table[0])
        # The evaluator's half: the evaluator sees the masked right wire.
        np.bitwise_xor(right_difference, left, out=table[1])
        self._writer.write(table)
        of_left ^= of_right
        of_left ^= _coloured(left, garblers)
        of_left ^= _coloured(right, right_difference)
        return of_left

    def _both(
        self, wires: UInt64[ndarray, "..."], shape: tuple[int, ...], tweaks: UInt64[ndarray, "*gates"]
    ) -> tuple[UInt64[ndarray, "*gates 2"], UInt64[ndarray, "*gates 2"]]:
        """Hash of each label of zero, and its difference from the hash of the label of one."""
        of_zero, of_one = (
            self._hash.finished(np.broadcast_to(self._hash.permuted(labels), shape), tweaks)
            for labels in (wires, _flipped(wires, self._offset))
        )
        of_one ^= of_zero
        return of_zero, of_one


class Evaluator:
    """Gates over active labels, one per wire."""

    def __init__(self, hashing: LabelHash, reader: TableReader, *, tweak: int = 0) -> None:
        """reader: of the circuit's tables; tweak: of its first gate, where the garbler's circuit before this ended."""
        self._hash = hashing
        self._reader = reader
        self.tweak = tweak

    def negation(self, wires: UInt64[ndarray, "*wires 2"]) -> UInt64[ndarray, "*wires 2"]:
        return wires.copy()

    def conjunction(self, left: UInt64[ndarray, "..."], right: UInt64[ndarray, "..."]) -> UInt64[ndarray, "..."]:
        shape = np.broadcast_shapes(left.shape, right.shape)
        tweaks = _tweaks(self.tweak, shape[:-1])
        self.tweak += 2 * tweaks.size
        table = self._reader.read(shape[:-1])
        of_left = self._hash.finished(np.broadcast_to(self._hash.permuted(left), shape), tweaks)
        of_right = self._hash.finished(np.broadcast_to(self._hash.permuted(right), shape), tweaks + np.uint64(1))
        of_left ^= of_right
        of_left ^= _coloured(left, table[0])
        of_left ^= _coloured(right, table[1] ^ left)
        return of_left


def _coloured(wires: UInt64[ndarray, "..."], labels: UInt64[ndarray, "..."]) -> UInt64[ndarray, "..."]:
    """The labels where the wire's colour is one, zero elsewhere."""
    return _kept(wires[..., 0] & np.uint64(1), labels)


# Word by word: NumPy is several times slower where it must broadcast along an axis of two.


def _kept(ones: UInt64[ndarray, "..."], labels: UInt64[ndarray, "..."]) -> UInt64[ndarray, "..."]:
    """The labels where there is a one, zero elsewhere."""
    masks = np.uint64(0) - ones
    kept = np.empty((*np.broadcast_shapes(masks.shape, labels.shape[:-1]), 2), dtype=np.uint64)
    for word in range(2):
        np.bitwise_and(masks, labels[..., word], out=kept[..., word])
    return kept


def _flipped(labels: UInt64[ndarray, "*wires 2"], offset: UInt64[ndarray, "2"]) -> UInt64[ndarray, "*wires 2"]:
    """labels ^ offset."""
    flipped = np.empty_like(labels)
    for word in range(2):
        np.bitwise_xor(labels[..., word], offset[word], out=flipped[..., word])
    return flipped


def _tweaks(first: int, shape: tuple[int, ...]) -> UInt64[ndarray, "*gates"]:
    """first, first + 2, ...: the tweak of the garbler's half of each gate; the evaluator's half has the next one."""
    count = math.prod(shape)
    return np.arange(first, first + 2 * count, 2, dtype=np.uint64).reshape(shape)
