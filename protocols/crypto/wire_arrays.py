"""Arrays as bytes between the two servers: every size is known beforehand and checked before anything is allocated."""

from __future__ import annotations

import numpy as np
from jaxtyping import UInt32
from numpy import ndarray

from protocols.crypto.channel import Channel
from protocols.errors import MalformedMessage
from protocols.ranges import in_range


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
