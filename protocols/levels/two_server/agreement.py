"""The servers open the outputs of their two evaluations of a batch (noisy_argmax.py) and test whether they agree.

    guardian -> coordinator   whether it has an evaluation that is to be opened, and which
    ... if not, both evaluate, note what they hold, and the coordinator says that it did
    guardian -> coordinator   the masks of its circuit's outputs
    coordinator -> guardian   the masks of its circuit's outputs; first message of the test of equality
    guardian -> coordinator   second message of the test, with the guardian's tag
    coordinator -> guardian   the coordinator's tag

What is tested is a hash of the labels that stand for the opened outputs in *both* circuits. A server
knows the labels of other outputs in the circuit that it garbled, but in the one that it evaluated only those of the
outputs that its inputs give. So if the test passes, the honest server holds the outputs of the agreed circuit (Huang,
Katz & Evans 2012, theorem 1). If a server garbled another circuit, the honest one's result may be false and its hash
unknown to the other; then the test fails, and nothing was released. **One bit**, whether it passed, is all that a
malicious server learns beyond the outputs, and it may choose which: any predicate of the other's inputs that it can
garble, such as "the other's share of this count is even".

**One opening a batch.** A second one would give a second bit. So what is sent here follows from notes: the evaluation
is noted before the first mask is sent, and each first message of the other server is noted before it is answered.
After a stop the same messages are repeated, other ones are refused (`labels_differ`), and a batch that was opened is
never evaluated again. Honest servers lose nothing by a broken connection, wherever it breaks. Batches that
are opened and never settled are counted, before the bit is shown (batch_notes.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from hmac import compare_digest

import numpy as np
from jaxtyping import Bool, Int64
from numpy import ndarray

from protocols.crypto.channel import Channel, receive
from protocols.crypto.edwards import POINT_BYTES
from protocols.crypto.oblivious_transfer import TRANSFER_TAG_BYTES, EqualityTest
from protocols.errors import Refused
from protocols.levels.two_server.batch_notes import BatchNotes
from protocols.levels.two_server.circuit_inputs import Sizes
from protocols.levels.two_server.noisy_argmax import Evaluated
from protocols.refusals.code import Code
from protocols.votes import ABSTAIN
from protocols.wire.messages import decode_arrays, encode_arrays

_CONTEXT_BYTES = 32
_READY = b"evaluated"
_NOTHING = bytes(_CONTEXT_BYTES)
# Notes: what was evaluated; the other server's masks; its answer in the test; all of a finished comparison.
_EVALUATED, _MASKS, _ANSWER, _COMPARED = "evaluated", "masks", "answer", "compared"
# What a coordinator keeps until a batch is settled.
EVALUATION_NOTES = (_EVALUATED, _MASKS, _ANSWER)


@dataclass(frozen=True, eq=False)
class _Opened:
    """The outputs on which both servers agree.

    labels: class ids, ABSTAIN where a query did not pass the threshold; signed: the same as the guardian knows them:
    equal, unless the coordinator hid them, where numbers below 2^(bits of a label) stand in place of class ids.
    """

    labels: Int64[ndarray, " queries"] = field(repr=False)
    signed: Int64[ndarray, " queries"] = field(repr=False)


def coordinator_opens(
    channel: Channel, sizes: Sizes, *, notes: BatchNotes, evaluate: Callable[[], Evaluated]
) -> _Opened:
    """The labels, as soon as the guardian has shown that it holds the same.

    evaluate: evaluates the batch with the guardian over the channel; called unless an evaluation is to be opened.
    Raises Refused("labels_differ") if the guardian holds something else, or repeats itself otherwise than before;
    MalformedMessage, ChannelClosed, and what `evaluate` raises: then nothing was released.
    """
    context = receive(channel, _CONTEXT_BYTES, "the guardian's evaluation")
    if context == _NOTHING:
        if notes.noted(_MASKS) is not None:
            raise Refused(Code.LABELS_DIFFER, "the guardian has forgotten an evaluation that was opened")
        evaluated = evaluate()
        notes.replace(_EVALUATED, evaluated.encoded())
        channel.send(_READY)
    else:
        noted = notes.noted(_EVALUATED)
        if noted is None or (evaluated := Evaluated.read(noted)).context != context:
            raise Refused(Code.LABELS_DIFFER, "the guardian opens an evaluation of which this ledger does not know")
    masks = _first(notes, _MASKS, receive(channel, sizes.mask_bytes, "the masks of the outputs"))
    outputs = evaluated.decoded(masks)
    test = EqualityTest(
        evaluated.secret(outputs, garbled="second"), first=True, seed=evaluated.seed, context=evaluated.context
    )
    channel.send(evaluated.masks + test.message)
    answer = receive(channel, POINT_BYTES + TRANSFER_TAG_BYTES, "the test of equality")
    with notes.ledger.log.together():
        # What this server says from here on may tell the guardian whether the evaluations agree.
        notes.opened.count(notes.request)
        answer = _first(notes, _ANSWER, answer)
    tags = test.tags(answer[:POINT_BYTES])
    if not tags.confirmed_by(answer[POINT_BYTES:]):
        raise Refused(Code.LABELS_DIFFER, "the servers' two computations of the labels do not agree; none is released")
    channel.send(tags.own)
    return _opened(outputs, sizes, mask=evaluated.mask)


def guardian_opens(channel: Channel, sizes: Sizes, *, notes: BatchNotes, evaluate: Callable[[], Evaluated]) -> _Opened:
    """As `coordinator_opens`, for the guardian, which knows the labels as they are signed and no others."""
    compared = _Compared.noted(notes)
    if compared is not None:
        channel.send(compared.context)
        channel.send(compared.masks)
        question = receive(channel, sizes.mask_bytes + POINT_BYTES, "the masks of the outputs")
    else:
        evaluated = _evaluated(channel, notes, evaluate)
        question = receive(channel, sizes.mask_bytes + POINT_BYTES, "the masks of the outputs")
        compared = _Compared.of(evaluated, question)
        with notes.ledger.log.together():
            # The answer tells the coordinator whether the evaluations agree.
            notes.opened.count(notes.request)
            notes.note(_COMPARED, compared.encoded())
            notes.forget(_EVALUATED)
    if question != compared.question:
        raise Refused(Code.LABELS_DIFFER, "the coordinator opens the batch otherwise than before")
    channel.send(compared.answer)
    if not compare_digest(receive(channel, TRANSFER_TAG_BYTES, "the coordinator's tag"), compared.expected):
        raise Refused(Code.LABELS_DIFFER, "the servers' two computations of the labels do not agree; none is signed")
    return _opened(compared.outputs, sizes, mask=None)


def is_evaluated(notes: BatchNotes) -> bool:
    """Whether the guardian holds an evaluation that is to be opened, or was."""
    return any(notes.noted(kind) is not None for kind in (_EVALUATED, _COMPARED))


def _evaluated(channel: Channel, notes: BatchNotes, evaluate: Callable[[], Evaluated]) -> Evaluated:
    """The guardian's evaluation, an earlier one if it may have been opened; and its masks are sent."""
    noted = notes.noted(_EVALUATED)
    if noted is not None:
        evaluated = Evaluated.read(noted)
        channel.send(evaluated.context)
    else:
        channel.send(_NOTHING)
        evaluated = evaluate()
        receive(channel, len(_READY), "the end of the evaluation")
        with notes.ledger.log.together():
            encoded = evaluated.encoded()
            if notes.noted(_COMPARED) is not None or notes.note(_EVALUATED, encoded) != encoded:
                raise Refused(Code.LABELS_DIFFER, "another evaluation of the batch is to be opened, or was")
    channel.send(evaluated.masks)
    return evaluated


