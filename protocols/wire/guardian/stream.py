"""A channel between two servers, made of two streams of pieces; the transport of the pieces stays outside.

A message may be larger than the transport allows, so it is sent in pieces of at most PIECE_BYTES, each preceded by its
kind. A sender waits for a slow reader, and a side that is silent for too long counts as gone.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator

from protocols.errors import ChannelClosed, MalformedMessage

PIECE_BYTES = 2**18
# With the byte for a piece's kind.
CARRIED_BYTES = PIECE_BYTES + 1
# Of messages waiting to be sent or read; one more message may always be sent.
_WAITING_BYTES = 64 * 2**20
_PART, _LAST, _GOODBYE = 0, 1, 2
_GOODBYE_CHARACTERS = 500


class EndedByPeer(ChannelClosed):
    """The other side ended the conversation with a reason. code: stable and machine-readable."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(f"the other side ended the conversation: {code}: {reason}")
        self.code = code
        self.reason = reason


class GuardianStream:
    """One end of a channel. Its user calls send, recv and close; its transport iterates `outgoing` and calls `feed`.

    silence_s: how long the other side may neither send nor read. Methods may be called from several threads.
    """

    def __init__(self, *, silence_s: float | int) -> None:
        self._silence_s = silence_s
        self._changed = threading.Condition()
        self._unsent: deque[tuple[int, memoryview]] = deque()
        self._unread: deque[tuple[int, bytes]] = deque()
        self._unsent_bytes = 0
        self._unread_bytes = 0
        self._closed = False  # nothing more is sent than what waits
        self._carried = False  # all of it was taken by the carrier
        self._gone: ChannelClosed | None = None  # nothing more is read than what waits

    def send(self, data: bytes) -> None:
        """Sends one message. Raises ChannelClosed when the other side is gone or reads nothing."""
        self._put(_LAST, memoryview(data))

    def recv(self, limit: int, *, within_s: float | int | None = None) -> bytes:
        """The next message. within_s: how long it may take until a piece of it is there [silence_s].

        Raises MalformedMessage above `limit` bytes, after which nothing more is read; ChannelClosed, or EndedByPeer if
        the other side gave a reason.
        """
        parts: list[bytes] = []
        size, kind = 0, _PART
        while kind == _PART:
            kind, payload = self._take(self._silence_s if within_s is None else within_s)
            size += len(payload)
            if size > limit:
                with self._changed:
                    self._stop_reading(ChannelClosed("a message was too large; nothing after it is read"), drop=True)
                raise MalformedMessage(f"message has more than {limit} bytes; allowed: at most {limit}")
            parts.append(payload)
        return b"".join(parts)

    def say_goodbye(self, code: str, reason: str) -> None:
        """Ends the conversation with a reason; the other side may be gone already."""
        text = f"{code}\n{reason[:_GOODBYE_CHARACTERS]}".encode()
        try:
            self._put(_GOODBYE, memoryview(text))
        except ChannelClosed:
            pass
        self.close()

    def cut(self, code: str, reason: str) -> None:
        """Ends the conversation at once with a reason: what waits is neither sent nor read any more."""
        with self._changed:
            self._unsent.clear()
            self._unsent_bytes = 0
            self._stop_reading(ChannelClosed(f"{code}: {reason}"), drop=True)
        self.say_goodbye(code, reason)

    def close(self) -> None:
        """Sends what waits, and no more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def abort(self, reason: str) -> None:
        """Drops what waits to be sent: the transport broke, or the conversation is useless."""
        with self._changed:
            self._closed = True
            self._unsent.clear()
            self._stop_reading(ChannelClosed(reason), drop=True)

    def carried(self, *, timeout_s: float | int) -> bool:
        """After close, waits until the transport has taken everything; returns whether it has."""
        with self._changed:
            return self._changed.wait_for(lambda: self._carried, timeout_s)

    def outgoing(self) -> Iterator[bytes]:
        """The pieces to send, until the stream is closed and empty, or aborted."""
        try:
            while (piece := self._next_piece()) is not None:
                yield piece
        finally:
            with self._changed:
                self._carried = True
                self._changed.notify_all()

    def feed(self, pieces: Iterable[bytes]) -> None:
        """Takes pieces from the transport until they end; they raise ChannelClosed when it breaks."""
        gone = ChannelClosed("the other side closed the channel")
        try:
            for piece in pieces:
                if not self._take_in(piece):
                    return
        except ChannelClosed as error:
            gone = error
        with self._changed:
            self._stop_reading(gone)

    def _put(self, kind: int, data: memoryview) -> None:
        with self._changed:
            while not self._closed and (before := self._unsent_bytes) > _WAITING_BYTES:
                if not self._changed.wait_for(lambda: self._closed or self._unsent_bytes < before, self._silence_s):
                    raise ChannelClosed(f"the other side read nothing in {self._silence_s:g} s")
            if self._closed:
                raise self._gone or ChannelClosed("this side closed the channel")
            self._unsent.append((kind, data))
            self._unsent_bytes += len(data)
            self._changed.notify_all()

    def _next_piece(self) -> bytes | None:
        with self._changed:
            self._changed.wait_for(lambda: self._unsent or self._closed)
            if not self._unsent:
                return None
            kind, data = self._unsent.popleft()
            if len(data) > PIECE_BYTES:
                self._unsent.appendleft((kind, data[PIECE_BYTES:]))
                kind, data = _PART, data[:PIECE_BYTES]
            self._unsent_bytes -= len(data)
            self._changed.notify_all()
        return bytes([kind]) + data

    def _take_in(self, piece: bytes) -> bool:
        """Stores one piece for recv; returns whether more are wanted."""
        with self._changed:
            if not _allowed(piece):
                self._stop_reading(ChannelClosed(f"a piece of {len(piece)} bytes is none of this wire"))
                return False
            if piece[0] == _GOODBYE:
                code, _, reason = piece[1:].decode(errors="replace").partition("\n")
                self._stop_reading(EndedByPeer(_printable(code)[:40], _printable(reason)[:_GOODBYE_CHARACTERS]))
                return False
            self._changed.wait_for(lambda: self._unread_bytes <= _WAITING_BYTES or self._gone is not None)
            if self._gone is not None:
                return False
            self._unread.append((piece[0], piece[1:]))
            self._unread_bytes += _cost(piece[1:])
            self._changed.notify_all()
            return True

    def _take(self, within_s: float) -> tuple[int, bytes]:
        with self._changed:
            if not self._changed.wait_for(lambda: self._unread or self._gone is not None, within_s):
                raise ChannelClosed(f"the other side sent nothing in {within_s:g} s")
            if self._gone is not None and not self._unread:
                raise self._gone
            kind, payload = self._unread.popleft()
            self._unread_bytes -= _cost(payload)
            self._changed.notify_all()
            return kind, payload

    def _stop_reading(self, why: ChannelClosed, *, drop: bool = False) -> None:
        """Earlier pieces can still be read, unless dropped; the first reason stands."""
        self._gone = self._gone or why
        if drop:
            self._unread.clear()
            self._unread_bytes = 0
        self._changed.notify_all()


def _allowed(piece: bytes) -> bool:
    """Whether it is a valid piece; one that is followed by others must be full, so that a message has no needless
    pieces."""
    if not 0 < len(piece) <= CARRIED_BYTES:
        return False
    return piece[0] in (_LAST, _GOODBYE) or (piece[0] == _PART and len(piece) == CARRIED_BYTES)


def _cost(payload: bytes) -> int:
    """The size at which an unread piece counts: an empty one takes memory too."""
    return len(payload) + 1024


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else "?" for each in text)
