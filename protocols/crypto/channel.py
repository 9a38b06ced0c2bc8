"""A channel between two servers: bytes in both directions, in order; and an implementation within one process.

Arrays as bytes between the two servers: every size is known beforehand and checked before anything is allocated.
"""

from __future__ import annotations

import queue
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import UInt32
from numpy import ndarray

from protocols.errors import ChannelClosed, MalformedMessage
from protocols.ranges import in_range


@runtime_checkable
class Channel(Protocol):
    """One end of a reliable, ordered, confidential and authenticated stream of messages to one known other side."""

    def send(self, data: bytes) -> None:
        """Sends one message. Raises ChannelClosed if the other side is gone; whether the message arrived is unknown
        then.
        """

    def recv(self, limit: int) -> bytes:
        """The next message. Raises MalformedMessage above `limit` bytes, ChannelClosed if the other side is gone."""


class InMemory:
    """One end of a channel within a process; see `pair`. `sent` counts the bytes that this end has sent."""

    def __init__(self, outgoing: queue.Queue[bytes | None], incoming: queue.Queue[bytes | None], wait_s: float) -> None:
        self._outgoing = outgoing
        self._incoming = incoming
        self._wait_s = wait_s
        self.sent = 0

    def send(self, data: bytes) -> None:
        self.sent += len(data)
        self._outgoing.put(bytes(data))

    def recv(self, limit: int) -> bytes:
        try:
            data = self._incoming.get(timeout=self._wait_s)
        except queue.Empty:
            raise ChannelClosed(f"the other side sent nothing in {self._wait_s:g} s") from None
        if data is None:
            self._incoming.put(None)
            raise ChannelClosed("the other side closed the channel")
        if len(data) > limit:
            raise MalformedMessage(f"message has {len(data)} bytes; allowed: at most {limit}")
        return data

    def close(self) -> None:
        """Closes this end: the other side's recv raises ChannelClosed once it has read what was sent."""
        self._outgoing.put(None)


def pair(*, wait_s: float = 60.0) -> tuple[InMemory, InMemory]:
    """The two ends of one channel, each for its own thread."""
    there: queue.Queue[bytes | None] = queue.Queue()
    back: queue.Queue[bytes | None] = queue.Queue()
    return InMemory(there, back, wait_s), InMemory(back, there, wait_s)


def receive(channel: Channel, size: int, what: str) -> bytes:
    """The next message, of exactly `size` bytes. Raises MalformedMessage, ChannelClosed."""
    data = channel.recv(size)
    if len(data) != size:
        raise MalformedMessage(f"{what} has {len(data)} bytes; expected: {size}")
    return data


def elements(data: bytes | memoryview, shape: tuple[int, ...]) -> UInt32[ndarray, "..."]:
    """Field elements, four bytes each. Raises MalformedMessage."""
    values = np.frombuffer(data, dtype="<u4")
    return in_range("two servers", "field element", values).reshape(shape)