@dataclass(frozen=True, eq=False)
class _Compared:
    """What the guardian repeats, and expects, once the coordinator has opened the batch."""

    context: bytes
    masks: bytes = field(repr=False)
    question: bytes = field(repr=False)
    answer: bytes = field(repr=False)
    expected: bytes = field(repr=False)
    outputs: Bool[ndarray, "outputs queries"] = field(repr=False)

    @classmethod
    def of(cls, evaluated: Evaluated, question: bytes) -> _Compared:
        """Raises MalformedMessage if the question ends with no point."""
        outputs = evaluated.decoded(question[:-POINT_BYTES])
        secret = evaluated.secret(outputs, garbled="first")
        test = EqualityTest(secret, first=False, seed=evaluated.seed, context=evaluated.context)
        tags = test.tags(question[-POINT_BYTES:])
        answer = test.message + tags.own
        return cls(evaluated.context, evaluated.masks, question, answer, tags.expected, outputs)

    def encoded(self) -> bytes:
        parts = (self.context, self.masks, self.question, self.answer, self.expected)
        return encode_arrays((*(np.frombuffer(each, np.uint8) for each in parts), self.outputs))

    @classmethod
    def noted(cls, notes: BatchNotes) -> _Compared | None:
        found = notes.noted(_COMPARED)
        if found is None:
            return None
        *parts, outputs = decode_arrays(found)
        context, masks, question, answer, expected = (each.tobytes() for each in parts)
        return cls(context, masks, question, answer, expected, outputs)


def _first(notes: BatchNotes, kind: str, message: bytes) -> bytes:
    """The message. Raises Refused("labels_differ") unless it is the first of its kind or the same again."""
    if notes.note(kind, message) != message:
        raise Refused(Code.LABELS_DIFFER, "the guardian opens the batch otherwise than before")
    return message


def _opened(
    outputs: Bool[ndarray, "outputs queries"], sizes: Sizes, *, mask: Bool[ndarray, "label_bits queries"] | None
) -> _Opened:
    label, passed = outputs[: sizes.label_bits], outputs[sizes.label_bits :].all(axis=0)
    signed, labels = (
        np.where(passed, (bits.astype(np.int64) << np.arange(len(bits))[:, None]).sum(axis=0), ABSTAIN)
        for bits in (label, label if mask is None else label ^ mask)
    )
    return _Opened(labels, signed)
