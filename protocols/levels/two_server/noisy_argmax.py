"""The noisy argmax of shared counts by a garbled circuit, and macs of the numbers that enter it.

Macs of the numbers whose bits enter a circuit, out of the same transfers by which they enter.

A wire's bit b entered by a correlated transfer: the evaluator has L = K ^ b D, the garbler K and its offset D. With H a
hash into F_p, the garbler sends c = H(K) - H(K ^ D) + 2^k alpha for the bit of weight 2^k; the evaluator computes H(L)
+ b c = H(K) + b 2^k alpha. Added up over the bits of a number d, the evaluator holds alpha d + sum H(K), and the
garbler, which knows alpha and all K, the key sum H(K): macs as in linear_macs.py, with the sign of the mac reversed.

Then d = 2 (x + noise) + a public number may be compared with what the input check bound (circuit_inputs.py): both sides
compute what the evaluator's macs leave over, and agreement.py compares it by a test that tells them only whether it is
equal. A garbler that sends another c gets an evaluator with b = 1 to hold another mac: if it guessed the bits of all
such c it goes on, and otherwise the batch ends. So it learns one bit of its choice about the evaluator's input, for the
price of a batch in both logs, as in dual execution itself.

What a server holds between the evaluation of the circuits and the opening of their outputs; it is noted before.

The servers' two-party computation of noisy labels from their shares of the counts, evaluated twice.

Each server has added its own noise to its own share, and both are bound (circuit_inputs.py). The guardian garbles a
circuit that the coordinator evaluates, and the coordinator garbles the same circuit for the guardian: dual execution
(Mohassel & Franklin 2006, "Efficiency tradeoffs for malicious two-party computation"; Huang, Katz & Evans 2012,
"Quid-pro-quo-tocols"). A server that garbles another circuit, or other tables, spoils only what the other server
evaluates, never its own result; and agreement.py compares both, before anything is released, so that it shows. Whoever
evaluates gets its inputs by checked correlated transfers (oblivious_transfer.py), one label for each of its bits and no
other; from the same transfers follow macs of what it entered (above), which agreement.py compares with those of
what was bound.

    guardian -> coordinator   digest of the sizes; its point of the base transfers
    coordinator -> guardian   the same; its answer to the guardian's point; key of the hash, seed of active labels
    guardian -> coordinator   its answer; key and seed
    per chunk of queries:
      coordinator -> guardian   matrix of its input bits
      guardian -> coordinator   challenge; matrix of its input bits
      coordinator -> guardian   answer to the challenge; challenge
      guardian -> coordinator   answer to the challenge; what makes macs; in frames, the tables of its circuit
      coordinator -> guardian   what makes macs; the tables of its circuit, in frames

Nothing can be read from that: labels of outputs mean nothing without the masks that agreement.py exchanges (half gates
are oblivious; Zahur, Rosulek & Evans 2015, theorem 1). So an evaluation that is broken off here may be repeated, with
other labels of wires. A retry with the same shares and noise gives the same labels of queries.

Where the guardian must not learn labels (hidden queries), the coordinator adds random bits to the label's bits within
both circuits.

The sides never send at the same time, so a channel without buffers cannot deadlock. `source` must give fresh bytes in
every attempt, because they hide the inputs of one attempt only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Bool, UInt32, UInt64
from numpy import ndarray

from protocols.crypto.channel import Channel, elements, receive
from protocols.crypto.edwards import POINT_BYTES
from protocols.crypto.field import BITS, minus, partly_reduced, plus, reduced, times
from protocols.crypto.garbling import (
    CIPHER_BYTES,
    LABEL_BYTES,
    Evaluator,
    Garbler,
    Gates,
    LabelHash,
    TableReader,
    TableWriter,
    chosen,
    colours,
    noisy_argmax,
)
from protocols.crypto.oblivious_transfer import (
    ANSWER_BYTES,
    BASE_ANSWER_BYTES,
    CHALLENGE_BYTES,
    BaseReceiver,
    BaseSender,
    CorrelatedReceiver,
    CorrelatedSender,
    bits_of,
)
from protocols.crypto.prg import SEED_BYTES, derived_key, keystream, next_bytes
from protocols.crypto.randomness import RandomSource
from protocols.errors import MalformedMessage
from protocols.levels.two_server.circuit_inputs import CircuitInputs, Sizes
from protocols.wire.messages import decode_arrays, encode_arrays

# Tweaks of this use of the hash; gates count from 0.
_FIRST_TWEAK = 1 << 63
_BIT_VALUES = np.uint32(1) << np.arange(BITS, dtype=np.uint32)


def garbler_tags(
    zeros: UInt64[ndarray, "31 *numbers 2"], offset: UInt64[ndarray, "2"], alphas: UInt32[ndarray, " repetitions"],
    hashing: LabelHash, *, first: int,
) -> tuple[UInt32[ndarray, "repetitions *numbers"], bytes]:  # fmt: skip
    """The keys of the numbers, and the message to the evaluator. first: how many numbers of the session precede."""
    shape = zeros.shape[1:-1]
    keys = np.zeros((len(alphas), *shape), dtype=np.uint32)
    message = np.empty((len(alphas), BITS, *shape), dtype="<u4")
    both = hashing.permuted(zeros), hashing.permuted(zeros ^ offset)
    for repetition, alpha in enumerate(alphas):
        tweaks = _tweaks(repetition, shape, first)
        of_zero, of_one = (_field(hashing.finished(each, tweaks)) for each in both)
        powers = times(_BIT_VALUES, np.full(BITS, alpha, dtype=np.uint32))
        message[repetition] = plus(minus(of_zero, of_one), powers.reshape(BITS, *(1,) * len(shape)))
        keys[repetition] = _added(of_zero)
    return keys, message.tobytes()


def evaluator_tags(
    active: UInt64[ndarray, "31 *numbers 2"], bits: Bool[ndarray, "31 *numbers"], message: bytes, hashing: LabelHash,
    *, first: int, repetitions: int,
) -> UInt32[ndarray, "repetitions *numbers"]:  # fmt: skip
    """alpha d + key of each number. message: the garbler's. Raises MalformedMessage unless it is of field elements."""
    permuted = hashing.permuted(active)
    tags = []
    for repetition, sent in enumerate(elements(message, (repetitions, *bits.shape))):
        own = _field(hashing.finished(permuted, _tweaks(repetition, bits.shape[1:], first)))
        tags.append(_added(plus(own, sent * bits.astype(np.uint32))))
    return np.stack(tags)


