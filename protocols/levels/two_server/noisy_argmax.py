"""The servers' two-party computation of noisy labels from their shares of the counts.

Each server has added its own noise to its own share. The guardian garbles, the coordinator evaluates. The evaluator
learns the labels, because it gets them only through gates that the other side made: a coordinator that garbled could
compute any function of the counts in place of the label and read it from the guardian's answer. As evaluator it can
compute only the agreed outputs. Both servers are semi-honest and do not collude.

    coordinator -> guardian   its point of the base transfers, digest of the sizes
    guardian -> coordinator   its points, key of the hash, seed of its own inputs' active labels
    per chunk of queries:
      coordinator -> guardian   the extension matrix of its input bits
      guardian -> coordinator   garbled tables in frames; the masks of the outputs
    coordinator -> guardian   the labels of the pass bits, one per query

The guardian learns the pass bits from wire labels that only an evaluation gives, so the coordinator cannot claim
others. A guardian that garbles another circuit could flip labels, or learn another bit per query in place of the pass
bit; a server that shifts its share changes counts. Authenticated garbling over MAC'd shares would prevent both; this
does not.

The sides never send at the same time, so a channel without buffers cannot deadlock. `source` must give fresh bytes in
every attempt, because they hide the inputs of one attempt only. A retry with the same shares and noise gives the same
labels.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Int64, UInt32, UInt64
from numpy import ndarray

from protocols.crypto.channel import Channel
from protocols.crypto.circuit import OutcomeWires, ThresholdTest, conjunctions_a_query, noisy_argmax
from protocols.crypto.counting_ring import LIMIT
from protocols.crypto.field import BITS, P, from_integers, plus
from protocols.crypto.garbling import LABEL_BYTES, Evaluator, Garbler, TableReader, TableWriter, chosen, colours
from protocols.crypto.hashing import KEY_BYTES, LabelHash
from protocols.crypto.oblivious_transfer import (
    COLUMNS,
    POINT_BYTES,
    BaseReceiver,
    BaseSender,
    CorrelatedReceiver,
    CorrelatedSender,
    bits_of,
)
from protocols.crypto.prg_chacha import SEED_BYTES, derived_key, keystream, next_bytes
from protocols.crypto.randomness import RandomSource
from protocols.crypto.wire_arrays import receive
from protocols.errors import InvalidInput, MalformedMessage
from protocols.votes import ABSTAIN

# Classes times queries of a chunk: about 60 MB of labels.
_CHUNK_CELLS = 16_384


def coordinator_side(
    channel: Channel,
    share: UInt32[ndarray, "queries classes"],
    *,
    label_noise: Int64[ndarray, "queries classes"],
    threshold_noise: Int64[ndarray, " queries"] | None,
    threshold: int | None,
    offsets: Int64[ndarray, "queries classes"] | None,
    total_units: int,
    source: RandomSource,
) -> Int64[ndarray, " queries"]:
    """The labels: class ids, ABSTAIN where a query did not pass the threshold.

    share: of the counts in units; label_noise: this server's full noise in units; threshold: T S, or None for plain
    GNMax, where every query passes; threshold_noise: this server's full noise for the threshold in units, or None if
    the noisy counts whose argmax is taken are compared with it; offsets: what an interactive mechanism subtracts from
    each count before a threshold with noise of its own, which only the coordinator needs to know; total_units: as given
    to `check_ring`, which must have passed. Raises InvalidInput, MalformedMessage, ChannelClosed: then nothing was
    released by this side.
    """
    test = _test(threshold is not None, threshold_noise)
    if offsets is not None and test is not ThresholdTest.APART:
        raise InvalidInput("offsets without a threshold's noise; allowed: offsets None, or a threshold with noise")
    if not 0 <= total_units < LIMIT:
        raise InvalidInput(f"total_units = {total_units}; allowed: 0 to {LIMIT - 1}")
    # Centred, so that counts with noise lie in [0, 2^30) modulo p; a winner that is tested, so that T S is at 2^29.
    centre = threshold if threshold is not None and threshold_noise is None else total_units // 2
    needed = np.zeros(share.shape, dtype=np.int64) if offsets is None else offsets
    above = None if threshold is None or threshold_noise is None else _above(share, threshold_noise, needed + threshold)
    own = _inputs(share, label_noise, centre - 2**29, above)
    sizes = _Sizes(share.shape, test)
    base = BaseSender(source)
    channel.send(base.message + sizes.digest)
    answer = receive(channel, COLUMNS * POINT_BYTES + KEY_BYTES + SEED_BYTES, "the guardian's base transfers")
    points, key, seed = np.split(np.frombuffer(answer, np.uint8), [-KEY_BYTES - SEED_BYTES, -SEED_BYTES])
    transfers = CorrelatedReceiver(base.keys(points.tobytes()))
    guardians = _ActiveLabels(seed.tobytes())
    hashing, tweak = LabelHash(key.tobytes()), 0
    passed, labels = np.ones(sizes.queries, dtype=np.bool_), np.zeros(sizes.queries, dtype=np.int64)
    proofs = np.zeros((sizes.queries, 2), dtype=np.uint64)
    for at in sizes.chunks():
        bits = _bits(own[:, at])
        active, message = transfers.extend(bits.reshape(-1))
        channel.send(message)
        gates = Evaluator(hashing, TableReader(channel, sizes.conjunctions * bits.shape[-1]), tweak=tweak)
        found = noisy_argmax(
            gates, active.reshape(*bits.shape, 2), guardians.take(bits.shape), classes=sizes.classes,
            test=sizes.test,
        )  # fmt: skip
        tweak = gates.tweak
        opened = _opened(found, receive(channel, sizes.mask_bytes(bits.shape[-1]), "the masks of the outputs"))
        if found.passed is not None:
            passed[at] = opened[-1]
            proofs[at] = found.passed
            opened = opened[:-1]
        labels[at] = (opened.astype(np.int64) << np.arange(len(opened))[:, None]).sum(axis=0)
    if (labels >= sizes.classes).any():
        raise MalformedMessage(f"a label is not a class; allowed: below {sizes.classes}")
    if sizes.test:
        channel.send(proofs.astype("<u8").tobytes())
    return np.where(passed, labels, ABSTAIN)


def guardian_side(
    channel: Channel,
    share: UInt32[ndarray, "queries classes"],
    *,
    label_noise: Int64[ndarray, "queries classes"],
    threshold_noise: Int64[ndarray, " queries"] | None,
    threshold: bool,
    source: RandomSource,
) -> Bool[ndarray, " queries"]:
    """Which queries passed; as `coordinator_side`, for the guardian, which learns no label."""
    test, nothing = _test(threshold, threshold_noise), np.zeros(share.shape, dtype=np.int64)
    above = _above(share, threshold_noise, nothing) if threshold and threshold_noise is not None else None
    own = _inputs(share, label_noise, 0, above)
    sizes = _Sizes(share.shape, test)
    offset = np.frombuffer(source(LABEL_BYTES), dtype="<u8").astype(np.uint64) | np.array([1, 0], dtype=np.uint64)
    question = receive(channel, POINT_BYTES + len(sizes.digest), "the coordinator's base transfers")
    if question[POINT_BYTES:] != sizes.digest:
        raise MalformedMessage("the servers differ in queries, classes or what is compared with a threshold")
    base = BaseReceiver(question[:POINT_BYTES], bits_of(offset), source)
    key, seed = source(KEY_BYTES), source(SEED_BYTES)
    channel.send(base.message + key + seed)
    transfers = CorrelatedSender(bits_of(offset), base.keys)
    actives = _ActiveLabels(seed)
    writer = TableWriter(channel)
    gates = Garbler(offset, LabelHash(key), writer)
    zeros = np.zeros((sizes.queries, 2), dtype=np.uint64)
    for at in sizes.chunks():
        bits = _bits(own[:, at])
        message = receive(channel, transfers.message_bytes(bits.size), "the coordinator's extension matrix")
        coordinators = transfers.extend(message, bits.size).reshape(*bits.shape, 2)
        mine = actives.take(bits.shape) ^ chosen(bits, offset)
        found = noisy_argmax(gates, coordinators, mine, classes=sizes.classes, test=sizes.test)
        writer.flush()
        channel.send(_masks(found))
        if found.passed is not None:
            zeros[at] = found.passed
    if not sizes.test:
        return np.ones(sizes.queries, dtype=np.bool_)
    answer = receive(channel, sizes.queries * LABEL_BYTES, "the labels of the pass bits")
    return _verified(answer, zeros, offset)


class _Sizes:
    """The sizes that both servers must agree on, and what follows from them."""

    def __init__(self, shape: tuple[int, ...], test: ThresholdTest) -> None:
        self.queries, self.classes = shape
        self.test = test
        if self.classes < 2:
            raise InvalidInput(f"classes = {self.classes}; allowed: 2 or more")
        self.conjunctions = conjunctions_a_query(classes=self.classes, test=test)
        self.outputs = (self.classes - 1).bit_length() + (test is not ThresholdTest.NONE)
        self.digest = derived_key("noisy argmax", np.array([*shape, test], dtype="<i8").tobytes())

    def chunks(self) -> Iterator[slice]:
        step = max(1, _CHUNK_CELLS // self.classes)
        for start in range(0, self.queries, step):
            yield slice(start, min(start + step, self.queries))

    def mask_bytes(self, queries: int) -> int:
        return (self.outputs * queries + 7) // 8


class _ActiveLabels:
    """The active labels of the guardian's inputs: random and known to both, so only a seed is sent.

    The label of zero follows from them and from the guardian's bit, which only the guardian knows.
    """

    def __init__(self, seed: bytes) -> None:
        self._stream = keystream(derived_key("active labels", seed))

    def take(self, shape: tuple[int, ...]) -> UInt64[ndarray, "*wires 2"]:
        count = int(np.prod(shape, dtype=np.int64))
        return next_bytes(self._stream, LABEL_BYTES * count).view("<u8").astype(np.uint64).reshape(*shape, 2)


def _test(threshold: bool, threshold_noise: Int64[ndarray, " queries"] | None) -> ThresholdTest:
    """What a study's threshold is compared with. threshold: whether there is one."""
    if not threshold:
        return ThresholdTest.NONE
    return ThresholdTest.WINNER if threshold_noise is None else ThresholdTest.APART


