"""Teachers in a separate process, so that an idle node stays small and survives a crash of its teachers.

The process starts when the node does, or at a vote, and ends when nothing has been asked for a while. It is not ended
at a deadline: late votes are kept, and used when the same batch is asked again. It is ended if it makes no progress,
that is, if no teacher loads or votes, or no byte arrives, for a given time. See teacher_child.py for the messages.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from party.voting.teacher_child import COUNT_BYTES, LENGTH_BYTES, LOADED, NEXT, SAID, framed
from protocols.errors import CannotVote, MalformedMessage, Refused
from protocols.plural import counted
from protocols.private_files import open_private
from protocols.refusals.code import Code
from protocols.study.queries import QueryBatch
from protocols.wire.messages import MESSAGE_BYTES, Message, Refusal, VoteReply, VoteRequest, decode, encode

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


_Votes = Int64[ndarray, "teachers queries"]
# Batches whose votes are kept in case they are asked for again.
_KEPT: Final = 2
# A node that will be late says so this long before the coordinator's deadline, or after four fifths of a short one.
_SAY_LATE_S: Final = 5.0


def late_after_s(deadline_s: float) -> float:
    """The seconds after which a node says that it will be late for a study's deadline."""
    return deadline_s - min(_SAY_LATE_S, deadline_s / 5)


@dataclass(eq=False)
class _Task:
    """A batch that the teachers are asked about. began: by the clock, in seconds."""

    digest: bytes
    queries: int
    request: VoteRequest = field(repr=False)
    began: float
    votes: _Votes | None = field(default=None, repr=False)
    refused: Refused | None = None
    late: bool = False


@dataclass(eq=False)
class _Wishes:
    """Orders for the thread that owns the process."""

    task: _Task | None = None
    warm: bool = False
    rest: bool = False
    close: bool = False


