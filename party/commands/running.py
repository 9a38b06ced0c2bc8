"""The command run: runs the node until it is told to stop."""

from __future__ import annotations

import datetime
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from party.commands.group import SECRETS, home_option
from protocols.errors import StorageFailed
from protocols.reading import read_bytes
from runtime.cli import EPILOG, page_options, show_link
from runtime.exits import Exit
from runtime.files import write_atomically
from runtime.printing import pasting_on_page

if TYPE_CHECKING:
    from party.budget.policy import Approval, Policy
    from party.home import PartyHome
    from party.live import Recent
    from party.voting.answering import Answering
    from runtime.loopback import Family

_LOOK_S: Final = 0.2
_APPROVALS_S: Final = 2.0
# The newest withdrawals that the coordinator is told of at each connection.
_TOLD: Final = 1000
# How long the page waits for the ledgers, which a vote may hold; it then shows what it showed before.
_PATIENCE_S: Final = 1.0
# How long a node without a certificate waits for one; whatever starts the service starts it again.
_ENROL_S: Final = 86_400.0


@click.command(epilog=EPILOG)
@page_options
@home_option
@click.option("--json", "as_json", is_flag=True, help="Log JSON lines at a terminal too.")
def run(home: PartyHome, page: bool, page_port: int, as_json: bool) -> int:
    """Connect to the coordinator, answer for every approved study, and connect again whenever the connection ends.

    Logs each batch that it answers, and what is left of the budget, on standard error: plain lines at a terminal,
    otherwise JSON lines. SIGTERM and Ctrl-C stop it; every charge is on disk at all times. A live page is on 127.0.0.1;
    the link in live-page.link, in the home, opens it once. A node without a certificate first asks for one, and waits
    for up to a day until the operator has approved.

    \b
    Example:
      conclave-party run
    """
    from party.budget.policy import Policy
    from party.commands.homes import enrol_home
    from party.connection.node import Node
    from party.live import Recent, node_page, node_state
    from party.voting.answering import Answering
    from protocols.crypto.identity import PEM_BYTES, certificate_from_pem
    from runtime.cli import mend_home
    from runtime.logs import Log
    from runtime.loopback import LINK_FILE, LivePage, Monitor, Newest, exposition

    settings, invitation = home.settings(), home.invitation()
    key = home.open_key()
    authority = certificate_from_pem(invitation.authority)
    plain = sys.stderr.isatty() and not as_json
    log, recent = Log(sys.stderr, plain=plain), Recent()

    def on_event(event: str, fields: Mapping[str, str | int | float]) -> None:
        recent(event, fields)
        log(event, fields)

    if not home.certificate.exists():
        enrol_home(home, _ENROL_S, say=lambda text: on_event("enrolling", {"reason": text}))

    stop, interrupted = threading.Event(), threading.Event()

    def end(received: int, _: object) -> None:
        if received == signal.SIGINT:
            interrupted.set()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    with ExitStack() as held:
        held.enter_context(home.running())
        mended = mend_home(home.path, SECRETS)
        if mended:
            on_event(
                "home_mended",
                {"reason": f"others could read {len(mended)} files or folders, the first being {mended[0]}"},
            )
        policy = held.enter_context(Policy(settings.policy))
        answering = held.enter_context(Answering(home, settings, policy, party=invitation.party, on_event=on_event))
        if settings.metrics_port:
            monitor = Monitor(
                settings.metrics_port,
                healthy=lambda: recent.stands,
                metrics=lambda: exposition(node_metrics(home, answering, policy, recent), dict(log.counts)),
            )
            held.callback(monitor.close)
        if page:
            seen, paste = partial(node_state, home, invitation, policy, answering.seats, recent), pasting_on_page()
            newest = Newest(lambda: node_page(seen(), paste=paste), patience_s=_PATIENCE_S)
            live = held.enter_context(LivePage(page_port, page=newest, file=home.path / LINK_FILE))
            on_event("page_opened", {"port": live.port, "file": str(live.file)})
            if plain:
                show_link(live.link)
        seats = answering.seats()
        on_event("started", {"studies": len(seats), "metrics_port": settings.metrics_port})
        while not stop.is_set():
            # Connecting again picks up studies that were approved or withdrawn meanwhile.
            again = threading.Event()
            watch = threading.Thread(
                target=_watch, args=(answering, policy, policy.approvals(), stop, again), daemon=True
            )
            watch.start()
            answering.warm(seats, until=again)
            if not again.is_set():
                on_event("ready", {"studies": len(seats)})
            node = Node(
                key=key,
                certificate=certificate_from_pem(read_bytes(home.certificate, most=PEM_BYTES)),
                authority=authority,
                address=invitation.address,
                seats=answering.seats,
                save_certificate=partial(write_atomically, home.certificate),
                on_event=on_event,
                renew_days_left=settings.renew_days_left,
                withdrawn=lambda: [each.study for each in policy.own_approvals(home) if each.withdrawn][-_TOLD:],
            )
            try:
                node.run(again)
            finally:
                again.set()
                watch.join()
            if not stop.is_set():
                seats = answering.seats()
        on_event("ended", {})
    return Exit.INTERRUPTED if interrupted.is_set() else 0


def _watch(
    answering: Answering, policy: Policy, first: list[Approval], stop: threading.Event, again: threading.Event
) -> None:
    """Sets `again` when the node is to stop, or when the approvals differ from `first`; does not wait for votes."""
    waited = 0.0
    while not again.is_set():
        if stop.wait(_LOOK_S):
            again.set()
            answering.stop()
        waited += _LOOK_S
        if waited >= _APPROVALS_S:
            waited = 0.0
            # A file that cannot be read for a moment changes nothing: each vote checks it again.
            with suppress(StorageFailed):
                if policy.approvals() != first:
                    answering.end_withdrawn()
                    again.set()


def node_metrics(home: PartyHome, answering: Answering, policy: Policy, recent: Recent) -> list[Family]:
    """Metrics: what each seat may still answer, how full the lifetime caps are, and for how long the certificate is.

    Raises StorageFailed, DataUnavailable.
    """
    from party.budget.spending import what_was_spent
    from party.live import days_left, ledgers_of
    from runtime.loopback import Family

    left: list[tuple[Mapping[str, str], float]] = []
    used: list[tuple[Mapping[str, str], float]] = []
    found = what_was_spent(home, policy, opened=ledgers_of(answering.seats()))
    for seat in (each for each in found.seats if not each.approval.withdrawn):
        labels = {"study": seat.study.name, "seat": seat.seat}
        used.append((labels, seat.spent / int(seat.study.budgets.cap[seat.study.seats[seat.seat]])))
        left.append((labels, float(seat.answers_left)))
    reserved = [({"data_set": each.data_set, "unit": each.unit}, each.share) for each in found.lifetime]
    return [
        Family("conclave_connected", "Whether the node has a session.", [({}, float(recent.stands))]),
        Family(
            "conclave_certificate_days_left",
            "Days until this node's certificate expires.",
            [({"party": home.invitation().party}, days_left(home.certificate, datetime.datetime.now(datetime.UTC)))],
        ),
        Family("conclave_answers_left", "Answers that the seat may still give, in the worst case.", left),
        Family("conclave_budget_used_ratio", "Share of the seat's cap that is spent or reserved.", used),
        Family("conclave_lifetime_reserved_ratio", "Share of a lifetime cap that studies have reserved.", reserved),
    ]
