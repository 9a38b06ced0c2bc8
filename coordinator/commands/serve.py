"""serve: the coordinator itself, until it is stopped."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import click

from coordinator.commands.group import EPILOG, INTERRUPTED, home_option
from coordinator.home import Home
from coordinator.serving import serve as serve_home
from runtime.logs import Log


@click.command(epilog=EPILOG)
@home_option
def serve(home_folder: Path) -> int:
    """Serve the nodes of the hospitals and run labellings, until Ctrl-C or SIGTERM.

    One JSON object a line on standard error says what happens. A labelling that was under way goes on by itself. On
    127.0.0.1 there are /healthz and /metrics.

    \b
    Example:
      conclave-coordinator serve
    """
    return until_signalled(lambda stop: serve_home(Home(home_folder), stop=stop, log=Log(sys.stderr)))


def until_signalled(work: Callable[[threading.Event], None]) -> int:
    """Runs what ends when its event is set, which SIGTERM and Ctrl-C do; the exit code."""
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
    return INTERRUPTED if interrupted.is_set() else 0
