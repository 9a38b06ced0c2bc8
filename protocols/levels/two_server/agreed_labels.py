"""The end of the coordinator's conversation about a batch: labels on which both servers agree, and what signs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from jaxtyping import Int64
from numpy import ndarray

from protocols.crypto.channel import Channel
from protocols.crypto.randomness import RandomSource
from protocols.errors import MalformedMessage
from protocols.levels.two_server.agreement import coordinator_opens
from protocols.levels.two_server.batch_notes import BatchNotes
from protocols.levels.two_server.circuit_inputs import CircuitInputs, Sizes
from protocols.levels.two_server.conversation import check_bytes, receive
from protocols.levels.two_server.noisy_argmax import coordinator_evaluates
from protocols.levels.two_server.signed_labels import SignedLabels
from protocols.levels.two_server.statement import SIGNATURE_BYTES
from protocols.study.study import Study


@dataclass(frozen=True, eq=False)
class AgreedLabels:
    """labels: class ids or ABSTAIN; statement: the guardian's, not yet verified; head: of its log."""

    labels: Int64[ndarray, " queries"] = field(repr=False)
    statement: bytes = field(repr=False)
    head: ndarray = field(repr=False)


def coordinator_labels(
    channel: Channel,
    study: Study,
    sizes: Sizes,
    enter: Callable[[], CircuitInputs],
    *,
    ids: Sequence[int],
    notes: BatchNotes,
    source: RandomSource,
) -> AgreedLabels:
    """The labels of the queries with these positions in the pool. The guardian's signature of them is noted.

    enter: binds both servers' inputs over the channel; called unless an evaluation is to be opened.

    Raises as `coordinator_opens` does, and Refused("labels_differ") if the guardian signed others; each is logged.
    """
    with notes.logged_break():
        opened = coordinator_opens(
            channel,
            sizes,
            notes=notes,
            evaluate=lambda: coordinator_evaluates(channel, enter(), source=source),
        )
        answer = receive(channel)
        if len(answer) != 3:
            raise MalformedMessage(f"the guardian's outcome has {len(answer)} arrays; allowed: 3")
        signed = SignedLabels(opened.signed, check_bytes(answer[1], SIGNATURE_BYTES))
        signed.check(study, notes.request, ids)
    signed.note(notes.ledger, notes.request)
    return AgreedLabels(opened.labels, check_bytes(answer[0], answer[0].size), answer[2])
