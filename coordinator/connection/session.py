"""One open stream of a party, and the requests that it still has to answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from protocols.crypto.identity import Identity
from protocols.errors import MalformedMessage, Refused
from protocols.refusals.code import Code
from protocols.wire.frames import Answer

# A session ends after more unrequested frames than this.
UNASKED = 16
# How often an open session or call looks whether its party was denied meanwhile.
DENY_POLL_S = 0.5


_HELLO_BYTES = 2**20
_HELLO_WAIT_S = 10.0


class SessionEnded(Exception):
    """The stream of a session is gone; whether the last frame arrived is unknown."""


@dataclass(frozen=True)
class Connected:
    """A connected node: since and last_seen in seconds since 1970, its address, and its software."""

    since: float
    last_seen: float
    address: str
    software: str
    wire_version: int


@dataclass(frozen=True, eq=False)
class Question:
    """An Ask that awaits its answer; about: the study, seat and round that the answer must name."""

    about: tuple[bytes, str, int]
    answer: asyncio.Future[tuple[Answer, bytes]] = field(repr=False)


@dataclass(eq=False)
class Session:
    """One open stream of a party. send: writes bytes to it, or raises SessionEnded.

    serves: whether it offered a seat that was not refused; late: requests whose answer may still come though nobody
    waits for it; unasked: number of unrequested frames; rivals: how often another node of the party dialled; writes:
    whether a frame is being written.
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
    serves: bool = False
    late: int = 0
    unasked: int = 0
    rivals: int = 0
    writes: bool = False
    waiting: dict[bytes, Question] = field(default_factory=dict, repr=False)
    # Set once the party was told the outcomes it missed: from then on, heads of its log arrive in order.
    told: asyncio.Event = field(default_factory=asyncio.Event)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    renewed_s: float = 0.0
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def connected(self) -> Connected:
        """The session as an operator sees it."""
        return Connected(self.since, self.last_seen, self.address, self.software, self.version)

    def answered(self, answer: Answer, signed: bytes) -> None:
        """Passes an answer to whoever waits for it; drops a late one.

        Raises MalformedMessage for an answer to another request, Refused as count_unasked does.
        """
        question = self.waiting.get(answer.nonce)
        if question is not None:
            if (answer.study, answer.seat, answer.round) != question.about:
                raise MalformedMessage(
                    f"the answer is about seat {answer.seat[:80]!r}, round {answer.round}; allowed: "
                    f"{question.about[1]!r}, round {question.about[2]}, as was asked"
                )
            del self.waiting[answer.nonce]
            if not question.answer.done():
                question.answer.set_result((answer, signed))
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
        read, closing = asyncio.ensure_future(reading), asyncio.ensure_future(self.closing.wait())
        try:
            await asyncio.wait((read, closing), return_when=asyncio.FIRST_COMPLETED)
            return read.result() if read.done() else None
        finally:
            read.cancel()
            closing.cancel()

    def end(self) -> None:
        """Ends every wait for this stream, and the task that reads it."""
        self.told.set()
        self.closing.set()
        for question in self.waiting.values():
            if not question.answer.done():
                question.answer.set_exception(SessionEnded())
                question.answer.exception()  # retrieved even if nobody waits


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