class TeacherProcess:
    """A Voter whose teachers vote in a child process.

    A vote raises Refused("no_teachers"), ("teachers_late") shortly before the deadline, or CannotVote; nothing was
    charged then, and the reason names no file of the hospital, as it goes to the coordinator. Late teachers continue,
    and their votes are used if the batch is asked again. A newer batch replaces an unfinished one after the current
    teacher's vote: a coordinator only asks for its newest. At most two batches' votes are kept, in memory.
    """

    def __init__(
        self,
        folder: Path,
        *,
        study: bytes,
        deadline_s: float,
        idle_s: float,
        stalled_s: float,
        on_event: Callable[[str, dict[str, str | int]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """folder: as written by party.voting.training; study: its digest; deadline_s: the study's, for one batch.

        idle_s: the child is ended after so long without a request; stalled_s: and after so long without progress;
        clock: seconds, to report how long predicting took.
        """
        self._folder = folder
        self._study = study
        self._deadline_s = deadline_s
        self._idle_s = idle_s
        self._stalled_s = stalled_s
        self._on_event = on_event
        self._clock = clock
        self._changed = threading.Condition()
        self._wishes = _Wishes()
        self._kept: dict[bytes, _Votes] = {}
        self._asked = False
        # This thread owns the child: no other reads from it or writes to it.
        self._thread: threading.Thread | None = None
        self._pipe: TeacherPipe | None = None
        self._teachers = 0

    def __call__(self, batch: QueryBatch) -> _Votes:
        """The teachers' votes."""
        with self._changed:
            self._check_open()
            self._asked = True
            kept = self._kept.get(batch.digest)
            if kept is not None:
                return kept
            task = self._wishes.task
            if task is None or task.digest != batch.digest:
                request = VoteRequest(self._study, b"", batch)
                task = _Task(batch.digest, len(batch.ids), request, self._clock())
                if self._wishes.task is not None:
                    self._wishes.task.refused = Refused(Code.TEACHERS_LATE, "the coordinator asked for a newer batch")
                self._wishes.task = task
                self._wake()
            by_s = late_after_s(self._deadline_s)
            self._changed.wait_for(lambda: task.votes is not None or task.refused is not None, by_s)
            if task.votes is not None:
                return task.votes
            if task.refused is not None:
                raise task.refused
            task.late = True
            took_s = self._clock() - task.began
            so_far = f"predicting {counted(task.queries, 'query')} has taken {took_s:.3g} s and continues"
            reason = f"{so_far}; {self._advice()}; the votes are kept for the next time the batch is asked"
        self._on_event("teachers_late", {"reason": reason})
        raise Refused(Code.TEACHERS_LATE, reason)

    @property
    def process(self) -> int | None:
        """The number of the child's process; None if it does not run."""
        pipe = self._pipe
        return None if pipe is None else pipe.process.pid

    def warm(self) -> None:
        """Loads the teachers if necessary; returns when they are loaded, or cannot be."""
        with self._changed:
            if self._wishes.close:
                return
            self._wishes.warm = True
            self._wake()
            self._changed.wait_for(lambda: not self._wishes.warm)

    def measure(self, batch: QueryBatch) -> float | None:
        """The seconds in which the teachers predict a batch, whose votes are dropped; None if they cannot.

        It is given up when a vote would be late, which the result then says, or when a batch is asked.
        """
        by_s = late_after_s(self._deadline_s)
        with self._changed:
            if self._wishes.close or self._wishes.task is not None:
                return None
            request = VoteRequest(self._study, b"", batch)
            task = self._wishes.task = _Task(batch.digest, len(batch.ids), request, self._clock())
            self._wake()
            over = self._changed.wait_for(lambda: self._wishes.task is not task, by_s)
            took_s = self._clock() - task.began
            if not over:
                self._wishes.task = None
            self._kept.pop(batch.digest, None)
            if over and task.votes is None:
                return None
        if not over or took_s >= by_s:
            said = f"predicting {counted(task.queries, 'query')} takes {took_s:.3g} s here{'' if over else ' and more'}"
            self._on_event("deadline_short", {"reason": f"{said}; {self._advice()}"})
        return took_s

    def rest(self) -> None:
        """Ends the child now if it only loaded teachers and was never asked."""
        with self._changed:
            if not self._asked and self._thread is not None:
                self._wishes.rest = True
                self._changed.notify_all()
                self._changed.wait_for(lambda: not self._wishes.rest)

    def close(self) -> None:
        """Ends the child, if there is one, and refuses every waiting and later request."""
        with self._changed:
            self._wishes.close = True
            self._changed.notify_all()
            thread, pipe = self._thread, self._pipe
        if pipe is not None:
            pipe.terminate()
        if thread is not None:
            thread.join()

    def _check_open(self) -> None:
        if self._wishes.close:
            raise _closed()

    def _wake(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="teachers", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _work(self) -> None:
        """Serves requests until there have been none for a while."""
        wishes = self._wishes
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(
                        lambda: wishes.close or wishes.rest or wishes.warm or wishes.task is not None, self._idle_s
                    )
                    task = wishes.task
                    if wishes.close or (task is None and not wishes.warm):
                        self._stop()
                        return
                    wishes.rest = False
                self._do(task)
        finally:
            with self._changed:
                if self._thread is threading.current_thread():
                    self._stop()

    def _stop(self) -> None:
        """Ends the child, and with it every wait for its votes."""
        self._end()
        self._thread = None
        self._finish(self._wishes.task, _closed())
        self._wishes.warm = self._wishes.rest = False
        self._changed.notify_all()

    def _do(self, task: _Task | None) -> None:
        """Starts the child if there is none, then predicts the task; stores any failure in the task."""
        done: _Votes | Refused | None
        try:
            pipe = self._started()
            with self._changed:
                self._wishes.warm = False
                self._changed.notify_all()
            done = None if task is None else self._predicted(pipe, task)
        except TimeoutError:
            done = self._failed(
                f"the teachers made no progress for {self._stalled_s:g} s and were ended", "see teachers.stalled_s"
            )
        except (EOFError, MalformedMessage, OSError):
            if self._wishes.close:
                return
            code = None if self._pipe is None else self._pipe.process.poll()
            what = f"the teachers' process ended{'' if code is None else f' with {code}'}"
            done = self._failed(what, f"see {self._folder / LOG}")
        except Refused as refused:
            done = refused
        with self._changed:
            if isinstance(done, Refused):
                self._end()
            self._wishes.warm = False
            self._finish(task, done)
            self._changed.notify_all()

    def _finish(self, task: _Task | None, done: _Votes | Refused | None) -> None:
        """Stores the votes of a task, or why there are none; a task replaced by a newer batch has neither."""
        if task is None or done is None or self._wishes.task is not task:
            return
        self._wishes.task = None
        if isinstance(done, Refused):
            task.refused = done
            return
        task.votes = self._kept[task.digest] = done
        while len(self._kept) > _KEPT:
            del self._kept[next(iter(self._kept))]
        took_s = self._clock() - task.began
        if task.late:
            reason = f"predicting {counted(task.queries, 'query')} took {took_s:.3g} s; {self._advice()}"
            self._on_event("teachers_slow", {"reason": reason})

    def _predicted(self, pipe: TeacherPipe, task: _Task) -> _Votes | None:
        """The votes, collected teacher by teacher; None as soon as another batch is wanted, or none at all."""
        rows: list[_Votes] = []
        for number in range(self._teachers):
            if self._wishes.task is not task or self._wishes.close:
                return None
            pipe.ask(None if number else task.request, stalled_s=self._stalled_s)
            reply = pipe.read(stalled_s=self._stalled_s)
            if isinstance(reply, Refusal):
                raise self._failed("the teachers cannot be used", reply.reason)
            if (
                not isinstance(reply, VoteReply)
                or reply.batch_digest != task.request.digest
                or reply.votes.shape != (1, task.queries)
            ):
                raise MalformedMessage("the teachers' process answered another request")
            rows.append(reply.votes)
        return np.concatenate(rows)

    def _started(self) -> TeacherPipe:
        """The child, with its teachers loaded."""
        if self._pipe is not None and self._pipe.process.poll() is None:
            return self._pipe
        self._end()
        if not self._folder.is_dir():
            raise self._failed(
                "there are no teachers of this study",
                f"{self._folder} does not exist; run: conclave-party train STUDY",
                code=Code.NO_TEACHERS,
            )
        began = self._clock()
        try:
            pipe = TeacherPipe(self._folder, study=self._study)
        except OSError as error:
            raise self._failed("the teachers' process cannot be started", str(error)) from None
        with self._changed:
            self._pipe = pipe
        self._check_open()  # if it was closed before it knew of the child, nobody else would end the child
        self._on_event("teachers_started", {"process": pipe.process.pid})
        loaded, teachers = 0, 1
        while loaded < teachers:
            said = pipe.read(stalled_s=self._stalled_s)
            if isinstance(said, Refusal):
                raise self._failed("the teachers cannot be used", said.reason)
            if not isinstance(said, tuple):
                raise MalformedMessage("the teachers' process voted before it was asked")
            loaded, teachers = said
        self._teachers = teachers
        self._on_event("teachers_ready", {"teachers": teachers, "seconds": round(self._clock() - began)})
        return pipe

    def _failed(self, what: str, detail: str, *, code: Code = Code.TEACHERS_FAILED) -> Refused:
        """The refusal for the coordinator; `what` and `detail` go only to the hospital's own log."""
        self._on_event("teachers_failed", {"code": code, "reason": f"{what}: {detail}"[:500]})
        if code == Code.NO_TEACHERS:
            return Refused(code, "there are no teachers of this study; the hospital's own log says more")
        return CannotVote(f"{what}: {detail}")

    def _advice(self) -> str:
        return (
            f"the study's deadline is {self._deadline_s:g} s: ask the operator for a longer deadline_s, or a smaller "
            "batch_limit, in the next study"
        )

    def _end(self) -> None:
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            status = pipe.end()
            self._on_event("teachers_ended", {"process": pipe.process.pid, "status": status})


def _closed() -> Refused:
    return CannotVote("this node is stopping, or no longer answers for the study")
