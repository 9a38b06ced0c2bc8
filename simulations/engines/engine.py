"""An engine: carries messages to many parties and returns their replies.

A transport is `exchange({party: request}) -> {party: reply | None}`. In a simulation each worker runs a WorkerHost with
many parties; an engine starts the workers, distributes the parties over them and passes the exchange to the caller's
function. Both engines give identical replies to the same requests.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from protocols.errors import InvalidInput

T = TypeVar("T")

# exchange(requests, on_reply): on_reply(done, total) is called as replies come in, for a progress line.
# A party that did not answer has None as its reply.
OnReply = Callable[[int, int], None]


class Exchange(Protocol):
    """Sends one message to each named party and returns one reply (or None) for each."""

    def __call__(self, requests: Mapping[str, bytes], on_reply: OnReply | None = None) -> dict[str, bytes | None]: ...


class WorkerHost(Protocol):
    """Runs the parties of one worker. Requests of several parties arrive together, so that it can batch them.

    A party's state is on disk and cached: on some engines any worker may be given any party's request.
    """

    def handle(self, requests: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        """Yields (party, reply) as each party is done, in any order."""
        ...


@dataclass(frozen=True)
class HostSpec:
    """How a worker makes its WorkerHost: `factory` is "module:function", called with `arguments` as keywords."""

    factory: str
    arguments: dict[str, str | int | float | bool] = field(default_factory=dict)

    def open(self) -> WorkerHost:
        """Imports the factory and calls it (in the worker's process)."""
        module, _, function = self.factory.partition(":")
        if not function:
            raise InvalidInput(f"host factory is {self.factory!r}; allowed: 'module:function'")
        host: WorkerHost = getattr(importlib.import_module(module), function)(**self.arguments)
        return host


class Engine(ABC):
    """Runs a function that exchanges messages with parties. No state survives `run`."""

    @abstractmethod
    def run(self, host: HostSpec, parties: Sequence[str], body: Callable[[Exchange], T]) -> T:
        """Starts workers that host `parties`, calls body(exchange), stops the workers, and returns body's result.

        body is called in the caller's own thread. A ConclaveError of a WorkerHost's factory or handle is raised by
        exchange with its type and message (body may catch it and exchange again), any other exception of a
        host as EngineFailed with its traceback. What body raises, KeyboardInterrupt included, stops the
        workers at once and is raised to the caller; no process is left behind.
        Raises InvalidInput if `parties` is empty or holds a name twice, or when a request is for a party that
        is not among them; EngineFailed when the workers cannot be started or one of them dies.
        """
