"""Places: how many requests of a round are sent at once, so that large ones do not fill the memory.

A place is taken by who is connected, and held while the request is written to the stream: not while a party is waited
for, and not while it thinks. One that reads slowly, or not at all, holds its place for its share of the time alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

# Requests that are on their way at once hold no more than this, with room for their replies.
_AT_ONCE_BYTES = 256 * 2**20
_REPLY_ROOM_BYTES = 2**19


class Places:
    """The places of one round: of `seats` requests of at most `largest` bytes, until `deadline` (of the loop's time).

    Lives on the event loop on which it is used.
    """

    def __init__(self, *, seats: int, largest: int, deadline: float) -> None:
        self._at_once = max(1, _AT_ONCE_BYTES // (largest + _REPLY_ROOM_BYTES))
        self._free = asyncio.Semaphore(self._at_once)
        self._unsent = seats
        self._deadline = deadline

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Waits for a place, and holds it. Raises TimeoutError when the share of the time is over.

        A share leaves as much to each of the seats that were not yet sent their request, whether connected or not.
        """
        async with self._free:
            turns = -(-self._unsent // self._at_once)
            left = self._deadline - asyncio.get_running_loop().time()
            async with asyncio.timeout(left / max(turns, 1)):
                yield
            self._unsent -= 1
