"""Runs parties in worker processes of this machine, one per core; needs neither Flower nor Ray.

Each worker owns the parties of its shard for the whole run. A worker is a fresh interpreter that is told what
to import: not a fork (torch's threads do not survive one), and not multiprocessing's spawn, which imports the
caller's main module again and so needs a guard there. Worker and caller talk over one socket pair, in frames:

    to a worker    {"host": HostSpec}, then each time {"exchange": n, "parties": [...]} and the requests
    from a worker  {"exchange": n, "reply": party} and the reply | {"exchange": n, "done": true}
                   | {"exchange": n, "error": {...}} | {"failed": traceback}

No worker outlives the caller: when the caller's end of the pair closes, for whatever reason, the worker ends
itself, in the middle of its work if need be. Workers do not get the terminal's Ctrl-C; the caller stops them.
Unix only: a worker inherits its end of the socket pair as a file descriptor.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, TypeVar

from protocols.errors import ConclaveError, EngineFailed
from protocols.reading import parse_json
from simulations.engines.engine import (
    Engine,
    Exchange,
    HostSpec,
    OnReply,
    Replies,
    WorkerHost,
    check_asked,
    check_parties,
    check_workers,
    count_workers,
    describe_error,
    end_all,
    rebuild_error,
    worker_environment,
)

T = TypeVar("T")
_Frame = dict[str, Any]  # Any: the values of a JSON object, whose keys the module's docstring lists

_STOP_WITHIN_S = 5.0


class InProcessEngine(Engine):
    """One worker process per core (one in all on a CUDA host), unless `workers` says how many."""

    def __init__(self, *, workers: int | None = None) -> None:
        self._workers = check_workers(workers)

    def run(self, host: HostSpec, parties: Sequence[str], body: Callable[[Exchange], T]) -> T:
        """Engine.run; body is called in the caller's own thread, while the workers are still starting."""
        names = check_parties(parties)
        number = count_workers(self._workers, len(names))
        workers: list[_Worker] = []
        graceful = False
        try:
            for index in range(number):
                workers.append(_start_worker(f"worker {index + 1} of {number}", host))
            answer = body(_WorkerExchange(workers, names))
            graceful = True
            return answer
        finally:
            _stop_workers(workers, graceful=graceful)


