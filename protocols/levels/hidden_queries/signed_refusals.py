"""Hidden queries: refusals that the answering party signs, each for the one request that it refuses.

A refusal ends a seat's part in a batch, and `no_inference` makes the querying party compute again. So whoever passes
messages on must not be able to make one up, nor to answer with one of another moment: the seat's party signs the code
together with the request and what was sealed in it, which is fresh in every computation. `no_inference` is final for
what it refuses: the key that would have opened it is gone for good, or never was.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from cryptography.hazmat.primitives.asymmetric import ec

from protocols.crypto.identity import sign
from protocols.levels.secure_sum.terms import roster_verifier
from protocols.study.study import Study
from protocols.wire.messages import Refusal, StepRequest, VoteRequest, encode_arrays

# The largest signature that is checked at all.
_LARGEST_SIGNATURE = 80


def signed_refusal(
    refusal: Refusal, request: VoteRequest | StepRequest, study: Study, seat: str, *, key: ec.EllipticCurvePrivateKey
) -> Refusal:
    """The refusal with the signature of the seat's party, for this request alone."""
    return replace(refusal, signature=sign(key, _statement(refusal, request, study, seat)))


def is_of(refusal: Refusal, request: VoteRequest | StepRequest, study: Study, seat: str) -> bool:
    """Whether the seat's party signed this refusal of this very request."""
    if not 1 <= len(refusal.signature) <= _LARGEST_SIGNATURE:
        return False
    return roster_verifier(study)(seat, _statement(refusal, request, study, seat), refusal.signature)


def _statement(refusal: Refusal, request: VoteRequest | StepRequest, study: Study, seat: str) -> bytes:
    if isinstance(request, VoteRequest):
        digest, step, arrays = request.digest, "", request.relayed
    else:
        digest, step, arrays = request.batch_digest, request.step, request.arrays
    parts = (step.encode(), encode_arrays(arrays), refusal.code.encode(), refusal.reason.encode(), seat.encode())
    return b"conclave refusal 1\n" + study.digest + digest + b"".join(hashlib.sha256(part).digest() for part in parts)
