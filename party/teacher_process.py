"""Teachers in a process of their own, so that an idle node stays small and a crash of theirs is not the node's.

`python -m party.teacher_process FOLDER STUDY` reads VoteRequests from standard input and writes VoteReplies (or a
Refusal) to standard output: messages of protocols.messages, each after its length in 8 bytes. The node starts it at the
first vote and ends it when nothing was asked for a while.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from protocols.errors import CannotVote, ConclaveError, MalformedMessage, Refused
from protocols.messages import MESSAGE_BYTES, Message, Refusal, VoteReply, VoteRequest, decode, encode
from protocols.private_files import open_private
from protocols.queries import QueryBatch

_LENGTH_BYTES: Final = 8
_STOP_WAIT_S: Final = 5.0
_LOG: Final = "teacher_process.log"
_ONE_THREAD: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class TeacherProcess:
    """A Voter whose teachers vote in a child process.

    folder: of party.training; study: digest; deadline_s: for one batch, starting included; idle_s: after which the
    child is ended. A vote raises Refused("no_teachers") or ("teachers_late"), or CannotVote; nothing was charged
    then, and the reason names no file of the hospital, as it goes to the coordinator.
    """

    def __init__(
        self,
        folder: Path,
        *,
        study: bytes,
        deadline_s: float,
        idle_s: float,
        on_event: Callable[[str, dict[str, str | int]], None],
    ) -> None:
        self._folder = folder
        self._study = study
        self._deadline_s = deadline_s
        self._idle_s = idle_s
        self._on_event = on_event
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._timer: threading.Timer | None = None

    def __call__(self, batch: QueryBatch) -> Int64[ndarray, "teachers queries"]:
        """The teachers' votes."""
        request = VoteRequest(self._study, b"", batch)
        with self._lock:
            self._rest()
            try:
                reply = self._ask(request)
            except BaseException:
                # Whatever the child still writes belongs to this batch: it may not answer another.
                self._end()
                raise
            self._timer = threading.Timer(self._idle_s, self.close)
            self._timer.daemon = True
            self._timer.start()
        if isinstance(reply, Refusal):
            raise self._failed("the teachers cannot be used", reply.reason)
        if not isinstance(reply, VoteReply) or reply.batch_digest != request.digest:
            raise CannotVote("the teachers' process answered another request")
        return reply.votes

    @property
    def process_id(self) -> int | None:
        """Of the child, while it runs."""
        child = self._child
        return None if child is None else child.pid

    def close(self) -> None:
        """Ends the child, if there is one; the next vote starts another."""
        with self._lock:
            self._rest()
            self._end()

    def _ask(self, request: VoteRequest) -> Message:
        deadline = time.monotonic() + self._deadline_s
        child = self._started()
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            _write_all(child.stdin, _framed(request), deadline)
            length = int.from_bytes(_read_exactly(child.stdout, _LENGTH_BYTES, deadline), "big")
            if length > MESSAGE_BYTES:
                raise MalformedMessage(f"{length} bytes; allowed: at most {MESSAGE_BYTES}")
            return decode(_read_exactly(child.stdout, length, deadline))
        except TimeoutError:
            raise Refused(
                "teachers_late", f"the teachers gave no votes in {self._deadline_s:g} s, the study's deadline"
            ) from None
        except (EOFError, BrokenPipeError, MalformedMessage, OSError):
            code = child.poll()
            what = f"the teachers' process ended{'' if code is None else f' with {code}'}"
            raise self._failed(what, f"see {self._folder / _LOG}") from None

    def _failed(self, what: str, detail: str, *, code: str = "teachers_failed") -> Refused:
        """The refusal, which goes to the coordinator; both texts go to the hospital's log alone."""
        self._on_event("teachers_failed", {"code": code, "reason": f"{what}: {detail}"[:500]})
        if code == "no_teachers":
            return Refused(code, "there are no teachers of this study; the hospital's own log says more")
        return CannotVote(f"{what}: {detail}")

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is not None and self._child.poll() is None:
            return self._child
        self._end()
        if not self._folder.is_dir():
            raise self._failed(
                "there are no teachers of this study",
                f"{self._folder} does not exist; run: conclave-party train STUDY",
                code="no_teachers",
            )
        environment = os.environ | dict.fromkeys(_ONE_THREAD, "1")
        try:
            with open_private(self._folder / _LOG, "wb") as log:
                self._child = subprocess.Popen(
                    [sys.executable, "-m", "party.teacher_process", str(self._folder), self._study.hex()],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=environment,
                    bufsize=0,
                )
            for pipe in (self._child.stdin, self._child.stdout):
                assert pipe is not None
                os.set_blocking(pipe.fileno(), False)
        except OSError as error:
            raise self._failed("the teachers' process cannot be started", str(error)) from None
        self._on_event("teachers_started", {"process": self._child.pid})
        return self._child

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        """Ends the child: it stops when its input closes, and is killed if it does not."""
        child, self._child = self._child, None
        if child is None:
            return
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.close()
        if child.poll() is None:
            child.terminate()
        try:
            child.wait(_STOP_WAIT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        child.stdout.close()
        self._on_event("teachers_ended", {"process": child.pid, "status": child.returncode})


def main(arguments: list[str]) -> int:
    """The child: loads the teachers of a folder and votes until standard input ends."""
    folder, study = Path(arguments[0]), bytes.fromhex(arguments[1])
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    # Whatever a hospital's own teacher prints must not get between the messages.
    sys.stdout = sys.stderr
    from party.trained import load_teachers

    try:
        teachers = load_teachers(folder, study=study)
        failure = ""
    except ConclaveError as error:
        teachers, failure = [], str(error)
    while header := source.read(_LENGTH_BYTES):
        length = int.from_bytes(header, "big")
        request = decode(source.read(length))
        assert isinstance(request, VoteRequest)
        reply: Message
        try:
            if failure:
                reply = Refusal("teachers_failed", failure)
            else:
                votes = np.stack([teacher.predict(request.batch.inputs) for teacher in teachers])
                reply = VoteReply(request.digest, votes)
        except ConclaveError as error:
            reply = Refusal("teachers_failed", str(error))
        sink.write(_framed(reply))
        sink.flush()
    return 0


def _framed(message: Message) -> bytes:
    data = encode(message)
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


def _write_all(pipe: IO[bytes], data: bytes, deadline: float) -> None:
    left = memoryview(data)
    while left:
        _wait(pipe, selectors.EVENT_WRITE, deadline)
        try:
            left = left[os.write(pipe.fileno(), left) :]
        except BlockingIOError:
            continue


def _read_exactly(pipe: IO[bytes], count: int, deadline: float) -> bytes:
    parts: list[bytes] = []
    while count:
        _wait(pipe, selectors.EVENT_READ, deadline)
        try:
            part = os.read(pipe.fileno(), min(count, 2**20))
        except BlockingIOError:
            continue
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _wait(pipe: IO[bytes], event: int, deadline: float) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, event)
        if not selector.select(max(0.0, deadline - time.monotonic())):
            raise TimeoutError


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
