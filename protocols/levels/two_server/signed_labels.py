"""The guardian's signature of a batch's labels, which it computed too: who has them can show that nobody changed them.

Where labels are hidden from the guardian, it signs the masked ones, and whoever knows the mask knows that the labels
are those that both servers computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from jaxtyping import Int64
from numpy import ndarray

from protocols.crypto.prg_chacha import derived_key
from protocols.errors import Refused
from protocols.ledger.ledger import Ledger
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
