"""Steps in which both servers say something of the same kind, the coordinator first.

What a server says in a step may not depend on what the other says in it. What it says in the next one does; so what it
heard is pinned before: once and for all attempts at a batch, as in the vote check (sketch.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from protocols.crypto.channel import Channel
from protocols.crypto.prg_chacha import derived_key
from protocols.crypto.wire_arrays import receive

# Stores what a step of a batch was done with; raises Refused for any other than the first.
Pin = Callable[[str, bytes], None]


class PinnedExchange:
    """One server's end. leads: whether it is the coordinator's."""

    def __init__(self, channel: Channel, *, leads: bool, pin: Pin) -> None:
        self.leads = leads
        self._channel, self._pin = channel, pin

    def of(self, step: str, message: bytes, size: int) -> bytes:
        """Says the message and returns what the other server says in this step, `size` bytes.

        Raises MalformedMessage, ChannelClosed, and what `pin` raises.
        """
        theirs = self._swapped(step, message, size)
        self._pin(step, derived_key("heard", theirs))
        return theirs

    def of_parts(self, step: str, messages: Iterator[bytes], sizes: list[int]) -> Iterator[bytes]:
        """As `of`, in parts, which are pinned together at the end: what is said after the last part follows from all.

        messages: made one by one, so that not all need be held; none may follow from the other server's parts.
        """
        heard = b""
        for message, size in zip(messages, sizes, strict=True):
            theirs = self._swapped(step, message, size)
            heard = derived_key("heard", heard, theirs)
            yield theirs
        self._pin(step, heard)

    def _swapped(self, step: str, message: bytes, size: int) -> bytes:
        if self.leads:
            self._channel.send(message)
        theirs = receive(self._channel, size, f"the other server's {step}")
        if not self.leads:
            self._channel.send(message)
        return theirs