def _inputs(
    share: UInt32[ndarray, "queries classes"],
    label_noise: Int64[ndarray, "queries classes"],
    lowest: int,
    above: UInt32[ndarray, "queries classes"] | None,
) -> UInt32[ndarray, "rows queries"]:
    """A server's shares of the circuit's numbers: of the threshold, then, doubled, of the argmax."""
    if share.size and int(share.max()) >= P:
        raise InvalidInput(f"a share holds {P} or more; allowed: below {P}")
    if label_noise.shape != share.shape:
        raise InvalidInput(f"label noise of shape {label_noise.shape}; expected: {share.shape}")
    noisy = plus(share, from_integers(label_noise - lowest))
    doubled = plus(noisy, noisy).T
    return doubled if above is None else np.concatenate([above.T, doubled])


def _above(
    share: UInt32[ndarray, "queries classes"],
    threshold_noise: Int64[ndarray, " queries"],
    needed: Int64[ndarray, "queries classes"],
) -> UInt32[ndarray, "queries classes"]:
    """A server's shares of how far counts with the threshold's noise exceed what is needed."""
    if threshold_noise.shape != share.shape[:1] or needed.shape != share.shape:
        raise InvalidInput(f"a threshold needs noise for {len(share)} queries and offsets of shape {share.shape}")
    return plus(share, from_integers(threshold_noise[:, None] - needed))


