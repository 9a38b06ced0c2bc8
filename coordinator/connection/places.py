"""Places: how many requests of a round are sent at once, so that large ones do not fill memory.

A connected party holds a place while its request is written to the stream, not while the coordinator waits for it to
connect or to answer. A party that reads slowly, or not at all, keeps its place beyond its share of the time only while
nobody else waits for one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

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
        self._count_waiting(1)
        try:
            await self._free.acquire()
        finally:
            self._count_waiting(-1)
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
