"""Clocks of event loops that a test puts forward, so that no deadline of a test is a matter of the machine's speed."""

import asyncio
import time


class LoopClock:
    """The time of an event loop, which a test puts forward: what is due by then is due at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._ahead_s = 0.0
        loop.time = self

    def __call__(self) -> float:
        return time.monotonic() + self._ahead_s

    def put_forward(self, seconds: float) -> None:
        """Called on the loop's own thread."""
        self._ahead_s += seconds


def idle_loop() -> asyncio.AbstractEventLoop:
    """An event loop whose time stands still while it works, and goes on to the next deadline when it is idle.

    For work without sockets and threads: a deadline then passes where nobody could keep it, and nowhere else.
    """
    loop, now = asyncio.SelectorEventLoop(), 0.0
    select = loop._selector.select

    def passed(timeout: float | None = None) -> list:
        nonlocal now
        now += timeout or 0.0
        return select(0 if timeout is not None else None)

    loop._selector.select, loop.time = passed, lambda: now
    return loop


def wait_until(condition, *, timeout_s: float = 300.0) -> None:
    """Polls until it holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
