"""Hidden queries, the answering party's side: a private model answers a batch that its party never sees.

The steps of the computation (protocols/levels/hidden_queries/inference/) cost nothing and reveal nothing: up to the
last reply, everything sent is masked by randomness that the guardian dealt for this one computation. The last reply,
with the querying party's share of the votes, is part of the reply that is charged and stored. So a querying party that
repeats steps or stops halfway learns nothing, and gets the votes of a batch only once: asked again, the seat gives what
it stored.

Everything is sealed between the two (sealing.py), the stored reply too, which only the querying party can open; and a
refusal is signed for the one request that it refuses (signed_refusals.py). What does not open is refused, and changes
nothing: the computation waits for the message that does.

State in memory between the steps may be lost: nothing was charged by then, and a new computation has fresh randomness
and fresh keys. A repeated step gets the same reply.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from protocols.crypto.identity import sign
from protocols.crypto.randomness import RandomSource
from protocols.errors import CannotVote, InvalidInput, MalformedMessage, Refused
from protocols.levels.hidden_queries.dealing import SEAL_BYTES, Offer, announced, check_architecture, opened_part
from protocols.levels.hidden_queries.inference.computing import Answerer
from protocols.levels.hidden_queries.inference.model import QuantisedModel
from protocols.levels.hidden_queries.inference.plan import LAST_REQUEST, InferencePlan
from protocols.levels.hidden_queries.sealing import Computation, Sealing, answered_beginning, signed_refusal
from protocols.levels.level import Casting
from protocols.levels.two_server.ballot import SharedBallot
from protocols.levels.two_server.conversation import check_bytes
from protocols.levels.two_server.signed_votes import as_array
from protocols.ranges import integer
from protocols.refusals.code import Code
from protocols.study.levels import hidden
from protocols.study.queries import QueryBatch
from protocols.study.study import Study
from protocols.wire.messages import Arrays, ConcealedVotes, Refusal, StepReply, StepRequest, VoteRequest, encode_arrays

ARCHITECTURE, DEALT, INFERENCE = "architecture", "dealt", "inference"
# Not a step, as it is charged: the last request, and its reply.
VOTE = "votes"
NO_INFERENCE = Code.NO_INFERENCE


@dataclass(frozen=True, eq=False)
class PrivateModel:
    """The private model of a seat and the conditions under which it answers.

    load: returns the model, or raises Refused; admit: called before the votes of a batch are charged, raises Refused if
    the seat may not vote; key: the private half of the key that the study names for the seat.
    """

    load: Callable[[], QuantisedModel]
    admit: Callable[[QueryBatch], None]
    key: ec.EllipticCurvePrivateKey = field(repr=False)


@dataclass(eq=False)
class _Computation:
    """One batch under way: a fresh key, then an Answerer; how it began, the last step and its reply, as it left."""

    request: bytes
    queries: int
    began: bytes = field(repr=False)
    sealing: Sealing = field(repr=False)
    model: QuantisedModel = field(repr=False)
    key: X25519PrivateKey | None = field(repr=False)
    answerer: Answerer | None = field(default=None, repr=False)
    step: bytes = b""
    reply: Arrays = field(default=(), repr=False)


class PrivateBallot(SharedBallot):
    """Votes of a private model on queries that it does not see. source: the operating system's on a node."""

    def __init__(self, study: Study, seat: str, *, private: PrivateModel, source: RandomSource) -> None:
        hidden(study.confidentiality)
        super().__init__(study, seat, key=private.key, source=source)
        self._private = private
        self._under_way: _Computation | None = None

    def step(self, request: StepRequest) -> StepReply:
        step_digest = hashlib.sha256(request.step.encode() + b"\n" + encode_arrays(request.arrays)).digest()
        known = self._under_way
        if known is None or (known.request, known.step) != (request.batch_digest, step_digest):
            known = self._stepped(request)
            known.step = step_digest
        return StepReply(request.batch_digest, request.step, known.reply)

    def cast(self, request: VoteRequest, votes: Casting) -> ConcealedVotes:
        """The last reply, and the guardian's share. No teacher is asked: `votes` is not called."""
        if request.batch.inputs.shape[1:] != (0,):
            raise Refused(Code.OTHER_SHAPE, "queries were sent in the clear; allowed: none, as the study hides them")
        known = self._of(request.digest)
        if known.answerer is None or known.queries != len(request.batch.ids):
            raise Refused(NO_INFERENCE, "the batch has other queries than were computed, or none were")
        arrays = known.sealing.opened_request(VOTE, request.relayed)
        self._private.admit(request.batch)
        self._under_way = None
        last = known.answerer.step(LAST_REQUEST, arrays)
        cast = self._sealed(request, last, known.answerer.guardian_share)
        # The guardian's statement names this digest, so nobody learns anything from it.
        digest = super()._sent(cast)
        return ConcealedVotes(request.digest, (known.sealing.reply(VOTE, cast.arrays, shown=digest), as_array(digest)))

    def refused(self, request: VoteRequest | StepRequest, refusal: Refusal) -> Refusal:
        return signed_refusal(refusal, request, self._study, self._seat, key=self._private.key)

    def _sent(self, reply: ConcealedVotes) -> bytes:
        return reply.arrays[1].tobytes()

    def _stepped(self, request: StepRequest) -> _Computation:
        """The computation after a step; after a step of the querying party that failed it cannot continue."""
        if request.step == ARCHITECTURE:
            self._under_way = self._begin(request)
            return self._under_way
        known = self._of(request.batch_digest)
        if request.step not in (DEALT, INFERENCE):
            raise Refused(Code.NO_SUCH_STEP, f"step {request.step!r}; allowed: {ARCHITECTURE}, {DEALT}, {INFERENCE}")
        arrays = known.sealing.opened_request(request.step, request.arrays)
        self._under_way = None
        reply = self._deal(known, arrays) if request.step == DEALT else self._infer(known, arrays)
        known.reply = (known.sealing.reply(request.step, reply),)
        known.sealing = known.sealing.following
        self._under_way = known
        return known

    def _begin(self, request: StepRequest) -> _Computation:
        study = self._study
        allowed = (
            "the request for an architecture is malformed; allowed: the number of queries, a key and its signature"
        )
        if not request.arrays:
            raise MalformedMessage(allowed)
        queries = integer("StepRequest architecture", "queries", request.arrays[0])
        if queries > study.batch_limit:
            raise Refused(Code.BATCH_TOO_LARGE, f"{queries} queries; allowed: 1 to {study.batch_limit} in a batch")
        if len(request.arrays) != 3:
            raise MalformedMessage(allowed)
        about = Computation(study, request.batch_digest, self._seat, queries)
        began, known = encode_arrays(request.arrays), self._under_way
        if known is not None and known.began == began:
            raise MalformedMessage("the computation was begun before; allowed: a fresh key each time")
        sealing, agreed = answered_beginning(about, request.arrays[1:], key=self._private.key, source=self._source)
        model = self._private.load()
        try:
            check_architecture(model.architecture, study)
        except InvalidInput as error:
            raise CannotVote(str(error)) from None
        key = X25519PrivateKey.from_private_bytes(self._source(SEAL_BYTES))
        offer = self._offer(model, key.public_key().public_bytes_raw(), about)
        reply = (*agreed, sealing.reply(ARCHITECTURE, offer.arrays()))
        return _Computation(request.batch_digest, queries, began, sealing.following, model, key, reply=reply)

    def _offer(self, model: QuantisedModel, key: bytes, about: Computation) -> Offer:
        unsigned = Offer(announced(model.architecture).encode(), key, b"")
        statement = unsigned.statement(self._study.digest, about.request, self._seat, about.queries)
        return replace(unsigned, signature=sign(self._private.key, statement))

    def _deal(self, known: _Computation, arrays: Arrays) -> Arrays:
        key, known.key = known.key, None
        if key is None:
            raise MalformedMessage("randomness was dealt before; allowed: once, for one computation")
        study = self._study
        dealt = opened_part(
            arrays, key=key, signed_by=self._signing_key, study=study.digest, request=known.request, seat=self._seat
        )
        known.answerer = Answerer(known.model, known.queries, dealt, context=known.request, source=self._source)
        first = InferencePlan.of(known.model.architecture, known.queries).exchanges[0]
        return known.answerer.step(first.name, ())

    def _infer(self, known: _Computation, arrays: Arrays) -> Arrays:
        if known.answerer is None or not arrays:
            raise MalformedMessage("a step of the computation came before its randomness, or without a name")
        name = check_bytes(arrays[0], arrays[0].size).decode("ascii", errors="replace")
        if name == LAST_REQUEST:
            raise MalformedMessage("the last step came by itself; allowed: with the batch, which is charged")
        return known.answerer.step(name, arrays[1:])

    def _of(self, request: bytes) -> _Computation:
        if self._under_way is None or self._under_way.request != request:
            raise Refused(NO_INFERENCE, "nothing was computed for this batch; begin it again")
        return self._under_way
