"""Hidden queries: querying and answering party seal to each other, so that who passes their messages on reads nothing.

For each computation both draw a fresh X25519 key (RFC 7748) and sign it with the key that the study names for them; the
answering party signs both, so what was agreed with one seat, for one request, fits no other (signed Diffie-Hellman:
Canetti & Krawczyk 2001, section 5). HKDF with SHA-256 (RFC 5869) gives one key per direction, and ChaCha20-Poly1305
(RFC 8439) seals each message under the number of its exchange, bound to study, request, seat, step, direction and
number.

So a message that was changed, repeated, put in another order, or taken from another seat, batch or computation does not
open. Either side ends with nothing that opens earlier computations; the querying party keeps the key of the one reply
that is charged until its batch is settled, and the answering party keeps none. Lengths are not hidden.

Hidden queries: refusals that the answering party signs, each for the one request that it refuses.

A refusal ends a seat's part in a batch, and `no_inference` makes the querying party compute again. So whoever passes
messages on must not be able to make one up, nor to answer with one of another moment: the seat's party signs the code
together with the request and what was sealed in it, which is fresh in every computation. `no_inference` is final for
what it refuses: the key that would have opened it is gone for good, or never was.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy import ndarray

from protocols.crypto.identity import LARGEST_SIGNATURE, sign
from protocols.crypto.masks import agreed
from protocols.crypto.randomness import RandomSource
from protocols.errors import MalformedMessage, Refused
from protocols.levels.secure_sum.terms import roster_verifier
from protocols.levels.secure_sum.wire import public_keys, verifier
from protocols.levels.two_server.conversation import check_bytes
from protocols.refusals.code import Code
from protocols.study.levels import hidden
from protocols.study.study import Study
from protocols.wire.messages import Arrays, Refusal, StepRequest, VoteRequest, decode_arrays, encode_arrays

_KEY_BYTES = 32
_QUERIER = "querier"


@dataclass(frozen=True, eq=False)
class Computation:
    """What both sides know of one computation: a request about so many queries, and the seat that answers."""

    study: Study
    request: bytes
    seat: str
    queries: int

    def begun(self, querier: bytes) -> bytes:
        """What the querying party signs: all of this, and its fresh key."""
        about = self.study.digest + self.request + self.queries.to_bytes(8, "big") + querier
        return b"conclave computation 1\n" + about + self.seat.encode()

    def agreed(self, querier: bytes, answerer: bytes) -> bytes:
        """What the answering party signs: both keys too."""
        return b"conclave computation agreed 1\n" + answerer + self.begun(querier)


@dataclass(frozen=True, eq=False)
class Sealing:
    """The keys of one computation, at its exchange `number`: a request and its reply, each sealed once."""

    to_answerer: bytes = field(repr=False)
    to_querier: bytes = field(repr=False)
    about: bytes = field(repr=False)
    number: int = 0

    def request(self, step: str, arrays: Arrays) -> ndarray:
        """A request of this exchange, sealed."""
        return self._sealed(self.to_answerer, b"request", step, arrays, b"")

    def opened_request(self, step: str, sealed: Arrays) -> Arrays:
        """Raises MalformedMessage for anything but the request that the querying party sealed for this exchange."""
        return self._opened(self.to_answerer, b"request", step, sealed, b"")

    def reply(self, step: str, arrays: Arrays, *, shown: bytes = b"") -> ndarray:
        """A reply of this exchange, sealed. shown: bytes that travel beside it in the clear; it is bound to them."""
        return self._sealed(self.to_querier, b"reply", step, arrays, shown)

    def opened_reply(self, step: str, sealed: Arrays, *, shown: bytes = b"") -> Arrays:
        """Raises MalformedMessage for anything but the reply that the answering party sealed in this exchange."""
        return self._opened(self.to_querier, b"reply", step, sealed, shown)

    @property
    def following(self) -> Sealing:
        """The next exchange."""
        return replace(self, number=self.number + 1)

    @property
    def only_reply(self) -> bytes:
        """What opens the reply of this exchange and nothing else of the answering party, to be stored."""
        return self.number.to_bytes(8, "big") + self.about + self.to_querier

    @classmethod
    def of_reply(cls, stored: bytes) -> Sealing:
        """What `only_reply` stored."""
        return cls(b"", stored[40:], stored[8:40], int.from_bytes(stored[:8], "big"))

    def _sealed(self, key: bytes, direction: bytes, step: str, arrays: Arrays, shown: bytes) -> ndarray:
        sealed = ChaCha20Poly1305(key).encrypt(self._nonce, encode_arrays(arrays), self._bound(direction, step, shown))
        return np.frombuffer(sealed, dtype=np.uint8)

    def _opened(self, key: bytes, direction: bytes, step: str, sealed: Arrays, shown: bytes) -> Arrays:
        if len(sealed) != 1:
            raise MalformedMessage(f"a sealed message has {len(sealed)} arrays; allowed: 1")
        data = check_bytes(sealed[0], sealed[0].size)
        try:
            return decode_arrays(ChaCha20Poly1305(key).decrypt(self._nonce, data, self._bound(direction, step, shown)))
        except InvalidTag:
            raise MalformedMessage(
                f"a message of step {step!r} was not sealed by the other party for exchange {self.number} of this "
                "computation"
            ) from None

    @property
    def _nonce(self) -> bytes:
        # One key per direction and computation, and one message per exchange: no nonce is used twice.
        return self.number.to_bytes(12, "big")

    def _bound(self, direction: bytes, step: str, shown: bytes) -> bytes:
        framed = [len(part).to_bytes(4, "big") + part for part in (direction, step.encode(), shown)]
        return self.about + self.number.to_bytes(8, "big") + b"".join(framed)


class Beginning:
    """The querying party's side, until the answering party's key is there."""

    def __init__(self, computation: Computation, *, key: ec.EllipticCurvePrivateKey, source: RandomSource) -> None:
        """key: the private half of the key that the study names for the querier."""
        self._computation = computation
        self._fresh = X25519PrivateKey.from_private_bytes(source(_KEY_BYTES))
        self._public = self._fresh.public_key().public_bytes_raw()
        self._signature = sign(key, computation.begun(self._public))

    def arrays(self) -> Arrays:
        """The first request's: the number of queries, the fresh key and its signature."""
        counted = np.array([self._computation.queries], dtype=np.int64)
        return (counted, *(np.frombuffer(each, dtype=np.uint8) for each in (self._public, self._signature)))

    def agreed(self, arrays: Arrays, step: str) -> tuple[Sealing, Arrays]:
        """The keys of the computation, and what the first reply held.

        Raises MalformedMessage, Refused("bad_signature") unless the seat's own party agreed to this computation.
        """
        if len(arrays) != 3:
            raise MalformedMessage(f"the first reply has {len(arrays)} arrays; allowed: a key, its signature, an offer")
        computation, theirs, signature = self._computation, check_bytes(arrays[0], _KEY_BYTES), _signature(arrays[1])
        statement = computation.agreed(self._public, theirs)
        if not roster_verifier(computation.study)(computation.seat, statement, signature):
            raise Refused(Code.BAD_SIGNATURE, f"the key of the computation is not signed by {computation.seat!r}")
        sealing = _derived(self._fresh, theirs, statement)
        return sealing.following, sealing.opened_reply(step, arrays[2:])


