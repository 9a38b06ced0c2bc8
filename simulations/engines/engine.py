"""Ends processes reliably: an engine returns only when all that it started is gone.

Keeps the log lines of other packages off the terminal: sends them to a file, or nowhere.

What comes back from the hosts of an exchange: replies, checked and counted, and errors, rebuilt.

An error crosses the process border as its type's name and its message, never as a pickled object.

An engine: carries messages to many parties and returns their replies.

A transport is `exchange({party: request}) -> {party: reply | None}`. In a simulation each worker runs a WorkerHost with
many parties; an engine starts the workers, distributes the parties over them and passes the exchange to the caller's
function. Both engines give identical replies to the same requests.
"""

from __future__ import annotations

import importlib
import logging
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from protocols import errors
from protocols.errors import CannotVote, ConclaveError, EngineFailed, InvalidInput, Refused, StorageFailed


def end_all(processes: Iterable[subprocess.Popen[bytes]], *, within_s: float) -> None:
    """Waits for processes that were told to end; kills those that still run after `within_s` seconds."""
    for process in processes:
        try:
            process.wait(timeout=within_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def logged_to(log: Path | None, names: Sequence[str]) -> Iterator[None]:
    """Sends the records of the named loggers to the file `log` only (None: nowhere), until the end.

    Raises StorageFailed if the file cannot be opened; then nothing has changed.
    """
    try:
        handler = logging.NullHandler() if log is None else logging.FileHandler(log)
    except OSError as error:
        raise StorageFailed(f"the engine's log {str(log)!r} cannot be written: {error}") from error
    loggers = [logging.getLogger(name) for name in names]
    before = [(logger.handlers, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.handlers, logger.propagate = [handler], False
    try:
        yield
    finally:
        for logger, (handlers, propagate) in zip(loggers, before, strict=True):
            logger.handlers, logger.propagate = handlers, propagate
        handler.close()


class Replies:
    """The replies to one exchange, in the order of its requests whatever the order of arrival."""

    def __init__(self, asked: Iterable[str], on_reply: OnReply | None) -> None:
        self._replies: dict[str, bytes | None] = dict.fromkeys(asked)
        self._on_reply = on_reply
        self._done = 0

    def add(self, party: str, reply: bytes) -> None:
        """Takes one party's reply. Raises EngineFailed if the party was not asked or has answered already."""
        if party not in self._replies:
            raise EngineFailed(f"a host replied for party {party!r}, which was not asked")
        if self._replies[party] is not None:
            raise EngineFailed(f"a host replied twice for party {party!r}")
        self._replies[party] = reply
        self._done += 1
        if self._on_reply is not None:
            self._on_reply(self._done, len(self._replies))

    def missing(self) -> list[str]:
        """The parties that have not answered."""
        return [party for party, reply in self._replies.items() if reply is None]

    def complete(self) -> dict[str, bytes | None]:
        """Every party asked with its reply, or None where the host gave none."""
        return dict(self._replies)


def check_asked(requests: Mapping[str, bytes], parties: Collection[str]) -> None:
    """Raises InvalidInput if a request is for a party that the engine does not host."""
    strangers = [party for party in requests if party not in parties]
    if strangers:
        raise InvalidInput(f"requests names party {strangers[0]!r}; allowed: the {len(parties)} parties of this run")


def describe_error(error: ConclaveError) -> dict[str, str]:
    """The type's name (the nearest one of protocols.errors), the message, and for a refusal its code."""
    name = next(cls.__name__ for cls in type(error).__mro__ if vars(errors).get(cls.__name__) is cls)
    if isinstance(error, CannotVote):  # in a simulation, everybody may see the whole message
        return {"type": name, "message": error.why}
    if isinstance(error, Refused):
        return {"type": name, "message": str(error).removeprefix(f"{error.code}: "), "code": error.code}
    return {"type": name, "message": str(error)}


def rebuild_error(description: Mapping[str, str]) -> ConclaveError:
    """The error that describe_error described, as an exception of protocols.errors."""
    if description["type"] == Refused.__name__:
        return Refused(description["code"], description["message"])
    error_class = vars(errors)[description["type"]]
    error: ConclaveError = error_class(description["message"])
    return error


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