def _tweaks(repetition: int, shape: tuple[int, ...], first: int) -> UInt64[ndarray, "31 *numbers"]:
    count = int(np.prod(shape))
    numbers = first + np.arange(count, dtype=np.uint64).reshape(shape)
    bits = np.arange(BITS, dtype=np.uint64).reshape(BITS, *(1,) * len(shape))
    return np.uint64(_FIRST_TWEAK) + (numbers * np.uint64(BITS) + bits) * np.uint64(4) + np.uint64(repetition)


def _field(hashes: UInt64[ndarray, "*wires 2"]) -> UInt32[ndarray, "*wires"]:
    """128 bits modulo p: 2^64 is 4. Within 2^-97 of uniform."""
    return reduced(partly_reduced(hashes[..., 0]) + (partly_reduced(hashes[..., 1]) << np.uint64(2)))


def _added(values: UInt32[ndarray, "31 *numbers"]) -> UInt32[ndarray, "*numbers"]:
    return reduced(np.asarray(values.sum(axis=0, dtype=np.uint64)))


@dataclass(frozen=True, eq=False)
class Evaluated:
    """The labels of the outputs of two circuits: one that this server evaluated, and one that it garbled.

    Outputs are the bits of the label, lowest first, and after them the pass bit, if there is a threshold. context: a
    hash of the messages with which the evaluation began; active: labels of the circuit that the other garbled; zeros:
    labels of zero of the own circuit, whose labels of one are zeros ^ offset; mask: what the coordinator added to the
    label's bits, if it hid them; seed: 32 secret bytes for the test of equality; bound: what is left of the macs of the
    coordinator's inputs and of the guardian's, the same on both servers if what entered is what was bound.
    """

    context: bytes
    active: UInt64[ndarray, "outputs queries 2"] = field(repr=False)
    zeros: UInt64[ndarray, "outputs queries 2"] = field(repr=False)
    offset: UInt64[ndarray, "2"] = field(repr=False)
    mask: Bool[ndarray, "label_bits queries"] | None = field(repr=False)
    seed: bytes = field(repr=False)
    bound: tuple[bytes, bytes] = field(repr=False)

    @property
    def masks(self) -> bytes:
        """What tells the other server the values of the outputs of the circuit that this one garbled."""
        return np.packbits(colours(self.zeros).reshape(-1)).tobytes()

    def decoded(self, masks: bytes) -> Bool[ndarray, "outputs queries"]:
        """The outputs of the circuit that this server evaluated; masks: the other server's."""
        seen = colours(self.active)
        return seen ^ np.unpackbits(np.frombuffer(masks, np.uint8), count=seen.size).astype(np.bool_).reshape(
            seen.shape
        )

    def secret(self, outputs: Bool[ndarray, "outputs queries"], *, garbled: Literal["first", "second"]) -> bytes:
        """The same on both servers only if both hold labels of these outputs in both circuits, of the bound inputs.

        garbled: which circuit this server garbled: the guardian's is the first.
        """
        own = self.zeros ^ chosen(outputs, self.offset)
        both = (own, self.active) if garbled == "first" else (self.active, own)
        labels = (each.astype("<u8").tobytes() for each in both)
        return derived_key("agreement", *labels, outputs.tobytes(), *self.bound)

    def encoded(self) -> bytes:
        """For a note."""
        mask = np.zeros((0, 0), np.bool_) if self.mask is None else self.mask
        labels = (each.astype("<u8").view(np.uint8) for each in (self.active, self.zeros, self.offset))
        ends = (np.frombuffer(each, np.uint8) for each in (self.context, self.seed, *self.bound))
        return encode_arrays((*labels, mask, *ends))

    @classmethod
    def read(cls, note: bytes) -> Evaluated:
        """What `encoded` wrote."""
        active, zeros, offset, mask, *ends = decode_arrays(note)
        context, seed, one, other = (each.tobytes() for each in ends)
        active, zeros, offset = (
            np.ascontiguousarray(each).view("<u8").astype(np.uint64) for each in (active, zeros, offset)
        )
        return cls(context, active, zeros, offset, mask if mask.size else None, seed, (one, other))