def answered_beginning(
    computation: Computation, arrays: Arrays, *, key: ec.EllipticCurvePrivateKey, source: RandomSource
) -> tuple[Sealing, Arrays]:
    """The answering party's side: the keys of the computation, and its key and signature for the first reply.

    arrays: the querying party's key and signature. Raises MalformedMessage, Refused("bad_signature") unless the study's
    querier begins this computation.
    """
    theirs, signature = check_bytes(arrays[0], _KEY_BYTES), _signature(arrays[1])
    named = public_keys(((_QUERIER, hidden(computation.study.confidentiality).querier_key),))
    if not verifier(named)(_QUERIER, computation.begun(theirs), signature):
        raise Refused(Code.BAD_SIGNATURE, "the computation is not begun by the querier that the study names")
    fresh = X25519PrivateKey.from_private_bytes(source(_KEY_BYTES))
    public = fresh.public_key().public_bytes_raw()
    statement = computation.agreed(theirs, public)
    sealing = _derived(fresh, theirs, statement)
    return sealing, tuple(np.frombuffer(each, dtype=np.uint8) for each in (public, sign(key, statement)))


def _derived(own: X25519PrivateKey, theirs: bytes, statement: bytes) -> Sealing:
    about = hashlib.sha256(statement).digest()
    both = HKDF(hashes.SHA256(), 2 * _KEY_BYTES, salt=about, info=b"conclave computation keys 1").derive(
        agreed(own, theirs)
    )
    return Sealing(both[:_KEY_BYTES], both[_KEY_BYTES:], about)


def _signature(array: ndarray) -> bytes:
    if not 1 <= array.size <= LARGEST_SIGNATURE:
        raise MalformedMessage(f"a signature has {array.size} bytes; allowed: 1 to {LARGEST_SIGNATURE}")
    return check_bytes(array, array.size)


def signed_refusal(
    refusal: Refusal, request: VoteRequest | StepRequest, study: Study, seat: str, *, key: ec.EllipticCurvePrivateKey
) -> Refusal:
    """The refusal with the signature of the seat's party, for this request alone."""
    return replace(refusal, signature=sign(key, _statement(refusal, request, study, seat)))


def is_of(refusal: Refusal, request: VoteRequest | StepRequest, study: Study, seat: str) -> bool:
    """Whether the seat's party signed this refusal of this very request."""
    if not 1 <= len(refusal.signature) <= LARGEST_SIGNATURE:
        return False
    return roster_verifier(study)(seat, _statement(refusal, request, study, seat), refusal.signature)


def _statement(refusal: Refusal, request: VoteRequest | StepRequest, study: Study, seat: str) -> bytes:
    if isinstance(request, VoteRequest):
        digest, step, arrays = request.digest, "", request.relayed
    else:
        digest, step, arrays = request.batch_digest, request.step, request.arrays
    parts = (step.encode(), encode_arrays(arrays), refusal.code.encode(), refusal.reason.encode(), seat.encode())
    return b"conclave refusal 1\n" + study.digest + digest + b"".join(hashlib.sha256(part).digest() for part in parts)
