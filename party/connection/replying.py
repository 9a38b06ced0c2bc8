"""One seat's reply to one Ask: checks who asks, what, and when, and keeps the evidence."""

from __future__ import annotations

import datetime

from party.connection.seat import COORDINATOR, ServedSeat
from protocols.crypto.identity import Identity
from protocols.errors import MalformedMessage
from protocols.refusals.code import Code
from protocols.wire.frames import Ask
from protocols.wire.messages import Outcome, Refusal, Reply, Settled, StepReply, StepRequest, VoteRequest, decode


def reply(ask: Ask, signed: bytes, sender: Identity, seat: ServedSeat, *, today: datetime.date) -> Reply:
    """A seat's reply to one Ask; the evidence is kept in the transaction in which this runs.

    signed: the frame as received; sender: who signed it; today: in UTC. Raises Refused if the logs are out of step.
    """
    log = seat.ledger.log
    log.check_known(ask.seen, by="the coordinator")
    log.remember(COORDINATOR, ask.own, proof=ask.proof)
    terms = seat.study.terms
    if sender.name != terms.coordinator:
        return _refuse(seat, Code.OTHER_COORDINATOR, f"{sender.name!r} asks; allowed: {terms.coordinator!r}")
    if terms.ended(today):
        return _refuse(seat, Code.STUDY_ENDED, f"the study ended on {terms.ends}")
    try:
        request = decode(ask.envelope)
    except MalformedMessage as error:
        return _refuse(seat, Code.MALFORMED, str(error))
    if not isinstance(request, VoteRequest | StepRequest | Outcome):
        return _refuse(
            seat, Code.MALFORMED, "a reply was sent as a request; allowed: vote_request, step_request, outcome"
        )
    if isinstance(request, VoteRequest):
        shape, allowed = request.batch.inputs.shape[1:], seat.study.sent_shape
        if shape != allowed:
            return _refuse(seat, Code.OTHER_SHAPE, f"queries of shape {shape}; allowed: {allowed}")
    reply = seat.party.handle(request)
    if not isinstance(reply, Refusal | StepReply):  # a step charges nothing: it may come before its batch
        digest = request.digest if isinstance(request, VoteRequest) else request.batch_digest
        kind = "outcome" if isinstance(reply, Settled) else "request"
        seat.ledger.log.keep(seat.ledger.charged_number(digest), COORDINATOR, kind, signed)
    return reply


def _refuse(seat: ServedSeat, code: str, reason: str) -> Refusal:
    seat.ledger.log.append("refused", code=code, request="Ask")
    return Refusal(code, f"{code}: {reason}")
