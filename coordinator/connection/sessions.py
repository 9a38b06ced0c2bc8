"""Asking the seats of a study over the open sessions: the transport behind the hub, without sockets.

A request goes to the open session of each seat's party, or to one that opens before the deadline; only the identical
request is ever sent again. A party has one session: a live one that serves seats is kept, and another is refused.

A round asks everybody, and takes every answer that comes before the others have answered; it only does not wait until
the deadline for a party that was silent before. One that is not connected is waited for again when it connects. One
that is connected is waited for in full again when it has answered or after 2, 4, 8 ... 64 deadlines; after three
silences only the time counts, so a party that answers between its silences gains nothing. So k absent parties cost a
labelling one deadline, and not one in every round. Who is waited for depends on who answered when, and on nothing else:
absence is assumed not to depend on patients (docs/explanation/threat-model.md), and a round's quorum is as it was.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any  # the result of a function that is passed in

from coordinator.connection.admission import Admission
from coordinator.connection.open_study import (
    BAD_RECEIPT,
    Answered,
    Late,
    OpenStudy,
    OutcomeFor,
    last_without_receipt,
    record,
)
from protocols.crypto.identity import Identity
from protocols.errors import MalformedMessage, Refused
from protocols.plural import utc
from protocols.refusals.code import Code
from protocols.study.study import party_of
from protocols.wire.frames import NONCE_BYTES, Answer, Ask, Frame, SeatHeads
from protocols.wire.messages import Outcome, Refusal, Request, encode
from runtime.logs import Event

# Memory for the requests in flight at once, which leaves room for their replies.
_AT_ONCE_BYTES = 256 * 2**20
_REPLY_ROOM_BYTES = 2**19


class Places:
    """The places of one round: for `seats` requests of at most `largest` bytes, until `deadline` (in the loop's time).

    Used on one event loop.
    """

    def __init__(self, *, seats: int, largest: int, deadline: float) -> None:
        self._at_once = max(1, _AT_ONCE_BYTES // (largest + _REPLY_ROOM_BYTES))
        self._free = asyncio.Semaphore(self._at_once)
        self._unsent = seats
        self._deadline = deadline
        self._waiting = 0
        # For each holder, when its share of the time ends; that matters only while another waits.
        self._held: dict[asyncio.Timeout, float] = {}

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Waits for a place, and holds it. Raises TimeoutError when its share is over and another waits for a place.

        A share leaves equal time to every seat that was not yet sent its request, connected or not.
        """
        if self._free.locked():
            self._count_waiting(1)
            try:
                await self._free.acquire()
            finally:
                self._count_waiting(-1)
        else:
            await self._free.acquire()
        try:
            turns = -(-self._unsent // self._at_once)
            now = asyncio.get_running_loop().time()
            async with asyncio.timeout(None) as limit:
                self._held[limit] = now + (self._deadline - now) / max(turns, 1)
                self._limit(limit)
                try:
                    yield
                finally:
                    del self._held[limit]
            self._unsent -= 1
        finally:
            self._free.release()

    def _count_waiting(self, more: int) -> None:
        self._waiting += more
        for limit in self._held:
            self._limit(limit)

    def _limit(self, limit: asyncio.Timeout) -> None:
        if not limit.expired():
            limit.reschedule(self._held[limit] if self._waiting else None)


# Deadlines between two rounds that wait for a silent party, at most; after as many without a silence it is forgotten.
_MOST_DEADLINES = 64
# Silences after which a party is waited for again as soon as it connects or answers.
_FORGIVEN = 3


@dataclass(frozen=True)
class Silence:
    """A party that did not answer. since_s: when it was first asked in vain, in seconds since 1970; times: deadlines
    that it missed; answered: whether it has answered since; until_s, forgotten_s: when it is waited for again, and when
    this is forgotten if it answers, by the loop's clock."""

    since_s: float
    times: int
    answered: bool
    until_s: float
    forgotten_s: float


class Silences:
    """The silent parties of one coordinator. Used on the hub's event loop; `of` may be read from any thread.

    now_s: by the loop's clock; clock: seconds since 1970.
    """

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self.of: dict[str, Silence] = {}
        self._clock = clock

    def spared(
        self, parties: Collection[str], connected: Collection[str], *, others: int, needed: int, now_s: float
    ) -> frozenset[str]:
        """Those of a round's parties for which it does not wait until the deadline.

        others: parties that are asked apart from this round, and expected to answer; needed: how many a batch needs. If
        too few are waited for, the round waits for all that are connected.
        """
        found = {party for party in parties if not self.expected(party, connected, now_s=now_s)}
        if others + len(set(parties) - found) < needed:
            found -= set(connected)
        return frozenset(found)

    def expected(self, party: str, connected: Collection[str], *, now_s: float) -> bool:
        """Whether to wait for a party: it was not silent before, or it is time to wait for it again."""
        known = self.of.get(party)
        return known is None or (party in connected and now_s >= known.until_s)

    def missed(self, party: str, *, deadline_s: float, now_s: float) -> None:
        """The party was waited for until the deadline, and did not answer. deadline_s: of the study."""
        known = self.of.get(party)
        times = 1 if known is None else known.times + 1
        since_s = self._clock() if known is None or known.answered else known.since_s
        pause_s, forget_s = min(2**times, _MOST_DEADLINES) * deadline_s, _MOST_DEADLINES * deadline_s
        self.of[party] = Silence(since_s, times, False, now_s + pause_s, now_s + forget_s)

    def connected(self, party: str) -> None:
        """The party has connected: the next round waits for it, unless it was silent several times."""
        known = self.of.get(party)
        if known is not None and known.times <= _FORGIVEN:
            self.of[party] = replace(known, until_s=0.0)

    def answered(self, party: str, *, now_s: float) -> None:
        """The party answered in time."""
        known = self.of.get(party)
        if known is None:
            return
        if now_s >= known.forgotten_s:
            del self.of[party]
        else:
            until_s = 0.0 if known.times <= _FORGIVEN else known.until_s
            self.of[party] = replace(known, answered=True, until_s=until_s)


# A session ends after more unrequested frames than this.
UNASKED = 16


_HELLO_BYTES = 2**20
_HELLO_WAIT_S = 10.0


class SessionEnded(Exception):
    """The stream of a session is gone; whether the last frame arrived is unknown."""


@dataclass(frozen=True)
class Connected:
    """A connected node: since and last_seen in seconds since 1970, its address, its software, and the seats that it may
    be asked for, by the study's digest: those that its hospital approved."""

    since: float
    last_seen: float
    address: str
    software: str
    wire_version: int
    seats: frozenset[tuple[bytes, str]]


@dataclass(frozen=True, eq=False)
class Awaited:
    """An Ask that awaits its answer; about: the study, seat and round that the answer must name."""

    about: tuple[bytes, str, int]
    answer: asyncio.Future[tuple[Answer, bytes]] = field(repr=False)


@dataclass(eq=False)
class Session:
    """One open stream of a party. send: writes bytes to it, or raises SessionEnded.

    seats: those that it offered and that were not refused; serves: whether there is one; late: requests whose answer
    may still come though nobody waits for it; unasked: number of unrequested frames; rivals: how often another node of
    the party dialled; writes: whether a frame is being written.
    """

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
    seats: frozenset[tuple[bytes, str]] = frozenset()
    serves: bool = False
    late: int = 0
    unasked: int = 0
    rivals: int = 0
    writes: bool = False
    waiting: dict[bytes, Awaited] = field(default_factory=dict, repr=False)
    # Set once the party was told the outcomes it missed: from then on, heads of its log arrive in order.
    told: asyncio.Event = field(default_factory=asyncio.Event)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    reading: asyncio.Future[object] | None = field(default=None, repr=False)
    renewed_s: float = 0.0
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def connected(self) -> Connected:
        """The session as an operator sees it."""
        return Connected(self.since, self.last_seen, self.address, self.software, self.version, self.seats)

    def answered(self, answer: Answer, signed: bytes) -> None:
        """Passes an answer to whoever waits for it; drops a late one.

        Raises MalformedMessage for an answer to another request, Refused as count_unasked does.
        """
        awaited = self.waiting.get(answer.nonce)
        if awaited is not None:
            if (answer.study, answer.seat, answer.round) != awaited.about:
                raise MalformedMessage(
                    f"the answer is about seat {answer.seat[:80]!r}, round {answer.round}; allowed: "
                    f"{awaited.about[1]!r}, round {awaited.about[2]}, as was asked"
                )
            del self.waiting[answer.nonce]
            if not awaited.answer.done():
                awaited.answer.set_result((answer, signed))
        elif self.late:
            self.late -= 1
        else:
            self.count_unasked()

    def count_unasked(self) -> None:
        """Counts an unrequested frame. Raises Refused("unasked_frames") above UNASKED of them."""
        self.unasked += 1
        if self.unasked > UNASKED:
            raise Refused(Code.UNASKED_FRAMES, f"{self.unasked} unrequested frames came; allowed: {UNASKED}")

    async def until_closing(self, reading: Awaitable[object]) -> object:
        """Awaits `reading`; None if the session should end first."""
        self.reading = asyncio.ensure_future(reading)
        if self.closing.is_set():
            self.reading.cancel()
        try:
            return await self.reading
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self.closing.is_set() or (task is not None and task.cancelling()):
                raise
            return None

    def end(self) -> None:
        """Ends every wait for this stream, and the task that reads it."""
        self.told.set()
        self.closing.set()
        if self.reading is not None:
            self.reading.cancel()
        for awaited in self.waiting.values():
            if not awaited.answer.done():
                awaited.answer.set_exception(SessionEnded())
                awaited.answer.exception()  # retrieved even if nobody waits


async def first_frame(reading: Awaitable[object]) -> object:
    """A node's first frame. Raises Refused if none comes in time, MalformedMessage if it is larger than a Hello may
    be.
    """
    try:
        data = await asyncio.wait_for(reading, _HELLO_WAIT_S)
    except TimeoutError:
        raise Refused(Code.NO_HELLO, f"no hello within {_HELLO_WAIT_S:g} seconds") from None
    if isinstance(data, bytes) and len(data) > _HELLO_BYTES:
        raise MalformedMessage(f"hello has {len(data)} bytes; allowed: at most {_HELLO_BYTES}")
    return data


# Codes that no honest node answers to an outcome: see open_study.record.
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
                f"{utc(older.since)}: stop it, or this one; if it is "
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
        otherwise. Seats that were silent before are not waited for once all others have answered; if
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
        self, session: Session, opened: OpenStudy, seat: str, request: Request, envelope: bytes, places: Places | None
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
                session.waiting[nonce] = Awaited((opened.study.digest, seat, session.round), waiting)
                ask = Ask(session.nonce, session.round, nonce, opened.study.digest, seat, *log.heads(seat), envelope)
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