_DIGEST_BYTES = 32
_HELLO_BYTES = BASE_ANSWER_BYTES + CIPHER_BYTES + SEED_BYTES


def coordinator_evaluates(channel: Channel, inputs: CircuitInputs, *, source: RandomSource) -> Evaluated:
    """What the coordinator holds after both evaluations, from which agreement.py opens the labels.

    Raises MalformedMessage and ChannelClosed: then nothing was released by this side.
    """
    sizes = inputs.sizes
    offer = _sized(receive(channel, _DIGEST_BYTES + POINT_BYTES, "the guardian's base transfers"), sizes)
    mine, base = _Garbling(channel, offer[_DIGEST_BYTES:], source), BaseSender(source)
    answer = sizes.digest + base.message + mine.hello
    channel.send(answer)
    hello = receive(channel, _HELLO_BYTES, "the guardian's base transfers")
    theirs = _Evaluating(base, hello, source)
    mask = _mask(sizes, source) if sizes.masked else None
    outputs = _Outputs(derived_key("evaluation", offer, answer, hello), mine.offset, mask, source)
    tags = _Tags(inputs)
    for at in sizes.chunks():
        bits = inputs.bits(at)
        masks = np.zeros((0, bits.shape[-1]), dtype=np.bool_) if mask is None else mask[:, at]
        labels, message = theirs.transfers.extend(np.concatenate([bits.reshape(-1), masks.reshape(-1)]))
        channel.send(message)
        answer = receive(channel, CHALLENGE_BYTES + mine.transfers.message_bytes(bits.size), "the guardian's transfers")
        mine.transfers.receive(answer[CHALLENGE_BYTES:], bits.size)
        challenge = source(CHALLENGE_BYTES)
        channel.send(theirs.transfers.answer(answer[:CHALLENGE_BYTES]) + challenge)
        zeros = mine.transfers.checked(challenge, receive(channel, ANSWER_BYTES, "the answer to the challenge"))
        zeros = zeros.reshape(*bits.shape, 2)
        active, hidden = labels[: bits.size].reshape(*bits.shape, 2), labels[bits.size :].reshape(*masks.shape, 2)
        tags.evaluated(channel, active, bits, theirs.hashing)
        gates = theirs.gates(channel, sizes.conjunctions * bits.shape[-1])
        outputs.active.append(_computed(gates, active, theirs.others(bits.shape), hidden, sizes))
        theirs.tweak = gates.tweak
        tags.garbled(channel, zeros, mine)
        own, hidden = mine.own(bits), mine.own(masks)
        outputs.zeros.append(_computed(mine.gates, own, zeros, hidden, sizes))
        mine.writer.flush()
    return outputs.evaluated(sizes, tags.secrets)


