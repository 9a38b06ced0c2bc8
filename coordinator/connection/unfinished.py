"""Calls of strangers that are under way, and whose message has not come: so many at once, each for a short time.

Beyond that the oldest of the address that has the most gives way, so that whoever begins calls and never finishes them
drives out its own, and keeps nobody else from enrolling.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import unquote


class Unfinished:
    """At most `most` calls at once, each at most `longest_s`. Lives on one event loop."""

    def __init__(self, *, most: int, longest_s: float) -> None:
        self._most = most
        self._longest_s = longest_s
        # The oldest first.
        self._calls: dict[asyncio.Timeout, str] = {}

    @asynccontextmanager
    async def call(self, peer: str) -> AsyncIterator[None]:
        """One call of a peer, as gRPC names it, while its message is read. Raises TimeoutError when it has to end."""
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
        if not oldest.expired():  # else its own time was over in this very step
            oldest.reschedule(asyncio.get_running_loop().time())


def network_of(peer: str) -> str:
    """Who may be one and the same of a peer's addresses: one of IPv4, 2**64 of IPv6; the text itself, of no address."""
    host = unquote(peer.partition(":")[2].rpartition(":")[0]).strip("[]")
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return peer
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)
