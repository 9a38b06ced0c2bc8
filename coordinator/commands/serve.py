"""serve: the coordinator itself, until it is stopped."""

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

    One JSON object a line on standard error says what happens. A labelling that was under way goes on by itself. On
    127.0.0.1 there are /healthz and /metrics.

    \b
    Example:
      conclave-coordinator serve
    """
    from coordinator.serving import serve as serve_home

    return until_signalled(lambda stop: serve_home(home, stop=stop, log=Log(sys.stderr)))
