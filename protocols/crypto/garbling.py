"""Garbled gates: half gates with free exclusive or and point-and-permute, a batch of gates at a time.

Zahur, Rosulek & Evans 2015, "Two halves make a whole", figure 2: two ciphertexts per AND. A wire has the labels W and
W ^ R for 0 and 1, R being the garbler's secret with its lowest bit set, so that a label's lowest bit is the value under
a random mask (Kolesnikov & Schneider 2008 for the exclusive or, Beaver, Micali & Rogaway 1990 for the bit). The
evaluator holds one label per wire. Labels are hashed as in hashing.py; each half gate has its own tweak.

Ciphertexts are sent in frames of FRAME_BYTES as they are made, so neither side ever holds all tables of a circuit, and
the evaluator works while the garbler garbles.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Bool, UInt64
from numpy import ndarray

from protocols.crypto.channel import Channel
from protocols.crypto.hashing import LabelHash
from protocols.crypto.wire_arrays import receive

LABEL_BYTES = 16
# Two ciphertexts of one AND gate.
GATE_BYTES = 2 * LABEL_BYTES
FRAME_BYTES = 2**20


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
        while len(self._pending) >= FRAME_BYTES:
            self._channel.send(bytes(self._pending[:FRAME_BYTES]))
            del self._pending[:FRAME_BYTES]

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
            frame = receive(self._channel, min(FRAME_BYTES, self._coming), "a frame of garbled tables")
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
