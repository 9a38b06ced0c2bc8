"""Several hosts in one run of an engine: each message names its own, and a worker opens each host once."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TypeVar

from simulations.engines.engine import Engine, Exchange, HostSpec, OnReply, WorkerHost

T = TypeVar("T")
HOST = HostSpec("tests.harness.several_hosts:SeveralHosts")


class SeveralHosts:
    """Hands each request to the host that its first line describes."""

    def __init__(self) -> None:
        self._opened: dict[bytes, WorkerHost] = {}

    def handle(self, requests: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        """The replies of the host of these requests, which is one and the same for all of them."""
        (spec,) = {request.partition(b"\n")[0] for request in requests.values()}
        if spec not in self._opened:
            self._opened[spec] = HostSpec(**json.loads(spec)).open()
        yield from self._opened[spec].handle({who: data.partition(b"\n")[2] for who, data in requests.items()})


class WithinRun(Engine):
    """An engine whose every run takes place within the one run that `exchange` is of, by `HOST`."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def run(self, host: HostSpec, parties: Sequence[str], body: Callable[[Exchange], T]) -> T:
        """Engine.run; the parties are among those of the one run."""
        spec = json.dumps(asdict(host)).encode()

        def exchange(requests: Mapping[str, bytes], on_reply: OnReply | None = None) -> dict[str, bytes | None]:
            return self._exchange({who: spec + b"\n" + request for who, request in requests.items()}, on_reply)

        return body(exchange)
