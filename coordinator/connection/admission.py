"""Who may open a stream to the hub, how often, and what is logged when one is turned away; and calls from strangers.

A party's faults are counted over all of its sessions, so reconnecting does not reset them. Memory is bounded by the
number of certificates: names come only from these.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from urllib.parse import unquote

from protocols.errors import MalformedMessage, Refused
from protocols.refusals.code import Code
from protocols.wire.frames import RefusedSeat
from runtime.logs import Event
from runtime.steady_clock import Allowance

# Streams that one party may have at once: its own, and others that replace it or are refused.
_STREAMS = 4
# Faults that a party may commit over all of its sessions: in a burst, and seconds until one more is allowed.
FAULTS, FAULT_EACH_S = 100, 60.0


class Admission:
    """The streams and the faults of each party, by name. on_event: see Hub."""

    def __init__(self, *, on_event: Event) -> None:
        self._on_event = on_event
        self._faults: defaultdict[str, Allowance] = defaultdict(lambda: Allowance(most=FAULTS, each_s=FAULT_EACH_S))
        self.streams: Counter[str] = Counter()
        # How often a party was turned away after too many faults.
        self._beyond: Counter[str] = Counter()

    @contextmanager
    def stream(self, name: str) -> Iterator[None]:
        """Counts a stream of a party while it lasts. Raises Refused("too_many_streams"), ("too_many_faults")."""
        if self.streams[name] >= _STREAMS:
            raise Refused(Code.TOO_MANY_STREAMS, f"{name!r} has {_STREAMS} streams; allowed: one, and its successors")
        if not self._faults[name].remains(time.monotonic()):
            raise Refused(
                Code.TOO_MANY_FAULTS,
                f"{name!r} was at fault more often than is allowed: {FAULTS} times, and once more every "
                f"{FAULT_EACH_S:g} s; ask the operator what the coordinator's log says, and fix that",
            )
        self.streams[name] += 1
        try:
            yield
        finally:
            self.streams[name] -= 1

    def fault(self, name: str) -> bool:
        """Counts a fault of a party; returns whether it is still within the limit."""
        return self._faults[name].take(time.monotonic())

    def seats_refused(self, name: str, refused: Iterable[RefusedSeat]) -> None:
        """Logs the seats refused in a Hello, one for each code; a head that was made up is a fault, once a Hello."""
        by_code = {each.code: each for each in refused}
        for code, each in by_code.items():
            self._on_event("seat_refused", {"party": name, "code": code, "reason": each.reason[:200]})
        if Code.UNPROVEN_HEAD in by_code:
            self.fault(name)

    def turned_away(self, name: str | None, address: str, error: Refused | MalformedMessage, *, rivals: int) -> None:
        """Logs a stream that was turned away; name: None for one without a valid certificate.

        rivals: how often another node of the party dialled while one was connected. Such a node keeps dialling, as does
        one with too many faults: only the 1st, 2nd, 4th, 8th ... time is logged.
        """
        fields: dict[str, str | int] = {"address": address, "code": code_of_error(error), "reason": str(error)[:200]}
        if name is not None:
            fields["party"] = name
        if code_of_error(error) == Code.ANOTHER_NODE:
            if rivals & (rivals - 1):
                return
            fields["times"] = rivals
        elif name is not None and not self.fault(name):
            self._beyond[name] += 1
            if self._beyond[name] & (self._beyond[name] - 1):
                return
            fields["times"] = self._beyond[name]
        self._on_event("turned_away", fields)


def code_of_error(error: Refused | MalformedMessage) -> str:
    """The error's code."""
    return error.code if isinstance(error, Refused) else Code.MALFORMED


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
