"""Running until a signal says to stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

from runtime.exits import Exit


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
