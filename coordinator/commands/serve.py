"""serve and status: runs the coordinator, and shows how it is; the passphrase of its home."""

from __future__ import annotations

import datetime
import sys
import time
from typing import (
    TYPE_CHECKING,
    Any,  # the values of a JSON object
)

import click

from coordinator.commands.group import home_option
from coordinator.commands.study import seat_rows
from protocols.plural import counted
from runtime.cli import EPILOG, json_option, page_options, passphrase_command, show_link
from runtime.exits import until_signalled
from runtime.logs import Log
from runtime.printing import pasting_on_page, print_json, table

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


_EVERY_S = 1.0


@click.command(epilog=EPILOG)
@click.option("--watch", is_flag=True, help="Refresh every second, until Ctrl-C.")
@home_option
@json_option
def status(watch: bool, home: CoordinatorHome, as_json: bool) -> None:
    """Show who is connected, rounds, answers left and budget used.

    \b
    Example:
      conclave-coordinator status --watch
    """
    from coordinator.status import read_status
    from coordinator.store.store import Store

    home.settings()
    with Store(home) as store:
        while True:
            now_s = time.time()
            figures = read_status(store, now_s=now_s)
            if watch and sys.stdout.isatty():
                click.clear()
            if as_json:
                print_json(figures)
            else:
                click.echo(_text(figures, now_s))
            if not watch:
                return
            time.sleep(_EVERY_S)


def _text(figures: dict[str, Any], now_s: float) -> str:
    from coordinator.status import serving_line

    lines = [serving_line(figures, now_s=now_s)]
    if figures["parties"]:
        rows = [
            [each["party"], each["connected"], each["days_left"], each["revoked"] or "", each["serial"]]
            for each in figures["parties"]
        ]
        lines += ["", table(["party", "connected", "days left", "revoked", "serial"], rows)]
    for each in figures["silent"]:
        since = datetime.datetime.fromtimestamp(each["since_s"], datetime.UTC)
        lines.append(
            f"not waited for: {each['party']}, which has not answered since {since:%Y-%m-%d %H:%M:%S} UTC; it is asked "
            "all the same, and waited for again when it connects or answers"
        )
    for request in figures["pending_requests"]:
        lines.append(f"waiting for approval: {request['party']}")
    if figures["open_invitations"]:
        lines.append(f"invited: {', '.join(figures['open_invitations'])}")
    for study in figures["studies"]:
        said = f" ({study['message']})" if study["message"] else ""
        asker = study["asked_by"]
        answered = f"{study['answered']} answered" if asker is None else f"asked by {asker}"
        lines += [
            "",
            f"study {study['study']}: {study['state']}{said}; {study['asked']} of "
            f"{counted(study['pool'], 'query')} asked in "
            f"{counted(study['batches'], 'batch')}, {answered}; quorum {study['quorum']}",
            table(*seat_rows(study)),
        ]
        if asker is not None:
            lines.append(
                f"{asker}'s ledger holds these budgets: they are shown here at their worst case, until a receipt says "
                "less"
            )
        if study["given_up"]:
            numbers = ", ".join(map(str, study["given_up"]))
            lines.append(f"given up without labels, charged as reserved: batch {numbers}")
    return "\n".join(lines)


passphrase = passphrase_command(
    "conclave-coordinator", home_option, keys=lambda home: [home.key_file, home.authority_key_file], runs="serve"
)
