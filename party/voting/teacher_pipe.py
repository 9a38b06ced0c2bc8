"""The node's end of a teachers' process: starts it, asks, reads with a timeout, and ends it reliably.

See teacher_child.py for the messages. Timeouts are about progress: any byte that arrives is progress.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
from pathlib import Path
from typing import IO, Final

from party.voting.teacher_child import COUNT_BYTES, LENGTH_BYTES, LOADED, NEXT, SAID, framed
from protocols.errors import MalformedMessage
from protocols.private_files import open_private
from protocols.wire.messages import MESSAGE_BYTES, Message, VoteRequest, decode, encode

LOG: Final = "teacher_process.log"
_STOP_WAIT_S: Final = 5.0
_ONE_THREAD: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class TeacherPipe:
    """A teachers' process. Raises OSError when it cannot be started.

    Reading and writing raise EOFError or OSError if the process ended, TimeoutError if no byte moved for `stalled_s`
    seconds, MalformedMessage if it sends what is not allowed.
    """

    def __init__(self, folder: Path, *, study: bytes) -> None:
        environment = os.environ | dict.fromkeys(_ONE_THREAD, "1")
        with open_private(folder / LOG, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "party.voting.teacher_child", str(folder), study.hex()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                bufsize=0,
            )
        for pipe in (self._stdin, self._stdout):
            os.set_blocking(pipe.fileno(), False)

    def ask(self, request: VoteRequest | None, *, stalled_s: float) -> None:
        """Asks the first teacher about a batch; with None, the next teacher about the same batch."""
        left = memoryview(framed(NEXT if request is None else encode(request)))
        while left:
            _wait(self._stdin, selectors.EVENT_WRITE, stalled_s)
            try:
                left = left[os.write(self._stdin.fileno(), left) :]
            except BlockingIOError:
                continue

    def read(self, *, stalled_s: float) -> Message | tuple[int, int]:
        """The next message, or (teachers loaded, teachers in all)."""
        length = int.from_bytes(self._exactly(LENGTH_BYTES, stalled_s), "big")
        if not 1 <= length <= 1 + MESSAGE_BYTES:
            raise MalformedMessage(f"{length} bytes; allowed: 1 to {1 + MESSAGE_BYTES}")
        data = self._exactly(length, stalled_s)
        kind, rest = data[:1], data[1:]
        if kind == LOADED and len(rest) == 2 * COUNT_BYTES:
            return int.from_bytes(rest[:COUNT_BYTES], "big"), int.from_bytes(rest[COUNT_BYTES:], "big")
        if kind != SAID:
            raise MalformedMessage(f"a message begins with {kind!r}; allowed: {LOADED!r} and {SAID!r}")
        return decode(rest)

    def terminate(self) -> None:
        """Ends the process, from any thread; kills it if it does not end. A thread that reads notices the end."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(_STOP_WAIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def end(self) -> int:
        """Ends the process and closes its pipes; its exit status. No other thread may read or write any more."""
        self._stdin.close()
        self.terminate()
        self._stdout.close()
        return self.process.wait()

    def _exactly(self, count: int, stalled_s: float) -> bytes:
        parts: list[bytes] = []
        while count:
            _wait(self._stdout, selectors.EVENT_READ, stalled_s)
            try:
                part = os.read(self._stdout.fileno(), min(count, 2**20))
            except BlockingIOError:
                continue
            if not part:
                raise EOFError
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    @property
    def _stdin(self) -> IO[bytes]:
        assert self.process.stdin is not None
        return self.process.stdin

    @property
    def _stdout(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout


def _wait(pipe: IO[bytes], event: int, stalled_s: float) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, event)
        if not selector.select(stalled_s):
            raise TimeoutError