def guardian_evaluates(channel: Channel, inputs: CircuitInputs, *, source: RandomSource) -> Evaluated:
    """As `coordinator_evaluates`, for the guardian."""
    sizes = inputs.sizes
    base = BaseSender(source)
    offer = sizes.digest + base.message
    channel.send(offer)
    answer = receive(channel, _DIGEST_BYTES + POINT_BYTES + _HELLO_BYTES, "the coordinator's base transfers")
    at_point = _sized(answer, sizes)[_DIGEST_BYTES:]
    theirs = _Evaluating(base, at_point[POINT_BYTES:], source)
    mine = _Garbling(channel, at_point[:POINT_BYTES], source)
    channel.send(mine.hello)
    outputs = _Outputs(derived_key("evaluation", offer, answer, mine.hello), mine.offset, None, source)
    tags = _Tags(inputs)
    for at in sizes.chunks():
        bits = inputs.bits(at)
        masks = (sizes.label_bits if sizes.masked else 0, bits.shape[-1])
        count = bits.size + masks[0] * masks[1]
        message = receive(channel, mine.transfers.message_bytes(count), "the coordinator's transfers")
        mine.transfers.receive(message, count)
        challenge = source(CHALLENGE_BYTES)
        labels, message = theirs.transfers.extend(bits.reshape(-1))
        channel.send(challenge + message)
        said = receive(channel, ANSWER_BYTES + CHALLENGE_BYTES, "the answer to the challenge")
        both = mine.transfers.checked(challenge, said[:ANSWER_BYTES])
        channel.send(theirs.transfers.answer(said[ANSWER_BYTES:]))
        active, zeros = labels.reshape(*bits.shape, 2), both[: bits.size].reshape(*bits.shape, 2)
        hidden = both[bits.size :].reshape(*masks, 2)
        tags.garbled(channel, zeros, mine)
        outputs.zeros.append(_computed(mine.gates, zeros, mine.own(bits), hidden, sizes))
        mine.writer.flush()
        tags.evaluated(channel, active, bits, theirs.hashing)
        gates = theirs.gates(channel, sizes.conjunctions * bits.shape[-1])
        own, hidden = theirs.others(bits.shape), theirs.others(masks)
        outputs.active.append(_computed(gates, own, active, hidden, sizes))
        theirs.tweak = gates.tweak
    return outputs.evaluated(sizes, tags.secrets[::-1])


class _Garbling:
    """The circuit that this server garbles. `hello`: what the evaluator must know first."""

    def __init__(self, channel: Channel, offer: bytes, source: RandomSource) -> None:
        self.offset = np.frombuffer(source(LABEL_BYTES), dtype="<u8").astype(np.uint64) | np.array([1, 0], np.uint64)
        base = BaseReceiver(offer, bits_of(self.offset), source)
        key, seed = source(CIPHER_BYTES), source(SEED_BYTES)
        self.hello = base.message + key + seed
        self.transfers = CorrelatedSender(bits_of(self.offset), base.keys)
        self.writer = TableWriter(channel)
        self.hashing = LabelHash(key)
        self.gates = Garbler(self.offset, self.hashing, self.writer)
        self._actives = _ActiveLabels(seed)

    def own(self, bits: Bool[ndarray, "*wires"]) -> UInt64[ndarray, "*wires 2"]:
        """The labels of zero of this server's own bits."""
        return self._actives.take(bits.shape) ^ chosen(bits, self.offset)


class _Evaluating:
    """The circuit that this server evaluates."""

    def __init__(self, base: BaseSender, hello: bytes, source: RandomSource) -> None:
        points, key, seed = np.split(
            np.frombuffer(hello, np.uint8), [BASE_ANSWER_BYTES, BASE_ANSWER_BYTES + CIPHER_BYTES]
        )
        self.transfers = CorrelatedReceiver(base.keys(points.tobytes()), source)
        self.hashing, self.tweak = LabelHash(key.tobytes()), 0
        self._actives = _ActiveLabels(seed.tobytes())

    def others(self, shape: tuple[int, ...]) -> UInt64[ndarray, "*wires 2"]:
        """The active labels of the garbler's bits."""
        return self._actives.take(shape)

    def gates(self, channel: Channel, conjunctions: int) -> Evaluator:
        """The gates of a chunk with so many ANDs."""
        return Evaluator(self.hashing, TableReader(channel, conjunctions), tweak=self.tweak)


