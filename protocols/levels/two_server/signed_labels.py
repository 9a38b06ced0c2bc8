"""The guardian's signature of a batch's labels, which it computed too: who has them can show that nobody changed them.

Where labels are hidden from the guardian, it signs the masked ones, and whoever knows the mask knows that the labels
are those that both servers computed.

The end of the coordinator's conversation about a batch: labels on which both servers agree, and what signs them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from jaxtyping import Int64
from numpy import ndarray

from protocols.crypto.channel import Channel
from protocols.crypto.prg import derived_key
from protocols.crypto.randomness import RandomSource
from protocols.errors import MalformedMessage, Refused
from protocols.ledger.ledger import Ledger
from protocols.levels.two_server.agreement import coordinator_opens
from protocols.levels.two_server.batch_notes import BatchNotes
from protocols.levels.two_server.circuit_inputs import CircuitInputs, Sizes
from protocols.levels.two_server.conversation import check_bytes, receive_arrays
from protocols.levels.two_server.noisy_argmax import coordinator_evaluates
from protocols.levels.two_server.statement import SIGNATURE_BYTES
from protocols.refusals.code import Code
from protocols.study.levels import guarded
from protocols.study.study import Study
from protocols.wire.messages import decode_arrays, encode_arrays

_SIGNED = "signed_labels"


def labels_statement(study: bytes, request: bytes, queries: Sequence[int], labels: Int64[ndarray, " queries"]) -> bytes:
    """What a guardian signs. queries: their positions in the pool; labels: class ids, ABSTAIN where refused; or masked
    ones."""
    listed = (np.array(each, dtype="<i8").tobytes() for each in (queries, labels))
    return b"conclave labels 1\n" + study + request + derived_key("labels", *listed)


@dataclass(frozen=True, eq=False)
class SignedLabels:
    """Labels of a request as a guardian signed them. labels: see Opened.signed."""

    labels: Int64[ndarray, " queries"] = field(repr=False)
    signature: bytes = field(repr=False)

    def check(self, study: Study, request: bytes, queries: Sequence[int]) -> None:
        """Raises Refused("labels_differ") unless the study's guardian signed these labels of the request's queries."""
        key = bytes.fromhex(guarded(study.confidentiality).signing_key)
        try:
            statement = labels_statement(study.digest, request, queries, self.labels)
            Ed25519PublicKey.from_public_bytes(key).verify(self.signature, statement)
        except InvalidSignature:
            raise Refused(Code.LABELS_DIFFER, "the guardian's signature is not of these labels") from None

    def note(self, ledger: Ledger, request: bytes) -> None:
        """Keeps them with the batch."""
        ledger.note(request, _SIGNED, encode_arrays((self.labels, np.frombuffer(self.signature, np.uint8))))


def signed_labels(ledger: Ledger, request: bytes) -> SignedLabels | None:
    """What the guardian signed of a batch, None if nothing was kept."""
    noted = ledger.noted(request, _SIGNED)
    if noted is None:
        return None
    labels, signature = decode_arrays(noted)
    return SignedLabels(labels, signature.tobytes())


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
            channel, sizes, notes=notes, evaluate=lambda: coordinator_evaluates(channel, enter(), source=source)
        )
        answer = receive_arrays(channel)
        if len(answer) != 3:
            raise MalformedMessage(f"the guardian's outcome has {len(answer)} arrays; allowed: 3")
        signed = SignedLabels(opened.signed, check_bytes(answer[1], SIGNATURE_BYTES))
        signed.check(study, notes.request, ids)
    signed.note(notes.ledger, notes.request)
    return AgreedLabels(opened.labels, check_bytes(answer[0], answer[0].size), answer[2])
