"""One open stream of a party, and the questions that it has still to answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from protocols.crypto.identity import Identity
from protocols.errors import MalformedMessage, Refused
from protocols.refusals.code import Code
from protocols.wire.frames import Answer

# Frames of a session that nobody asked for; beyond them it is ended.
UNASKED = 16


class SessionEnded(Exception):
    """The stream of a session is gone; whether the last frame arrived is not known."""


@dataclass(frozen=True)
class Connected:
    """A node that is connected: since and last_seen in seconds since 1970, where from, and what it runs."""

    since: float
    last_seen: float
    address: str
    software: str
    wire_version: int


@dataclass(frozen=True, eq=False)
class Question:
    """An Ask whose answer is waited for: study, seat and round that the answer must name."""

    about: tuple[bytes, str, int]
    answer: asyncio.Future[tuple[Answer, bytes]] = field(repr=False)


@dataclass(eq=False)
class Session:
    """One open stream of a party. send: writes bytes to it, or raises SessionEnded.

    serves: whether it offered a seat that was not refused; late: questions whose answer may still come, though nobody
    waits for it; unasked: frames that nobody asked for; rivals: times that another node came beside it; writes: whether
    a frame is on its way.
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
        """Hands an answer to whoever waits for it; a late one is dropped.

        Raises MalformedMessage for the answer to another question, Refused as count_unasked does.
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
        """One more frame that nobody asked for. Raises Refused("unasked_frames") beyond UNASKED of them."""
        self.unasked += 1
        if self.unasked > UNASKED:
            raise Refused(Code.UNASKED_FRAMES, f"{self.unasked} frames came that nobody asked for; allowed: {UNASKED}")

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
        for question in self.waiting.values():
            if not question.answer.done():
                question.answer.set_exception(SessionEnded())
                question.answer.exception()  # looked at, though nobody may wait
