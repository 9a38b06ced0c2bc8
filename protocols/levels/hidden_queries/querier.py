"""Hidden queries, the querying party's side: it is the first server of `two_server`, and computes with private models.

A hospital asks about its own records. It takes the coordinator's place: it runs the Coordinator with its own ledger,
talks to the guardian, and reaches the parties through the operator's hub. For each batch and party it computes with a
model that it does not see, under randomness that the guardian deals (dealing.py), and ends with its share of the
party's vote; the guardian gets the other. From there on a batch goes as at `two_server`.

Who sees what. The querying party: architectures, who answered, and the noisy labels, but no weight and no vote. A
party: how many queries it was asked, and which were answered. The guardian: the same, and architectures. The relaying
operator: who is asked, how many queries, the sizes of messages and the outcome, for all else is sealed between querying
and answering party (sealing.py), also against operator and guardian together. Querying party, guardian and answering
parties do not collude: querying party and guardian together see votes, and either kind of party together with the
guardian sees models or queries.

A reply that its party did not seal or sign for this request is nobody's: its seat is left out as absent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from jaxtyping import Float32
from numpy import ndarray

from protocols.crypto.channel import Channel
from protocols.crypto.identity import encoded_point
from protocols.crypto.randomness import RandomSource
from protocols.errors import InvalidInput, MalformedMessage, Refused
from protocols.ledger.ledger import Ledger
from protocols.levels.hidden_queries.ballot import ARCHITECTURE, DEALT, INFERENCE, NO_INFERENCE, VOTE
from protocols.levels.hidden_queries.dealing import Dealt, Offer, ask_deals, precision_of
from protocols.levels.hidden_queries.inference.computing import Querier, finish
from protocols.levels.hidden_queries.inference.model import check_inputs
from protocols.levels.hidden_queries.inference.plan import LAST_REQUEST
from protocols.levels.hidden_queries.sealing import Beginning, Computation, Sealing, is_of
from protocols.levels.level import LeftOut, ReservedBatch, code_of
from protocols.levels.two_server.aggregation import PartyShare, SharedAggregation
from protocols.levels.two_server.signed_votes import as_array, received_votes
from protocols.refusals.code import Code
from protocols.study.deployed import DeployedStudy
from protocols.study.levels import hidden
from protocols.study.study import Study
from protocols.wire.messages import (
    Arrays,
    ConcealedVotes,
    Refusal,
    Reply,
    StepReply,
    StepRequest,
    VoteRequest,
    decode_arrays,
    encode_arrays,
)

_QUERIES, _COMPUTED = "queries", "computed "
# Attempts at one seat's votes: a node that restarted has forgotten what was computed, and a reply may not be its own.
_ATTEMPTS = 2


class PrivateQueries(SharedAggregation):
    """queries: the records; a batch holds only their positions; dial, source: as for SharedAggregation; key: the
    private half of the key that the study names for the querier.

    What is needed to read a party's votes is noted before the party is charged for them.
    """

    def __init__(
        self,
        study: Study,
        queries: Float32[ndarray, "queries ..."],
        dial: Callable[[], AbstractContextManager[Channel]],
        *,
        key: ec.EllipticCurvePrivateKey,
        source: RandomSource,
    ) -> None:
        """Raises InvalidInput for a study without a querier, another key, and queries beyond the study's bound."""
        super().__init__(dial, source=source)
        level = hidden(study.confidentiality)
        if encoded_point(key.public_key()) != level.querier_key:
            raise InvalidInput(f"the key of {level.querier!r} is not the one that study {study.name!r} names for it")
        self._key = key
        precision, shape = precision_of(study), queries.shape[1:]
        if isinstance(study, DeployedStudy) and shape != study.terms.input_shape:
            raise InvalidInput(f"queries have shape {shape}; allowed: {study.terms.input_shape}, by the terms")
        check_inputs(queries, precision)
        self._queries = queries

    @property
    def positions(self) -> Float32[ndarray, "queries 0"]:
        """What a Coordinator labels in place of the queries."""
        return np.zeros((len(self._queries), 0), dtype=np.float32)

    def released(self, reserved: ReservedBatch) -> None:
        super().released(reserved)
        for seat in reserved.seats:
            reserved.ledger.forget(reserved.request.digest, _COMPUTED + seat)

    def _collect(self, reserved: ReservedBatch, left_out: dict[str, str]) -> dict[str, tuple[bytes, PartyShare]]:
        ledger, digest = reserved.ledger, reserved.request.digest
        ids = reserved.request.batch.ids
        mark = _mark(self._queries[ids])
        if ledger.note(digest, _QUERIES, mark) != mark:
            raise InvalidInput("the batch was asked about other records before; allowed: the same records")
        received: dict[str, tuple[bytes, PartyShare]] = {}
        waiting = reserved.seats
        for _ in range(_ATTEMPTS):
            self._compute(
                reserved, [seat for seat in waiting if ledger.noted(digest, _COMPUTED + seat) is None], left_out
            )
            computed = {
                seat: decode_arrays(noted)
                for seat in waiting
                if (noted := ledger.noted(digest, _COMPUTED + seat)) is not None
            }
            requests = {seat: replace(reserved.request, relayed=each[:1]) for seat, each in computed.items()}
            replies, again = reserved.exchange(requests), []
            for seat, (_, opens, *unfinished) in computed.items():
                left_out.pop(seat, None)
                try:
                    votes = _votes(replies.get(seat), requests[seat], reserved, seat, opens.tobytes())
                    signed, own = received_votes(votes, reserved, seat)
                    received[seat] = (signed.encode(), finish(tuple(unfinished), own))
                except _NotItsOwn:
                    left_out[seat] = Code.ABSENT
                    again.append(seat)  # its party may have charged itself, and then gives the reply that it stored
                except LeftOut as error:
                    left_out[seat] = error.code
                    if error.code == NO_INFERENCE:
                        # The party neither has the computation nor stored a reply to it, so it may start again.
                        ledger.forget(digest, _COMPUTED + seat)
                        again.append(seat)
                except MalformedMessage:
                    left_out[seat] = Code.BAD_VOTES
            waiting = tuple(again)
            if not waiting:
                break
        return received

    def _compute(self, reserved: ReservedBatch, seats: Iterable[str], left_out: dict[str, str]) -> None:
        """Computes with each seat's model up to the last request, and notes that with what reads its reply."""
        study, request = reserved.study, reserved.request
        queries = self._queries[request.batch.ids]
        offers: dict[str, Offer] = {}
        sealings: dict[str, Sealing] = {}
        beginnings = {
            seat: Beginning(Computation(study, request.digest, seat, len(queries)), key=self._key, source=self._source)
            for seat in seats
        }
        questions = {
            seat: StepRequest(study.digest, request.digest, ARCHITECTURE, each.arrays())
            for seat, each in beginnings.items()
        }
        for seat, arrays in _stepped(reserved, questions, left_out).items():
            try:
                sealings[seat], offer = beginnings[seat].agreed(arrays, ARCHITECTURE)
            except (MalformedMessage, Refused):
                left_out[seat] = Code.ABSENT
                continue
            try:
                offers[seat] = Offer.read(offer, study)
            except MalformedMessage:
                left_out[seat] = "bad_step"
        if not offers:
            return
        with self._dial() as channel:
            dealt, refused = ask_deals(channel, study, request.digest, len(queries), offers)
        left_out |= dict.fromkeys(refused, "bad_offer")
        queriers = {seat: Querier(offers[seat].architecture(study), queries, part.own) for seat, part in dealt.items()}
        steps = {seat: _step(reserved, DEALT, _first(part), sealings[seat]) for seat, part in dealt.items()}
        while steps:
            asked, steps = steps, {}
            for seat, arrays in _stepped(reserved, asked, left_out).items():
                try:
                    opened = sealings[seat].opened_reply(asked[seat].step, arrays)
                except MalformedMessage:
                    left_out[seat] = Code.ABSENT
                    continue
                sealing = sealings[seat] = sealings[seat].following
                try:
                    following = queriers[seat].step(opened)
                except MalformedMessage:
                    left_out[seat] = "bad_step"
                    continue
                assert following is not None  # the last request is not sent as a step
                name, values = following
                if name == LAST_REQUEST:
                    last, opens = sealing.request(VOTE, values), as_array(sealing.only_reply)
                    state = encode_arrays((last, opens, *queriers[seat].unfinished))
                    reserved.ledger.note(request.digest, _COMPUTED + seat, state)
                else:
                    steps[seat] = _step(reserved, INFERENCE, (as_array(name.encode()), *values), sealing)


