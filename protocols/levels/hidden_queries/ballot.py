"""Hidden queries, the answering party's side: a private model answers a batch that its party never sees.

The steps of the computation (protocols/levels/hidden_queries/inference/) cost nothing and reveal nothing: up to the
last reply, everything sent is masked by randomness that the guardian dealt for this one computation. The last reply,
with the querying party's share of the votes, is part of the reply that is charged and stored. So a querying party that
repeats steps or stops halfway learns nothing, and gets the votes of a batch only once: asked again, the seat gives what
it stored.

State in memory between the steps may be lost: nothing was charged by then, and a new computation has fresh randomness.
A repeated step gets the same reply.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from protocols.crypto.identity import sign
from protocols.crypto.randomness import RandomSource
from protocols.errors import CannotVote, InvalidInput, MalformedMessage, Refused
from protocols.levels.hidden_queries.dealing import KEY_BYTES, Offer, check_architecture, opened_part
from protocols.levels.hidden_queries.inference.announced import announced
from protocols.levels.hidden_queries.inference.answerer import Answerer
from protocols.levels.hidden_queries.inference.fixed_point import QuantisedModel
from protocols.levels.hidden_queries.inference.material import Arrays
from protocols.levels.hidden_queries.inference.plan import LAST_REQUEST, InferencePlan
from protocols.levels.level import Votes
from protocols.levels.two_server.ballot import SharedBallot
from protocols.levels.two_server.conversation import check_bytes
from protocols.ranges import integer
from protocols.refusals.code import Code
from protocols.study.levels import hidden
from protocols.study.queries import QueryBatch
from protocols.study.study import Study
from protocols.wire.messages import HiddenVotes, StepReply, StepRequest, VoteRequest, encode_arrays

ARCHITECTURE, DEALT, INFERENCE = "architecture", "dealt", "inference"
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
    """One batch under way: a fresh key, then an Answerer; the last step and its reply."""

    request: bytes
    queries: int
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

    def cast(self, request: VoteRequest, votes: Votes) -> HiddenVotes:
        """The last reply, and the guardian's share. No teacher is asked: `votes` is not called."""
        if request.batch.inputs.shape[1:] != (0,):
            raise Refused(Code.OTHER_SHAPE, "queries were sent in the clear; allowed: none, as the study hides them")
        known = self._of(request.digest)
        if known.answerer is None or known.queries != len(request.batch.ids):
            raise Refused(NO_INFERENCE, "the batch has other queries than were computed, or none were")
        self._private.admit(request.batch)
        self._under_way = None
        last = known.answerer.step(LAST_REQUEST, request.relayed)
        return self._sealed(request, last, known.answerer.guardian_share)

    def _stepped(self, request: StepRequest) -> _Computation:
        """The computation after a step; after a failed step it cannot continue."""
        if request.step == ARCHITECTURE:
            self._under_way = self._begin(request)
            return self._under_way
        known = self._of(request.batch_digest)
        self._under_way = None
        if request.step == DEALT:
            known.reply = self._deal(known, request)
        elif request.step == INFERENCE:
            known.reply = self._infer(known, request.arrays)
        else:
            raise Refused(Code.NO_SUCH_STEP, f"step {request.step!r}; allowed: {ARCHITECTURE}, {DEALT}, {INFERENCE}")
        self._under_way = known
        return known

    def _begin(self, request: StepRequest) -> _Computation:
        study = self._study
        if len(request.arrays) != 1:
            raise MalformedMessage("the request for an architecture is malformed; allowed: the number of queries")
        queries = integer("StepRequest architecture", "queries", request.arrays[0])
        if queries > study.batch_limit:
            raise Refused(Code.BATCH_TOO_LARGE, f"{queries} queries; allowed: 1 to {study.batch_limit} in a batch")
        model = self._private.load()
        try:
            check_architecture(model.architecture, study)
        except InvalidInput as error:
            raise CannotVote(str(error)) from None
        key = X25519PrivateKey.from_private_bytes(self._source(KEY_BYTES))
        offer = Offer(announced(model.architecture).encode(), key.public_key().public_bytes_raw(), b"")
        statement = offer.statement(study.digest, request.batch_digest, self._seat, queries)
        signed = Offer(offer.text, offer.key, sign(self._private.key, statement))
        return _Computation(request.batch_digest, queries, model, key, reply=signed.arrays())

    def _deal(self, known: _Computation, request: StepRequest) -> Arrays:
        key, known.key = known.key, None
        if key is None:
            raise MalformedMessage("randomness was dealt before; allowed: once, for one computation")
        study = self._study
        dealt = opened_part(
            request.arrays,
            key=key,
            signed_by=self._signing_key,
            study=study.digest,
            request=request.batch_digest,
            seat=self._seat,
        )
        known.answerer = Answerer(known.model, known.queries, dealt, context=request.batch_digest, source=self._source)
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
