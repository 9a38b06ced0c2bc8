"""serve: runs the coordinator until it is stopped."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from coordinator.commands.group import home_option
from runtime.cli import EPILOG
from runtime.logs import Log
from runtime.signals import until_signalled

if TYPE_CHECKING:
    from coordinator.home import CoordinatorHome


@click.command(epilog=EPILOG)
@home_option
def serve(home: CoordinatorHome) -> int:
    """Serve the nodes of the hospitals and run labellings, until Ctrl-C or SIGTERM.

    Logs are JSON lines on standard error. A labelling that was under way continues by itself. /healthz and /metrics are
    on 127.0.0.1.

    \b
    Example:
      conclave-coordinator serve
    """
    from coordinator.serving import serve as serve_home

    return until_signalled(lambda stop: serve_home(home, stop=stop, log=Log(sys.stderr)))
