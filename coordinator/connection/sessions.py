"""Asking the seats of a study over the open sessions: the transport behind the hub, without sockets.

A request goes to the open session of each seat's party, or to one that opens before the deadline; only the identical
request is ever sent again. A party has one session: a live one that serves seats is kept, and another is refused.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any  # the result of a function that is passed in

from coordinator.connection.admission import Admission
from coordinator.connection.open_study import OpenStudy, OutcomeFor
from coordinator.connection.places import Places
from coordinator.connection.receipts import BAD_RECEIPT, Answered, Late, last_without_receipt, record
from coordinator.connection.session import Question, Session, SessionEnded
from coordinator.connection.silences import Silences
from protocols.errors import Refused
from protocols.refusals.code import Code
from protocols.study.study import party_of
from protocols.wire.frames import NONCE_BYTES, Answer, Ask, Frame, SeatHeads
from protocols.wire.messages import Outcome, Refusal, Request, encode
from runtime.logs import Event

# Codes that no honest node answers to an outcome: see receipts.record.
_FAULTS = frozenset({BAD_RECEIPT, Code.MALFORMED})
# A session that its party ends sooner counts as a fault, of which an honest node is allowed a hundred.
_BRIEF_S = 2.0
# The part of the deadline that a connected party has in any case, also if it was silent before.
_IN_ANY_CASE = 1 / 32


class Sessions:
    """The open sessions, by party, and how their seats are asked. Used on the hub's event loop.

    seal: a frame's signed bytes; on_event: see Hub.
    """

    def __init__(self, *, seal: Callable[[Frame], bytes], on_event: Event) -> None:
        self.open: dict[str, Session] = {}
        self._changed = asyncio.Condition()
        self._seal = seal
        self._on_event = on_event
        self.admission = Admission(on_event=on_event)
        self.silences = Silences()

    async def add(self, session: Session) -> Session | None:
        """Admits a session; returns the one of the same party that it replaces, or None.

        Raises Refused("another_node") while the party has a session, unless the new one serves seats and the old one
        does not. The stream's keepalive removes a session whose other end is gone.
        """
        name = session.party.name
        older = self.open.get(name)
        if older is not None and (older.serves or not session.serves):
            older.rivals += 1
            raise Refused(
                Code.ANOTHER_NODE,
                f"another node answers as {name!r}, connected since "
                f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(older.since))} UTC: stop it, or this one; if it is "
                "gone, this node is admitted within a minute; if nobody knows it, tell the operator",
            )
        self.open[name] = session
        self.silences.connected(name)
        async with self._changed:
            self._changed.notify_all()
        return older

    def remove(self, session: Session) -> bool:
        """Ends a session; returns whether it was still the party's current one."""
        session.end()
        if self.open.get(session.party.name) is not session:
            return False
        del self.open[session.party.name]
        return True

    def count_brief(self, session: Session) -> None:
        """Counts a session that its party ended at once as a fault: each costs signatures and log lines."""
        if not session.closing.is_set() and time.time() - session.since < _BRIEF_S:
            self.admission.fault(session.party.name)

    async def wait_for(self, parties: frozenset[str], timeout_s: float) -> frozenset[str]:
        """Waits at most `timeout_s` for all these parties to have a session; returns those without one."""
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(lambda: parties <= set(self.open))
        except TimeoutError:
            pass
        return parties - set(self.open)

    async def ask_all(
        self, opened: OpenStudy, requests: Mapping[str, Request], *, relayed: bool = False
    ) -> dict[str, Answered | Late | None]:
        """Each seat's answer by the study's deadline; Late for a seat that was asked but did not answer, None
        otherwise. Seats that were silent before are not waited for once all others have answered (silences.py); if
        connected they have a small part of the deadline in any case.

        relayed: whether the study's other seats are asked too, each by itself.

        Raises Refused("coordinator_rolled_back") if a party knows an entry that the study's ledger lacks: what was
        released under the missing entries would be released again, with different noise.
        """
        deadline_s, now = opened.study.terms.deadline_s, asyncio.get_running_loop().time
        began = now()
        envelopes = {id(request): encode(request) for request in requests.values()}
        largest = max((len(envelope) for envelope in envelopes.values()), default=0)
        places = Places(seats=len(requests), largest=largest, deadline=began + deadline_s)

        parties, needed = {party_of(seat) for seat in requests}, opened.study.quorum
        rest = {party_of(seat) for seat in opened.study.seats} & set(self.open) - parties if relayed else set()
        others = sum(self.silences.expected(party, self.open, now_s=began) for party in rest)
        spared = self.silences.spared(parties, self.open, others=others, needed=needed, now_s=began)
        awaited = {seat for seat in requests if party_of(seat) not in spared}
        silent: set[str] = set()
        limits: dict[str, asyncio.Timeout] = {}

        def until(seat: str) -> float:
            """How long the round lasts for a seat: once all that are waited for have answered, not much longer."""
            if awaited:
                return began + deadline_s
            return began + deadline_s * _IN_ANY_CASE if party_of(seat) in self.open else 0.0

        def ended(seat: str) -> None:
            limits.pop(seat, None)
            awaited.discard(seat)
            if not awaited:
                for other, limit in limits.items():
                    if not limit.expired():
                        limit.reschedule(max(now(), until(other)))

        async def one(seat: str, request: Request) -> Answered | Late | None:
            session: Session | None = None
            try:
                async with asyncio.timeout_at(until(seat)) as limit:
                    limits[seat] = limit
                    while True:
                        session = await self._session_of(opened, seat)
                        try:
                            return await self.ask(session, opened, seat, request, envelopes[id(request)], places)
                        except SessionEnded:
                            self.remove(session)
                            session = None
            except TimeoutError:
                silent.add(party_of(seat))
                if session is None:
                    self._on_event("absent", {"seat": seat})
                    return None
                if session.writes:
                    self._does_not_read(session, seat)
                else:
                    self._on_event("late", {"seat": seat})
                return Late(deadline_s)
            finally:
                ended(seat)

        if opened.fault is None:
            answers = await asyncio.gather(*(one(seat, request) for seat, request in requests.items()))
            for party in parties - silent:
                self.silences.answered(party, now_s=now())
            for party in silent - spared:
                self.silences.missed(party, deadline_s=deadline_s, now_s=now())
        if opened.fault is not None:
            raise Refused(opened.fault.code, str(opened.fault).removeprefix(f"{opened.fault.code}: "))
        return dict(zip(requests, answers, strict=True))

    async def ask(
        self,
        session: Session,
        opened: OpenStudy,
        seat: str,
        request: Request,
        envelope: bytes,
        places: Places | None,
    ) -> Answered:
        """Asks one seat and waits for its answer. places: of the round; None for a small request.

        Raises SessionEnded if the stream ends first, or if the node does not read within its share of the time: a
        stream cannot continue after half a frame.
        """
        nonce = os.urandom(NONCE_BYTES)
        waiting: asyncio.Future[tuple[Answer, bytes]] = asyncio.get_running_loop().create_future()
        try:
            async with session.writing:
                signed_ask = await self._send(session, opened, seat, nonce, envelope, waiting, places)
            # The frame is dropped, so that it holds no memory while its answer is awaited.
            signed_ask = signed_ask if isinstance(request, Outcome) else b""
            answer, signed = await waiting
        finally:
            if session.waiting.pop(nonce, None) is not None:
                session.late += 1
        return Answered(signed_ask, signed, answer)

    async def _send(
        self,
        session: Session,
        opened: OpenStudy,
        seat: str,
        nonce: bytes,
        envelope: bytes,
        waiting: asyncio.Future[tuple[Answer, bytes]],
        places: Places | None,
    ) -> bytes:
        """Writes one Ask, holding a place; returns its signed bytes. Raises SessionEnded."""
        log = opened.ledger.log
        try:
            async with nullcontext() if places is None else places.taken():
                if session.closing.is_set():
                    raise SessionEnded
                session.round += 1
                session.waiting[nonce] = Question((opened.study.digest, seat, session.round), waiting)
                ask = Ask(
                    session.nonce, session.round, nonce, opened.study.digest, seat, log.head(), log.peer(seat), envelope
                )
                signed_ask = self._seal(ask)
                session.writes = True
                await session.send(signed_ask)
                session.writes = False
        except TimeoutError:
            self._does_not_read(session, seat)
            raise SessionEnded from None
        return signed_ask

    def _does_not_read(self, session: Session, seat: str) -> None:
        """Ends a session whose other end did not read a whole frame: it cannot continue after half of one."""
        self._on_event("not_read", {"seat": seat})
        self.remove(session)

    async def tell(
        self,
        session: Session,
        studies: Mapping[bytes, OpenStudy],
        heads_of_seats: Sequence[SeatHeads],
        aside: Callable[..., Awaitable[Any]],
    ) -> None:
        """Tells a party the outcomes that it missed, so that it settles its reservations; then it may be asked.

        Seat by seat and batch by batch, so that heads of its log come in order. An ended study is skipped, and so is
        the rest of a seat once it refused, since it would refuse the next for the same reason. A refusal is not a
        fault; an answer that no honest node gives counts as one, once per session. aside: runs a database function on
        another thread.
        """
        at_fault = False
        try:
            for heads in heads_of_seats:
                opened = studies.get(heads.study)
                if opened is not None and opened.outcome_for is not None and not opened.ended:
                    at_fault |= await self._tell_seat(session, opened, opened.outcome_for, heads, aside)
            if at_fault and not self.admission.fault(session.party.name):
                self.remove(session)
        except SessionEnded:
            return
        finally:
            session.told.set()

    async def _tell_seat(
        self,
        session: Session,
        opened: OpenStudy,
        outcome_for: OutcomeFor,
        heads: SeatHeads,
        aside: Callable[..., Awaitable[Any]],
    ) -> bool:
        """Tells one seat its outcomes until it refuses one; returns whether an answer was a fault."""
        seat, study, ledger = heads.seat, opened.study, opened.ledger
        keep = partial(record, on_event=self._on_event)
        unreceipted = await aside(last_without_receipt, ledger, seat)
        for digest in dict.fromkeys((*heads.untold, *unreceipted)):
            outcome = await aside(outcome_for, seat, digest)
            if outcome is None:
                continue
            answered = await self.ask(session, opened, seat, outcome, encode(outcome), None)
            reply = (await aside(keep, study, ledger, {seat: outcome}, {seat: answered}))[seat]
            if opened.on_told is not None:
                await aside(opened.on_told, seat, outcome, answered, reply)
            if isinstance(reply, Refusal):
                return reply.code in _FAULTS
        return False

    async def _session_of(self, opened: OpenStudy, seat: str) -> Session:
        """The open session of a seat's party; waits for one if there is none."""
        name, key = party_of(seat), (opened.study.digest, seat)
        async with self._changed:
            await self._changed.wait_for(lambda: name in self.open and key not in self.open[name].refused)
            session = self.open[name]
        await session.told.wait()
        return session
