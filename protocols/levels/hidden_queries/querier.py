"""Hidden queries, the querying party's side: it is the first server of `two_server`, and computes with private models.

A hospital asks about its own records. It takes the coordinator's place: it runs the Coordinator with its own ledger,
talks to the guardian, and reaches the parties through the operator's hub. For each batch and party it computes with a
model that it does not see, under randomness that the guardian deals (dealing.py), and ends with its share of the
party's vote; the guardian gets the other. From there on a batch goes as at `two_server`.

Who sees what. The querying party: architectures, who answered, and the noisy labels, but no weight and no vote. A
party: how many queries it was asked, and which were answered. The guardian: the same, and architectures. The relaying
operator: masked values, and the querying party's shares. Querying party, guardian and answering parties are semi-honest
and no two of them collude: querying party and guardian together see votes, and either kind of party together with the
guardian sees models or queries. The relaying operator must not collude with the guardian either.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace

import numpy as np
from jaxtyping import Float32
from numpy import ndarray

from protocols.crypto.channel import Channel
from protocols.crypto.randomness import RandomSource
from protocols.errors import InvalidInput, MalformedMessage
from protocols.ledger.ledger import Ledger
from protocols.levels.hidden_queries.ballot import ARCHITECTURE, DEALT, INFERENCE, NO_INFERENCE
from protocols.levels.hidden_queries.dealing import Dealt, Offer, ask_deals, precision_of
from protocols.levels.hidden_queries.inference.fixed_point import check_inputs
from protocols.levels.hidden_queries.inference.material import Arrays
from protocols.levels.hidden_queries.inference.plan import LAST_REQUEST
from protocols.levels.hidden_queries.inference.querier import Querier, finish
from protocols.levels.level import LeftOut, ReservedBatch, code_of, given
from protocols.levels.two_server.aggregation import PartyShare, SharedAggregation
from protocols.levels.two_server.signed_votes import received_votes
from protocols.refusals.code import Code
from protocols.study.deployed import DeployedStudy
from protocols.study.study import Study
from protocols.wire.messages import (
    Refusal,
    Reply,
    StepReply,
    StepRequest,
    VoteRequest,
    decode_arrays,
    encode_arrays,
)

_QUERIES, _COMPUTED = "queries", "computed "
# Attempts at one seat's computation of a batch: a node that restarted has forgotten the first.
_ATTEMPTS = 2


class PrivateQueries(SharedAggregation):
    """queries: the records; a batch holds only their positions; dial, source: as for SharedAggregation.

    What is needed to read a party's votes is noted before the party is charged for them.
    """

    def __init__(
        self,
        study: Study,
        queries: Float32[ndarray, "queries ..."],
        dial: Callable[[], AbstractContextManager[Channel]],
        *,
        source: RandomSource,
    ) -> None:
        """Raises InvalidInput for a study without a querier, and for queries beyond its bound."""
        super().__init__(dial, source=source)
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
            replies = reserved.exchange(
                {seat: replace(reserved.request, relayed=each[:2]) for seat, each in computed.items()}
            )
            for seat, (_, _, *unfinished) in computed.items():
                left_out.pop(seat, None)
                try:
                    signed, own = received_votes(given(replies.get(seat), reserved.request), reserved, seat)
                    received[seat] = (signed.encode(), finish(tuple(unfinished), own))
                except LeftOut as error:
                    left_out[seat] = error.code
                except MalformedMessage:
                    left_out[seat] = Code.BAD_VOTES
            # The party neither has the computation nor stored a reply to it, so it may start again.
            waiting = tuple(seat for seat in computed if left_out.get(seat) == NO_INFERENCE)
            for seat in waiting:
                ledger.forget(digest, _COMPUTED + seat)
            if not waiting:
                break
        return received

    def _compute(self, reserved: ReservedBatch, seats: Iterable[str], left_out: dict[str, str]) -> None:
        """Computes with each seat's model up to the last request, and notes that with what reads its reply."""
        study, request = reserved.study, reserved.request
        queries = self._queries[request.batch.ids]
        offers: dict[str, Offer] = {}
        count = np.array([len(queries)], dtype=np.int64)
        questions = {seat: StepRequest(study.digest, request.digest, ARCHITECTURE, (count,)) for seat in seats}
        for seat, arrays in _stepped(reserved, questions, left_out).items():
            try:
                offers[seat] = Offer.read(arrays, study)
            except MalformedMessage:
                left_out[seat] = "bad_step"
        if not offers:
            return
        with self._dial() as channel:
            dealt, refused = ask_deals(channel, study, request.digest, len(queries), offers)
        left_out |= dict.fromkeys(refused, "bad_offer")
        queriers = {seat: Querier(offers[seat].architecture(study), queries, part.own) for seat, part in dealt.items()}
        steps = {seat: _first(reserved.request, part, study) for seat, part in dealt.items()}
        while steps:
            replies, steps = _stepped(reserved, steps, left_out), {}
            for seat, arrays in replies.items():
                try:
                    following = queriers[seat].step(arrays)
                except MalformedMessage:
                    left_out[seat] = "bad_step"
                    continue
                assert following is not None  # the last request is not sent as a step
                name, values = following
                if name == LAST_REQUEST:
                    state = encode_arrays((*values, *queriers[seat].unfinished))
                    reserved.ledger.note(request.digest, _COMPUTED + seat, state)
                else:
                    named = (np.frombuffer(name.encode(), dtype=np.uint8), *values)
                    steps[seat] = StepRequest(study.digest, request.digest, INFERENCE, named)


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


def _first(request: VoteRequest, part: Dealt, study: Study) -> StepRequest:
    return StepRequest(study.digest, request.digest, DEALT, (part.sealed, part.signature))


def _stepped(reserved: ReservedBatch, steps: Mapping[str, StepRequest], left_out: dict[str, str]) -> dict[str, Arrays]:
    """Each seat's reply to a step; a seat without a usable reply is left out."""
    if not steps:
        return {}
    replies = reserved.exchange(steps)
    given_arrays = {}
    for seat, step in steps.items():
        reply: Reply | None = replies.get(seat)
        if isinstance(reply, StepReply) and (reply.batch_digest, reply.step) == (step.batch_digest, step.step):
            given_arrays[seat] = reply.arrays
        elif isinstance(reply, Refusal):
            left_out[seat] = code_of(reply)
        else:
            left_out[seat] = Code.ABSENT if reply is None else Code.BAD_REPLY
    return given_arrays