def check_same_queries(ledger: Ledger, queries: Float32[ndarray, "queries ..."]) -> None:
    """Raises InvalidInput unless every batch that the ledger holds was asked about these records."""
    number = 0
    while (stored := ledger.stored(number)) is not None:
        ids, mark = ledger.queries(number), ledger.noted(stored.digest, _QUERIES)
        if ids[-1] >= len(queries) or (mark is not None and mark != _mark(queries[ids])):
            raise InvalidInput(
                f"batch {number} of this study was asked about other records; allowed: the same queries in the same "
                "order, and more at the end"
            )
        number += 1


def _mark(queries: Float32[ndarray, "queries ..."]) -> bytes:
    header = f"conclave hidden queries 1 {queries.shape}\n".encode()
    return hashlib.sha256(header + np.ascontiguousarray(queries, dtype="<f4").tobytes()).digest()


def _first(part: Dealt) -> Arrays:
    return part.sealed, part.signature


def _step(reserved: ReservedBatch, step: str, arrays: Arrays, sealing: Sealing) -> StepRequest:
    return StepRequest(reserved.study.digest, reserved.request.digest, step, (sealing.request(step, arrays),))


def _stepped(reserved: ReservedBatch, steps: Mapping[str, StepRequest], left_out: dict[str, str]) -> dict[str, Arrays]:
    """Each seat's reply to a step, still sealed; a seat without one is left out."""
    if not steps:
        return {}
    replies = reserved.exchange(steps)
    given_arrays = {}
    for seat, step in steps.items():
        reply: Reply | None = replies.get(seat)
        left_out[seat] = Code.ABSENT
        if isinstance(reply, StepReply) and (reply.batch_digest, reply.step) == (step.batch_digest, step.step):
            given_arrays[seat] = reply.arrays
            del left_out[seat]
        elif isinstance(reply, Refusal) and is_of(reply, step, reserved.study, seat):
            left_out[seat] = code_of(reply)
    return given_arrays


class _NotItsOwn(Exception):
    """A reply came that the seat's party did not make for this request."""


def _votes(
    reply: Reply | None, request: VoteRequest, reserved: ReservedBatch, seat: str, opens: bytes
) -> ConcealedVotes:
    """The opened reply to a batch. opens: see Sealing.only_reply.

    Raises LeftOut with the code that the seat's party signed, or absent; _NotItsOwn.
    """
    if isinstance(reply, ConcealedVotes) and len(reply.arrays) == 2:
        sealed, shown = reply.arrays
        try:
            arrays = Sealing.of_reply(opens).opened_reply(VOTE, (sealed,), shown=shown.tobytes())
        except MalformedMessage:
            raise _NotItsOwn from None
        return ConcealedVotes(request.digest, arrays)
    if isinstance(reply, Refusal):
        if is_of(reply, request, reserved.study, seat):
            raise LeftOut(code_of(reply))
        if not reply.signature:  # whoever passes messages on refuses by itself, as for a party that is not there
            raise LeftOut(Code.ABSENT)
    if reply is None:
        raise LeftOut(Code.ABSENT)
    raise _NotItsOwn
