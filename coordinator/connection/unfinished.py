"""Calls from strangers whose message has not arrived yet: a limited number at once, each for a short time.

Above the limit, the oldest call of the address with the most calls is dropped: whoever starts calls and never finishes
them displaces only their own.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import unquote


class Unfinished:
    """At most `most` calls at once, each at most `longest_s`. Used on one event loop."""

    def __init__(self, *, most: int, longest_s: float) -> None:
        self._most = most
        self._longest_s = longest_s
        # The oldest first.
        self._calls: dict[asyncio.Timeout, str] = {}

    @asynccontextmanager
    async def call(self, peer: str) -> AsyncIterator[None]:
        """One call of a peer, as gRPC names it, while its message is read. Raises TimeoutError when it must end."""
        async with asyncio.timeout(self._longest_s) as until:
            self._calls[until] = network_of(peer)
            try:
                if len(self._calls) > self._most:
                    self._drop_one()
                yield
            finally:
                self._calls.pop(until, None)

    def _drop_one(self) -> None:
        ((busiest, _),) = Counter(self._calls.values()).most_common(1)
        oldest = next(until for until, network in self._calls.items() if network == busiest)
        del self._calls[oldest]
        if not oldest.expired():  # otherwise its own time ran out in this step
            oldest.reschedule(asyncio.get_running_loop().time())


def network_of(peer: str) -> str:
    """A key for addresses that may be the same peer: one IPv4 address, or a /64 network of IPv6; any other text is its
    own key."""
    host = unquote(peer.partition(":")[2].rpartition(":")[0]).strip("[]")
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return peer
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)
