"""serve: the coordinator itself, until it is stopped."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from coordinator.commands.group import home_option
from coordinator.home import CoordinatorHome
from coordinator.serving import serve as serve_home
from runtime.cli import EPILOG
from runtime.logs import Log
from runtime.signals import until_signalled


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
    return until_signalled(lambda stop: serve_home(CoordinatorHome(home_folder), stop=stop, log=Log(sys.stderr)))
