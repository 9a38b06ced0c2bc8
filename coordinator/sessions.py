"""Asking the seats of a study over the sessions that are open: the transport behind the hub, without a socket in it.

A request goes to the open session of each seat's party, and to one that opens before the deadline; nothing but the
same request is ever sent again. What came back is recorded, with heads and evidence, in one transaction a round.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any  # what a function that is passed in returns

from coordinator.logs import Event
from protocols.accounting.ledger import Ledger
from protocols.errors import MalformedMessage, Refused
from protocols.frames import NONCE_BYTES, Answer, Ask, Frame, Standing
from protocols.identity import Identity
from protocols.messages import (
    HiddenVotes,
    Outcome,
    Refusal,
    Reply,
    Request,
    Settled,
    StepReply,
    VoteReply,
    decode,
    encode,
)
from protocols.study import Study, party_of

# Requests that are on their way at once hold no more than this, with room for their replies.
_AT_ONCE_BYTES = 256 * 2**20
_REPLY_ROOM_BYTES = 2**19


class SessionEnded(Exception):
    """The stream of a session is gone; whether the last frame arrived is not known."""


@dataclass(frozen=True)
class Answered:
    """A question and its answer, as they were signed."""

    asked: bytes = field(repr=False)
    signed: bytes = field(repr=False)
    answer: Answer


# outcome_for(seat, digest of a request): what a party still waits for; see Coordinator.outcome_for.
OutcomeFor = Callable[[str, bytes], Outcome | None]
# on_told(seat, outcome, the frames, what it replied): a seat was told an outcome that it had missed.
OnTold = Callable[[str, Outcome, Answered, Reply | None], None]


@dataclass(frozen=True)
class Connected:
    """A node that is connected: since and last_seen in seconds since 1970, where from, and what it runs."""

    since: float
    last_seen: float
    address: str
    software: str
    wire_version: int


@dataclass(eq=False)
class Session:
    """One open stream of a party. send: writes bytes to it, or raises SessionEnded."""

    party: Identity
    nonce: bytes
    send: Callable[[bytes], Awaitable[None]]
    address: str
    software: str
    version: int
    since: float = field(default_factory=time.time)
    last_seen: float = field(default_factory=time.time)
    round: int = 0
    refused: set[tuple[bytes, str]] = field(default_factory=set)
    waiting: dict[bytes, asyncio.Future[tuple[Answer, bytes]]] = field(default_factory=dict, repr=False)
    # Set once the party was told the outcomes that it missed: heads of its log then come in order.
    told: asyncio.Event = field(default_factory=asyncio.Event)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    renewed_s: float = 0.0
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def connected(self) -> Connected:
        """What an operator sees of it."""
        return Connected(self.since, self.last_seen, self.address, self.software, self.version)

    def answered(self, answer: Answer, signed: bytes) -> None:
        """Hands an answer to whoever waits for it; one that nobody waits for is dropped."""
        waiting = self.waiting.pop(answer.nonce, None)
        if waiting is not None and not waiting.done():
            waiting.set_result((answer, signed))

    async def until_closing(self, reading: Awaitable[object]) -> object:
        """What was read; None when the session is to end before."""
        read, closing = asyncio.ensure_future(reading), asyncio.ensure_future(self.closing.wait())
        try:
            await asyncio.wait((read, closing), return_when=asyncio.FIRST_COMPLETED)
            return read.result() if read.done() else None
        finally:
            read.cancel()
            closing.cancel()

    def end(self) -> None:
        """Nobody waits for this stream any more, and whoever reads it stops."""
        self.told.set()
        self.closing.set()
        for answer in self.waiting.values():
            if not answer.done():
                answer.set_exception(SessionEnded())
                answer.exception()  # looked at, though nobody may wait


@dataclass(eq=False)
class OpenStudy:
    """A study whose seats may be asked, with the coordinator's ledger of it.

    fault: why nobody may be asked any more: a party knows more of this ledger than the ledger does.
    """

    study: Study
    ledger: Ledger
    outcome_for: OutcomeFor | None
    on_told: OnTold | None = None
    fault: Refused | None = None


class Sessions:
    """The sessions that are open, by party, and how their seats are asked. Lives on the hub's event loop.

    seal: a frame's signed bytes; on_event: see Hub.
    """

    def __init__(self, *, seal: Callable[[Frame], bytes], on_event: Event) -> None:
        self.open: dict[str, Session] = {}
        self._changed = asyncio.Condition()
        self._seal = seal
        self._on_event = on_event

    async def add(self, session: Session) -> Session | None:
        """Takes a session in; returns the one of the same party that it replaces."""
        older = self.open.get(session.party.name)
        self.open[session.party.name] = session
        async with self._changed:
            self._changed.notify_all()
        return older

    def remove(self, session: Session) -> bool:
        """Ends a session; whether it was still the party's."""
        session.end()
        if self.open.get(session.party.name) is not session:
            return False
        del self.open[session.party.name]
        return True

    async def wait_for(self, parties: frozenset[str], timeout_s: float) -> frozenset[str]:
        """Waits until all these parties have a session, or the time is over; returns those that have none."""
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(lambda: parties <= set(self.open))
        except TimeoutError:
            pass
        return parties - set(self.open)

    async def ask_all(self, opened: OpenStudy, requests: Mapping[str, Request]) -> dict[str, Answered | None]:
        """What each seat answered before the study's deadline; None for one that did not.

        Raises Refused("coordinator_rolled_back") when a party knows more of the study's ledger than it holds: what
        was released under the missing entries would be released again, with other noise.
        """
        terms = opened.study.terms
        assert terms is not None  # open_study checked it
        deadline = asyncio.get_running_loop().time() + terms.deadline_s
        envelopes = {id(request): encode(request) for request in requests.values()}
        largest = max((len(envelope) for envelope in envelopes.values()), default=0)
        at_once = asyncio.Semaphore(max(1, _AT_ONCE_BYTES // (largest + _REPLY_ROOM_BYTES)))

        async def one(seat: str, envelope: bytes) -> Answered | None:
            try:
                async with asyncio.timeout_at(deadline), at_once:
                    while True:
                        session = await self._session_of(opened, seat)
                        try:
                            return await self.ask(session, opened, seat, envelope)
                        except SessionEnded:
                            self.remove(session)
            except TimeoutError:
                self._on_event("absent", {"seat": seat})
                return None

        if opened.fault is None:
            asked = (one(seat, envelopes[id(request)]) for seat, request in requests.items())
            answers = await asyncio.gather(*asked)
        if opened.fault is not None:
            raise Refused(opened.fault.code, str(opened.fault).removeprefix(f"{opened.fault.code}: "))
        return dict(zip(requests, answers, strict=True))

    async def ask(self, session: Session, opened: OpenStudy, seat: str, envelope: bytes) -> Answered:
        """Asks one seat and waits for its answer. Raises SessionEnded when the stream ends before."""
        log = opened.ledger.log
        nonce = os.urandom(NONCE_BYTES)
        waiting: asyncio.Future[tuple[Answer, bytes]] = asyncio.get_running_loop().create_future()
        session.waiting[nonce] = waiting
        try:
            async with session.writing:
                session.round += 1
                ask = Ask(
                    session.nonce, session.round, nonce, opened.study.digest, seat, log.head(), log.peer(seat), envelope
                )
                asked = self._seal(ask)
                await session.send(asked)
            answer, signed = await waiting
        finally:
            session.waiting.pop(nonce, None)
        if (answer.study, answer.seat, answer.round) != (ask.study, ask.seat, ask.round):
            raise SessionEnded
        return Answered(asked, signed, answer)

    async def tell(
        self,
        session: Session,
        studies: Mapping[bytes, OpenStudy],
        standings: Sequence[Standing],
        aside: Callable[..., Awaitable[Any]],
    ) -> None:
        """Tells a party the outcomes that it missed, so that it settles what it reserved; then it may be asked.

        Seat by seat and batch by batch: heads of its log then come in the order in which they were made. aside: runs
        a function that looks into a database on another thread.
        """
        keep = partial(record, on_event=self._on_event)
        try:
            for standing in standings:
                opened = studies.get(standing.study)
                if opened is None or opened.outcome_for is None:
                    continue
                unreceipted = await aside(_last_without_receipt, opened, standing.seat)
                for digest in dict.fromkeys((*standing.unsettled, *unreceipted)):
                    outcome = await aside(opened.outcome_for, standing.seat, digest)
                    if outcome is not None:
                        answered = await self.ask(session, opened, standing.seat, encode(outcome))
                        replies = await aside(keep, opened, {standing.seat: outcome}, {standing.seat: answered})
                        if opened.on_told is not None:
                            await aside(opened.on_told, standing.seat, outcome, answered, replies[standing.seat])
        except SessionEnded:
            return
        finally:
            session.told.set()

    async def _session_of(self, opened: OpenStudy, seat: str) -> Session:
        """The open session of a seat's party; waits for one."""
        name, key = party_of(seat), (opened.study.digest, seat)
        async with self._changed:
            await self._changed.wait_for(lambda: name in self.open and key not in self.open[name].refused)
            session = self.open[name]
        await session.told.wait()
        return session


def check_standing(opened: OpenStudy, party: str, standing: Standing) -> None:
    """Raises Refused if the seat is not this party's, or one of the two logs went back."""
    if standing.seat not in opened.study.seats or party_of(standing.seat) != party:
        raise Refused("wrong_seat", f"the seat {standing.seat!r} is not one of {party!r} in this study")
    log = opened.ledger.log
    try:
        log.check_known(standing.coordinator, by=standing.seat)
    except Refused as error:
        opened.fault = Refused("coordinator_rolled_back", f"the coordinator's ledger is not the newest: {error}")
        raise opened.fault from None
    log.check_newer(standing.seat, standing.own)


def record(
    opened: OpenStudy, requests: Mapping[str, Request], answers: Mapping[str, Answered | None], *, on_event: Event
) -> dict[str, Reply | None]:
    """Decodes the answers, and keeps heads and evidence of all of them in one transaction."""
    replies: dict[str, Reply | None] = dict.fromkeys(requests)
    log, ledger = opened.ledger.log, opened.ledger
    with log.together():
        for seat, answered in answers.items():
            if answered is None:
                continue
            try:
                reply = _reply(answered.answer.envelope)
                # An answer that holds votes is not kept.
                proof = answered.signed if isinstance(reply, Settled) else b""
                if not (isinstance(reply, Refusal) and reply.code == "unknown_study"):  # such a node has no log of it
                    log.remember(seat, answered.answer.own, proof=proof)
            except MalformedMessage as error:
                reply = Refusal("malformed", str(error))
            except Refused as error:
                reply = Refusal(error.code, str(error))
            replies[seat] = reply
            request = requests[seat]
            if isinstance(reply, Refusal):
                on_event("refusal", {"seat": seat, "code": reply.code, "reason": reply.reason[:500]})
                log.append("refused_by", seat=seat, code=reply.code[:80])
            elif isinstance(request, Outcome) and isinstance(reply, Settled):
                number = ledger.number_of(request.batch_digest)
                if number is not None:
                    log.keep(number, seat, "outcome", answered.asked)
                    log.keep(number, seat, "settled", answered.signed)
    return replies


def _last_without_receipt(opened: OpenStudy, seat: str) -> tuple[bytes, ...]:
    """The request of the newest batch that a seat paid for, if its receipt was lost: one receipt covers all before."""
    stored = opened.ledger.last_settled(seat)
    if stored is None or opened.ledger.log.kept(stored.number, seat, "settled"):
        return ()
    return (stored.digest,)


def _reply(envelope: bytes) -> Reply:
    """A reply; a request in its place is malformed."""
    reply = decode(envelope)
    if not isinstance(reply, VoteReply | HiddenVotes | StepReply | Settled | Refusal):
        raise MalformedMessage(f"{type(reply).__name__} came as a reply")
    return reply