def _bits(numbers: UInt32[ndarray, "rows queries"]) -> Bool[ndarray, "31 rows queries"]:
    return ((numbers >> np.arange(BITS, dtype=np.uint32)[:, None, None]) & np.uint32(1)).astype(np.bool_)


def _outputs(found: OutcomeWires) -> UInt64[ndarray, "outputs queries 2"]:
    """The label's wires, and after them the pass bit's."""
    if found.passed is None:
        return found.label
    return np.concatenate([found.label, found.passed[None]])


def _masks(zeros: OutcomeWires) -> bytes:
    return np.packbits(colours(_outputs(zeros)).reshape(-1)).tobytes()


def _opened(active: OutcomeWires, masks: bytes) -> Bool[ndarray, "outputs queries"]:
    seen = colours(_outputs(active))
    return seen ^ np.unpackbits(np.frombuffer(masks, np.uint8), count=seen.size).astype(np.bool_).reshape(seen.shape)


def _verified(
    answer: bytes, zeros: UInt64[ndarray, "queries 2"], offset: UInt64[ndarray, "2"]
) -> Bool[ndarray, " queries"]:
    """The pass bits that the labels stand for. Raises MalformedMessage for a label of neither."""
    labels = np.frombuffer(answer, dtype="<u8").astype(np.uint64).reshape(-1, 2)
    refused, passed = (labels == zeros).all(axis=1), (labels == zeros ^ offset).all(axis=1)
    if not (refused | passed).all():
        raise MalformedMessage("the coordinator returned a label that the circuit does not have")
    return passed