@dataclass(frozen=True)
class _Worker:
    title: str
    process: subprocess.Popen[bytes]
    connection: Connection[Any, Any]  # Any: this file sends and receives bytes only, never pickled objects

    def died(self) -> EngineFailed:
        """Says how the worker ended, once its end of the connection is closed."""
        try:
            code = self.process.wait(timeout=_STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            return EngineFailed(f"{self.title} (process {self.process.pid}) closed its connection but is still running")
        how = f"killed by signal {-code} ({signal.Signals(-code).name})" if code < 0 else "it ended by itself"
        return EngineFailed(f"{self.title} (process {self.process.pid}) died with exit code {code}: {how}")


@contextmanager
def beside(host: HostSpec, request: bytes) -> Iterator[Callable[[], Mapping[str, bytes | None]]]:
    """A worker of its own that answers one request while the body goes on; the function waits until it has.

    Its errors are raised there, as Engine.run says of an exchange. The worker is stopped when the body ends.
    """
    worker = _start_worker("the worker beside the others", host)
    try:
        yield _WorkerExchange([worker], [""]).begin({"": request})
    finally:
        _stop_workers([worker], graceful=False)


def _start_worker(title: str, host: HostSpec) -> _Worker:
    connection, far_end = Pipe()
    with far_end:
        process = subprocess.Popen(
            [
                sys.executable,
                "-P",  # the caller's import path and no other
                "-c",
                f"from simulations.engines.in_process import serve; serve({far_end.fileno()})",
            ],
            env={**os.environ, **worker_environment()},
            stdin=subprocess.DEVNULL,
            pass_fds=[far_end.fileno()],
            start_new_session=True,  # out of the terminal's reach: Ctrl-C is the caller's to handle
        )
    worker = _Worker(title, process, connection)
    try:
        _send(connection, {"host": asdict(host)})
    except ConnectionError:
        connection.close()
        raise worker.died() from None
    return worker


def _stop_workers(workers: Sequence[_Worker], *, graceful: bool) -> None:
    """Ends every worker: by closing its connection, or at once; one that does not go in 5 s is killed."""
    for worker in workers:
        worker.connection.close()
        if not graceful:
            worker.process.terminate()
    end_all([worker.process for worker in workers], within_s=_STOP_WITHIN_S)


class _WorkerExchange:
    """The exchange of one run. Party number i is worker (i modulo the number of workers)'s."""

    def __init__(self, workers: Sequence[_Worker], parties: Sequence[str]) -> None:
        self._home = {party: workers[index % len(workers)] for index, party in enumerate(parties)}
        self._number = 0

    def __call__(self, requests: Mapping[str, bytes], on_reply: OnReply | None = None) -> dict[str, bytes | None]:
        return self.begin(requests, on_reply)()

    def begin(
        self, requests: Mapping[str, bytes], on_reply: OnReply | None = None
    ) -> Callable[[], dict[str, bytes | None]]:
        """Sends the requests; the function that it returns waits for the replies."""
        check_asked(requests, self._home)
        self._number += 1
        replies = Replies(requests, on_reply)
        shards: dict[int, list[str]] = {}
        busy: dict[Connection[Any, Any], _Worker] = {}
        for party in requests:
            worker = self._home[party]
            busy[worker.connection] = worker
            shards.setdefault(worker.process.pid, []).append(party)
        for connection, worker in busy.items():
            shard = shards[worker.process.pid]
            try:
                _send(connection, {"exchange": self._number, "parties": shard})
                for party in shard:
                    connection.send_bytes(requests[party])
            except ConnectionError:
                continue  # the worker is gone; its last message, or how it died, is read below

        def received() -> dict[str, bytes | None]:
            while busy:
                ready = wait(list(busy))
                for connection in [connection for connection in busy if connection in ready]:
                    if self._receive(busy[connection], replies):
                        del busy[connection]
            return replies.complete()

        return received

    def _receive(self, worker: _Worker, replies: Replies) -> bool:
        """Takes one frame from a worker; true if it was the worker's last one for this exchange."""
        try:
            frame = parse_json(worker.connection.recv_bytes(), where="a frame")
            reply = worker.connection.recv_bytes() if "reply" in frame else b""
        except (EOFError, OSError):
            raise worker.died() from None
        if "failed" in frame:
            raise EngineFailed(f"{worker.title} (process {worker.process.pid}) failed:\n{frame['failed']}")
        if frame["exchange"] != self._number:
            return False  # left over from an exchange that ended in an error
        if "error" in frame:
            raise rebuild_error(frame["error"])
        if "reply" in frame:
            replies.add(frame["reply"], reply)
        return "done" in frame


def serve(file_descriptor: int) -> None:
    """The worker's whole life: opens the Host, answers exchanges, ends when the connection closes."""
    connection: Connection[Any, Any] = Connection(file_descriptor)
    try:
        spec = HostSpec(**parse_json(connection.recv_bytes(), where="a frame")["host"])
        inbox = _Inbox(connection)
        host: WorkerHost | None = None
        refusal: dict[str, str] = {}
        try:
            host = spec.open()
        except ConclaveError as error:
            refusal = describe_error(error)  # sent as the answer to each exchange
        while (exchange := inbox.get()) is not None:
            number, requests = exchange
            last: _Frame = {"exchange": number, "error": refusal}
            if host is not None:
                try:
                    for party, reply in host.handle(requests):
                        _tell(connection, {"exchange": number, "reply": party}, reply)
                    last = {"exchange": number, "done": True}
                except ConclaveError as error:
                    last = {"exchange": number, "error": describe_error(error)}
            inbox.finished += 1
            _tell(connection, last)
    except BaseException as failure:
        _tell(connection, {"failed": traceback.format_exc()})
        raise SystemExit(1) from failure


class _Inbox:
    """Exchanges as they arrive, read by a thread of its own that notices at once when the caller is gone."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self.finished = 0
        self._received = 0
        self._exchanges: queue.SimpleQueue[tuple[int, dict[str, bytes]] | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, args=(connection,), daemon=True).start()

    def get(self) -> tuple[int, dict[str, bytes]] | None:
        """The next exchange's number and requests; None when the caller has closed the connection."""
        return self._exchanges.get()

    def _read(self, connection: Connection[Any, Any]) -> None:
        while True:
            try:
                frame: _Frame = parse_json(connection.recv_bytes(), where="a frame")
                requests = {party: connection.recv_bytes() for party in frame["parties"]}
            except (EOFError, OSError):
                if self._received > self.finished:
                    os._exit(1)  # nobody is left to receive the answer that the main thread is working on
                self._exchanges.put(None)
                return
            self._received += 1
            self._exchanges.put((frame["exchange"], requests))


def _send(connection: Connection[Any, Any], frame: _Frame, payload: bytes | None = None) -> None:
    connection.send_bytes(json.dumps(frame).encode())
    if payload is not None:
        connection.send_bytes(payload)


def _tell(connection: Connection[Any, Any], frame: _Frame, payload: bytes | None = None) -> None:
    """Sends a frame from a worker to the caller; ends the worker if the caller is gone."""
    try:
        _send(connection, frame, payload)
    except ConnectionError:
        os._exit(1)
