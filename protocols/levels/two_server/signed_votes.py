"""What a hospital signs when it votes, so that nobody can vote in its name and neither server can change what it got.

The signature covers the digests of both parts, the coordinator's and the one sealed to the guardian, bound to study,
request and seat. The guardian never sees the coordinator's part: it gets that part's digest, checks the signature, and
names the digest of both in its statement (statement.py). So whoever submits another part than the hospital sent needs
the hospital's key, and whoever computes with another part than it submitted is contradicted by the hospital's ledger,
which keeps what it sent.

It covers the positions in the pool too, which the guardian cannot read in the request's digest: who takes part, the
round, the price and the guardian's signature of labels follow from them, so a coordinator may tell it no others.

Signatures are ECDSA over P-256 with SHA-256, under the keys that the study's roster names; 64 bytes, r and s.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from numpy import ndarray

from protocols.crypto.identity import sign
from protocols.errors import MalformedMessage
from protocols.levels.level import LeftOut, ReservedBatch
from protocols.levels.secure_sum.terms import roster_verifier
from protocols.levels.secure_sum.wire import Verify
from protocols.levels.two_server.conversation import check_bytes, sealed_bytes
from protocols.levels.two_server.statement import SIGNATURE_BYTES
from protocols.refusals.code import Code
from protocols.study.study import Study
from protocols.wire.messages import ConcealedVotes, encode_arrays

_DIGEST_BYTES = 32


@dataclass(frozen=True, eq=False)
class SignedVotes:
    """One seat's votes as the guardian gets them. sealed: its share, sealed to it; own: the digest of the coordinator's
    part; signature: the hospital's, of both."""

    sealed: bytes = field(repr=False)
    own: bytes = field(repr=False)
    signature: bytes = field(repr=False)

    def encode(self) -> bytes:
        """The bytes to submit."""
        return self.signature + self.own + self.sealed

    @classmethod
    def read(cls, data: bytes) -> SignedVotes:
        """The votes in these bytes; not yet verified. Raises MalformedMessage."""
        head = SIGNATURE_BYTES + _DIGEST_BYTES
        if len(data) <= head:
            raise MalformedMessage(f"signed votes have {len(data)} bytes; allowed: more than {head}")
        return cls(data[head:], data[SIGNATURE_BYTES:head], data[:SIGNATURE_BYTES])

    def statement(self, study: bytes, request: bytes, seat: str, *, queries: Sequence[int]) -> bytes:
        """What the hospital signs. queries: the positions in the pool on which it voted."""
        positions = hashlib.sha256(np.array(queries, dtype="<i8").tobytes()).digest()
        return b"conclave votes 2\n" + positions + self._named(study, request, seat)

    def digest(self, study: bytes, request: bytes, seat: str) -> bytes:
        """32 bytes that name what the seat sent, both parts: the guardian's statement has them."""
        return hashlib.sha256(b"conclave votes 2\n" + self._named(study, request, seat)).digest()

    def holds(self, verify: Verify, study: bytes, request: bytes, seat: str, *, queries: Sequence[int]) -> bool:
        """Whether the seat's party signed these votes. verify: under the keys of the study's roster (terms.py)."""
        r, s = (int.from_bytes(self.signature[at : at + 32], "big") for at in (0, 32))
        return verify(seat, self.statement(study, request, seat, queries=queries), encode_dss_signature(r, s))

    def _named(self, study: bytes, request: bytes, seat: str) -> bytes:
        return study + request + hashlib.sha256(self.sealed).digest() + self.own + seat.encode()


def signed_votes(
    sealed: bytes,
    own: tuple[ndarray, ...],
    *,
    key: ec.EllipticCurvePrivateKey,
    study: Study,
    request: bytes,
    queries: Sequence[int],
    seat: str,
) -> SignedVotes:
    """A seat's votes with its signature. own: the coordinator's part, as it travels; queries: see `statement`."""
    unsigned = SignedVotes(sealed, own_digest(own), b"")
    r, s = decode_dss_signature(sign(key, unsigned.statement(study.digest, request, seat, queries=queries)))
    return SignedVotes(unsigned.sealed, unsigned.own, r.to_bytes(32, "big") + s.to_bytes(32, "big"))


def received_votes(reply: object, reserved: ReservedBatch, seat: str) -> tuple[SignedVotes, tuple[ndarray, ...]]:
    """A seat's signed votes in its reply, and the coordinator's part of them as it travelled.

    Raises LeftOut("bad_seal"), LeftOut("unsigned_votes") for votes that a guardian would not take; MalformedMessage.
    """
    study, digest = reserved.study, reserved.request.digest
    if not isinstance(reply, ConcealedVotes) or len(reply.arrays) < 2:
        raise MalformedMessage("the votes are of another level")
    sealed, *own, signature = reply.arrays
    if sealed.size != sealed_bytes(study):
        raise LeftOut(Code.BAD_SEAL)
    parts = check_bytes(sealed, sealed.size), own_digest(tuple(own)), check_bytes(signature, SIGNATURE_BYTES)
    signed = SignedVotes(*parts)
    queries = reserved.request.batch.ids.tolist()
    if not signed.holds(roster_verifier(study), study.digest, digest, seat, queries=queries):
        raise LeftOut(Code.UNSIGNED_VOTES)
    return signed, tuple(own)


def sent_votes(reply: ConcealedVotes) -> SignedVotes:
    """The signed votes in a reply of one's own, as it was stored."""
    sealed, *own, signature = reply.arrays
    return SignedVotes(sealed.tobytes(), own_digest(tuple(own)), signature.tobytes())


def own_digest(own: tuple[ndarray, ...]) -> bytes:
    """SHA-256 of the coordinator's part, as it travels."""
    return hashlib.sha256(encode_arrays(own)).digest()


def as_array(data: bytes) -> ndarray:
    """Bytes as they travel in a message."""
    return np.frombuffer(data, dtype=np.uint8)