class _Tags:
    """Macs of the numbers that entered, chunk by chunk."""

    def __init__(self, inputs: CircuitInputs) -> None:
        self._inputs = inputs
        nothing = inputs.macs[:, :, :0]
        self._tags: list[ndarray] = [nothing]
        self._keys: list[ndarray] = [nothing]
        self._first = [0, 0]

    def evaluated(self, channel: Channel, active: ndarray, bits: ndarray, hashing: LabelHash) -> None:
        """Takes the garbler's message about a chunk of this server's own numbers."""
        repetitions, first = len(self._inputs.alphas), self._counted(0, bits[0].size)
        message = receive(channel, 4 * repetitions * BITS * bits[0].size, "what makes macs")
        self._tags.append(evaluator_tags(active, bits, message, hashing, first=first, repetitions=repetitions))

    def garbled(self, channel: Channel, zeros: ndarray, mine: _Garbling) -> None:
        """Sends the message about a chunk of the other's numbers."""
        first = self._counted(1, zeros[0, ..., 0].size)
        keys, message = garbler_tags(zeros, mine.offset, self._inputs.alphas, mine.hashing, first=first)
        channel.send(message)
        self._keys.append(keys)

    @property
    def secrets(self) -> tuple[bytes, bytes]:
        """What is left of the macs of the own numbers, and of the other's: see above."""
        inputs = self._inputs
        own = plus(np.concatenate(self._tags, axis=2), inputs.macs)
        return _hashed(own), _hashed(plus(np.concatenate(self._keys, axis=2), inputs.keys))

    def _counted(self, which: int, numbers: int) -> int:
        """How many numbers preceded."""
        self._first[which] += numbers
        return self._first[which] - numbers


def _hashed(values: UInt32[ndarray, "repetitions classes queries"]) -> bytes:
    return derived_key("inputs that entered", values.astype("<u4").tobytes())


class _Outputs:
    """The labels of outputs, chunk by chunk."""

    def __init__(
        self,
        context: bytes,
        offset: UInt64[ndarray, "2"],
        mask: Bool[ndarray, "label_bits queries"] | None,
        source: RandomSource,
    ) -> None:
        self.active: list[ndarray] = []
        self.zeros: list[ndarray] = []
        self._context, self._offset, self._mask, self._source = context, offset, mask, source

    def evaluated(self, sizes: Sizes, bound: tuple[bytes, bytes]) -> Evaluated:
        nothing = np.zeros((sizes.outputs, 0, 2), dtype=np.uint64)
        active, zeros = (np.concatenate([nothing, *each], axis=1) for each in (self.active, self.zeros))
        return Evaluated(self._context, active, zeros, self._offset, self._mask, self._source(32), bound)


class _ActiveLabels:
    """The active labels of the garbler's inputs: random and known to both, so only a seed is sent.

    The label of zero follows from them and from the garbler's bit, which only the garbler knows.
    """

    def __init__(self, seed: bytes) -> None:
        self._stream = keystream(derived_key("active labels", seed))

    def take(self, shape: tuple[int, ...]) -> UInt64[ndarray, "*wires 2"]:
        count = int(np.prod(shape, dtype=np.int64))
        return next_bytes(self._stream, LABEL_BYTES * count).view("<u8").astype(np.uint64).reshape(*shape, 2)


def _computed(
    gates: Gates, coordinators: ndarray, guardians: ndarray, masks: ndarray, sizes: Sizes
) -> UInt64[ndarray, "outputs queries 2"]:
    """The wires of the label, masked where it is hidden, and after them the pass bit's."""
    found = noisy_argmax(gates, coordinators, guardians, threshold=sizes.threshold)
    label = found.label ^ masks if sizes.masked else found.label
    return label if found.passed is None else np.concatenate([label, found.passed[None]])


def _mask(sizes: Sizes, source: RandomSource) -> Bool[ndarray, "label_bits queries"]:
    octets = np.frombuffer(source((sizes.label_bits * sizes.queries + 7) // 8), dtype=np.uint8)
    bits = np.unpackbits(octets, count=sizes.label_bits * sizes.queries).astype(np.bool_)
    return bits.reshape(sizes.label_bits, sizes.queries)


def _sized(message: bytes, sizes: Sizes) -> bytes:
    """The message. Raises MalformedMessage unless it begins with the digest of the sizes."""
    if message[:_DIGEST_BYTES] != sizes.digest:
        raise MalformedMessage("the servers differ in queries, classes or what is compared with a threshold")
    return message
