"""serve: runs the coordinator until it is stopped."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from coordinator.commands.group import home_option
from runtime.cli import EPILOG, page_options, show_link
from runtime.exits import until_signalled
from runtime.logs import Log
from runtime.printing import pasting_on_page

if TYPE_CHECKING:
    from coordinator.home import CoordinatorHome


@click.command(epilog=EPILOG)
@page_options
@home_option
@click.option("--json", "as_json", is_flag=True, help="Log JSON lines at a terminal too.")
def serve(home: CoordinatorHome, page: bool, page_port: int, as_json: bool) -> int:
    """Serve the nodes of the hospitals and run labellings, until Ctrl-C or SIGTERM.

    Logs are on standard error: plain lines at a terminal, otherwise JSON lines. A labelling that was under way
    continues by itself. /healthz, /metrics and a live page are on 127.0.0.1; the link in live-page.link opens it once.

    \b
    Example:
      conclave-coordinator serve
    """
    from coordinator.serving import serve as serve_home

    plain = sys.stderr.isatty() and not as_json
    return until_signalled(
        lambda stop: serve_home(
            home,
            stop=stop,
            log=Log(sys.stderr, plain=plain),
            page_port=page_port if page else None,
            show_link=show_link if plain else lambda link: None,
            paste=pasting_on_page(),
        )
    )
