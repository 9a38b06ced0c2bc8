"""A small Host for the engine contract: parties that echo, repeat, refuse, fail or die as their request says.

Workers import it as `tests.harness.echo_host`: engines hand the import path on.
"""

import os
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from protocols.errors import BudgetExceeded, DataUnavailable, InvalidInput, Refused


class SpecialRefusal(Refused):
    """An error that protocols.errors does not know, derived from one that it does."""


@dataclass(frozen=True)
class EchoHost:
    """Replies "greeting party request"; a request that names an order below is carried out instead."""

    greeting: str
    backwards: bool

    def handle(self, requests: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        """Yields the replies, last party first where `backwards` is set."""
        parties = list(requests)
        for party in reversed(parties) if self.backwards else parties:
            order, _, rest = requests[party].partition(b":")
            if order == b"silent":
                continue
            yield ((rest.decode() if order == b"as" else party), self._reply(party, order, rest, requests[party]))

    def _reply(self, party: str, order: bytes, rest: bytes, request: bytes) -> bytes:
        if order == b"repeat":
            return rest * 1_000_000
        if order == b"size":
            return str(len(request)).encode()
        if order == b"environment":
            return os.environ.get(rest.decode(), "").encode()
        if order == b"process":
            return str(os.getpid()).encode()
        if order == b"refuse":
            raise Refused("not_approved", f"{party} has not approved this study")
        if order == b"refuse-specially":
            raise SpecialRefusal("special", f"{party} refuses")
        if order == b"overspend":
            raise BudgetExceeded(f"{party}: 3 asked; allowed: 2")
        if order == b"invalid":
            raise InvalidInput(f"{party}: sigma is -1; allowed: > 0")
        if order == b"bug":
            print(rest.decode(), end="")
            raise KeyError("a bug in the host")
        if order == b"die":
            os.kill(os.getpid(), signal.SIGKILL)
        if order == b"linger":
            Path(rest.decode()).with_suffix(f".{party}").write_text(str(os.getpid()))
            time.sleep(300)
        return b" ".join([self.greeting.encode(), party.encode(), request])


def open_host(*, greeting: str = "hello", backwards: bool = False) -> EchoHost:
    """The factory that HostSpec names."""
    return EchoHost(greeting, backwards)


def open_nothing() -> EchoHost:
    """A factory whose data is missing."""
    raise DataUnavailable("no data here; see the manual")
