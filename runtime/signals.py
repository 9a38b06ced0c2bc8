"""Running until a signal says to stop."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from runtime.exits import Exit

INTERRUPTED = "interrupted; run the same command again"


def until_signalled(work: Callable[[threading.Event], None]) -> int:
    """Runs `work`, which ends when its event is set; SIGTERM and Ctrl-C set it. Returns the exit code."""
    stop, interrupted = threading.Event(), threading.Event()

    def end(received: int, _: object) -> None:
        if received == signal.SIGINT:
            interrupted.set()
        stop.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        work(stop)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return Exit.INTERRUPTED if interrupted.is_set() else 0


@contextmanager
def ended_by_interrupt() -> Iterator[None]:
    """Ctrl-C ends the process at once with exit code 130, for work that may be killed at any point.

    KeyboardInterrupt would be raised in whatever line runs, also amid the code of locks and of gRPC, where it may break
    an invariant or be lost. Nothing is cleaned up. For the main thread.
    """

    def end(_: int, __: object) -> None:
        os.write(2, f"\n{INTERRUPTED}\n".encode())
        os._exit(Exit.INTERRUPTED)

    before = signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
