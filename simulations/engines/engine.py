"""An engine: carries messages to many parties and returns their replies.

A transport is `exchange({party: request}) -> {party: reply | None}`. In a simulation each worker runs a WorkerHost
with many parties; an engine starts the workers, distributes the parties over them and passes the exchange to the
caller's function. Both engines give identical replies to the same requests. An error crosses the process border as its
type's name and its message, never as a pickled object. An engine returns only when all that it started is gone, and
log lines of other packages go to a file or nowhere.

Teachers are small: with one BLAS thread per core in each of several workers, the threads fight for the cores (a
logistic regression fit was measured 14 times slower). So there is one worker per core and one thread per worker. On a
host with a CUDA device there is one worker, which trains stacked teachers on it; a user whose teachers do not use the
device should give the number of workers.

Ray starts a dashboard's server (also where no dashboard is wanted, and waits until it answers), an autoscaler's
monitor and a reader of log files, each a Python process of its own. Nothing that Flower uses needs them. It gives its
node manager 30 s to register, and leaves the processes of a start that failed until the program ends. Ray (2.55) has
no setting for any of that, so it is started without them, and with time to start on a busy machine.
"""

from __future__ import annotations

import importlib
import logging
import os
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

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


# How long a node manager may take to register. Ray's 30 s were too few where several processes shared each core.
START_WITHIN_S: Final = 300.0
_LOOK_S: Final = 0.1


def _no_server(node: Any, *, include_dashboard: bool | None, raise_on_failure: bool) -> None:
    """In place of start_api_server, which notes where its server listens; "": nowhere."""
    node._webui_url = ""


def _nothing(node: Any) -> None:
    """In place of what starts a process, and returns nothing."""


def _when_registered(get_node: Any, *about: Any) -> Any:
    """What get_node says of a node once it is registered. Raises TimeoutError, which Ray hands on."""
    ends = time.monotonic() + START_WITHIN_S
    while True:
        try:
            return get_node(*about)
        except RuntimeError as error:
            if time.monotonic() > ends:
                raise TimeoutError(f"its node manager did not register within {START_WITHIN_S:g} s") from error
        time.sleep(_LOOK_S)


@contextmanager
def lean(node: type[Any], services: Any) -> Iterator[None]:
    """While this is open, ray.init starts Ray's store of names, its node manager and that one's agents alone, and waits
    for them; if the body raises, what was started has ended when this does.

    node: ray._private.node.Node; services: ray._private.services. Raises AttributeError where these no longer have what
    is replaced.
    """
    started: list[Any] = []
    start, get_node = node.start_head_processes, services.get_node

    def noted(made: Any) -> None:
        started.append(made)
        start(made)

    instead = {
        (node, "start_api_server"): _no_server,
        (node, "start_monitor"): _nothing,
        (node, "start_log_monitor"): _nothing,
        (node, "start_head_processes"): noted,
        (services, "get_node"): partial(_when_registered, get_node),
    }
    before = {(owner, name): getattr(owner, name) for owner, name in instead}
    try:
        for (owner, name), function in instead.items():
            setattr(owner, name, function)
        yield
    except BaseException:
        for made in started:
            made.kill_all_processes(check_alive=False, wait=True)
        raise
    finally:
        for (owner, name), function in before.items():
            setattr(owner, name, function)


# Read by OpenMP (so by torch and scikit-learn), OpenBLAS, MKL, numexpr and Accelerate when they are loaded.
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
}

_QUOTA_FILE = Path("/sys/fs/cgroup/cpu.max")


def worker_environment() -> dict[str, str]:
    """Environment variables for a worker: one thread, and this process's import path."""
    paths = [str(Path(entry).absolute()) if entry else os.getcwd() for entry in sys.path]
    return {**ONE_THREAD, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}


@contextmanager
def in_worker_environment() -> Iterator[None]:
    """Processes that are started within have `worker_environment`; afterwards os.environ is as it was."""
    before = dict(os.environ)
    os.environ.update(variables := worker_environment())
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]
        os.environ.update(before)


def check_workers(workers: int | None) -> int | None:
    """`workers` itself. Raises InvalidInput unless it is None or at least 1."""
    if workers is not None and workers < 1:
        raise InvalidInput(f"workers is {workers}; allowed: 1 or more")
    return workers


def check_parties(parties: Sequence[str]) -> list[str]:
    """The parties as a list. Raises InvalidInput if there is none, or if a name is empty or occurs twice."""
    names = list(parties)
    if not names:
        raise InvalidInput("parties is empty; allowed: 1 or more names")
    name, times = Counter(names).most_common(1)[0]
    if times > 1:
        raise InvalidInput(f"parties holds {name!r} {times} times; allowed: distinct names")
    if "" in names:
        raise InvalidInput("parties holds an empty name; allowed: names of 1 or more characters")
    return names


def count_workers(workers: int | None, parties: int) -> int:
    """How many workers to start for so many parties: `workers`, else one on a GPU host, else one per core."""
    wanted = workers or (1 if gpu_present() else count_cores())
    return min(wanted, parties)


def gpu_present() -> bool:
    """Whether a CUDA device is at hand: a device file, and CUDA_VISIBLE_DEVICES does not hide it.

    Torch is not asked, because importing it takes seconds and this process may never need it.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in ("", "-1"):
        return False
    return any(Path("/dev").glob("nvidia[0-9]*"))


def count_cores() -> int:
    """Cores that this process may use: its CPU affinity, cut to a container's quota (control groups v2)."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:  # macOS and Windows have no affinity to ask for
        cores = os.cpu_count() or 1
    if _QUOTA_FILE.is_file():
        quota, period = _QUOTA_FILE.read_text().split()
        if quota != "max":
            cores = min(cores, int(quota) // int(period))
    return max(cores, 1)
