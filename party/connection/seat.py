"""A seat that a node answers for: its reply to one Ask, what must be on disk before it leaves, and what the log says.

Nothing in the log depends on a vote: a charge follows from what was asked, and from which queries the coordinator
answered.
"""

from __future__ import annotations

import datetime
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from party.budget.spending import spending
from party.party import Party
from protocols.crypto.identity import Identity
from protocols.errors import MalformedMessage, Refused
from protocols.ledger.ledger import Ledger
from protocols.refusals.code import Code
from protocols.study.deployed import DeployedStudy
from protocols.wire.frames import Ask, SeatHeads
from protocols.wire.messages import (
    ConcealedVotes,
    Outcome,
    Refusal,
    Reply,
    Settled,
    StepReply,
    StepRequest,
    VoteReply,
    VoteRequest,
    decode,
)

# The name under which a ledger's log knows the coordinator.
COORDINATOR = "coordinator"


@dataclass(frozen=True)
class ServedSeat:
    """One approved seat of one study, with its party and that party's ledger.

    anchor: called when a charge is on disk, before the reply leaves; if it raises, nothing leaves.
    """

    study: DeployedStudy
    party: Party
    ledger: Ledger
    anchor: Callable[[], None]

    def answer(self, reply: Callable[[], Reply]) -> Reply:
        """Runs `reply` within the ledger's transaction, and returns its reply once the charge cannot be forgotten.

        Returns a Refusal if that cannot be ensured. Raises what `reply` does, with nothing charged, and StorageFailed:
        then nothing may be sent.
        """
        with self.ledger.log.together():
            said = reply()
        if isinstance(said, Refusal | Settled):  # if a settlement is forgotten, the reservation only stays higher
            return said
        try:
            self.anchor()
        except Refused as error:
            self.ledger.log.append("refused", code=error.code, request="anchor")
            return Refusal(error.code, str(error))
        return said


def seat_heads(seat: ServedSeat) -> SeatHeads:
    """The heads that the seat knows, and the requests whose outcome never came; with the coordinator's signature.

    An outcome is kept in the transaction in which it settles, so the seat needs no other.
    """
    log, untold = seat.ledger.log, seat.ledger.without_evidence(COORDINATOR, "outcome")
    with log.together():
        known, proof = log.peer(COORDINATOR), log.proof_of_peer(COORDINATOR)
    return SeatHeads(seat.study.digest, seat.party.name, log.head(), known, tuple(untold), proof)


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
        if isinstance(request, VoteRequest):
            number = request.batch.number
        else:
            number = seat.ledger.charged_number(request.batch_digest)
        seat.ledger.log.keep(number, COORDINATOR, "outcome" if isinstance(reply, Settled) else "request", signed)
    return reply


def _refuse(seat: ServedSeat, code: str, reason: str) -> Refusal:
    seat.ledger.log.append("refused", code=code, request="Ask")
    return Refusal(code, f"{code}: {reason}")


def charge_of(seat: ServedSeat, said: Reply) -> tuple[str, dict[str, str | int | float]] | None:
    """The event and its fields for a reply that was charged or settled; None for any other.

    "answered": the batch is reserved as if every query were answered; "settled": the outcome is
    known, and what the queries that were not answered cost less is returned.
    """
    if not isinstance(said, VoteReply | ConcealedVotes | Settled):
        return None
    stored = seat.ledger.stored_under(said.batch_digest)
    if stored is None:
        return None
    found = spending(seat.study, seat.party.name, seat.ledger.balance(seat.party.name).spent)
    return "settled" if isinstance(said, Settled) else "answered", {
        "study": seat.study.name,
        "seat": seat.party.name,
        "batch": stored.number,
        "queries": stored.queries,
        "answers_left": found.answers_left,
        "epsilon_used": found.epsilon_used,
        "epsilon_cap": found.epsilon_cap,
    }


_LAST_WORDS_S = 1.0
_LOOK_S = 0.1
_UNSENT = 4


class Outgoing:
    """The frames still to be sent: an iterator that ends when it is closed and empty."""

    def __init__(self) -> None:
        # A coordinator that asks but does not read gets no more answers: they would pile up.
        self._frames: queue.Queue[bytes | None] = queue.Queue(_UNSENT)
        self._drained = threading.Event()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        frame = self._frames.get()
        if frame is None:
            self._drained.set()
            raise StopIteration
        return frame

    def put(self, frame: bytes, *, waits: Callable[[], bool]) -> None:
        """Queues a frame. Waits for room while `waits()` is true; then raises Refused("not_read")."""
        while True:
            try:
                return self._frames.put(frame, timeout=_LOOK_S)
            except queue.Full:
                if not waits():
                    raise Refused(
                        Code.NOT_READ, "the coordinator does not read the answers that it asked for"
                    ) from None

    def close(self) -> None:
        """Ends the iterator; waits a moment until the last frames, such as a goodbye, are taken."""
        try:
            self._frames.put(None, timeout=_LAST_WORDS_S)
        except queue.Full:
            return
        self._drained.wait(_LAST_WORDS_S)
