"""The command run: runs the node until it is told to stop."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from party.commands.accounts import answers_left
from party.commands.group import home_option
from protocols.errors import StorageFailed
from protocols.reading import read_bytes
from runtime.cli import EPILOG
from runtime.exits import Exit
from runtime.files import write_atomically

if TYPE_CHECKING:
    from party.budget.policy import Approval, Policy
    from party.home import PartyHome
    from party.voting.answering import Answering
    from runtime.metrics import Family

_LOOK_S: Final = 0.2
_APPROVALS_S: Final = 2.0


@click.command(epilog=EPILOG)
@home_option
def run(home: PartyHome) -> int:
    """Dial out to the coordinator, answer for every approved study, and dial again whenever the connection ends.

    Logs are JSON lines on standard error. SIGTERM and Ctrl-C stop it; every charge is on disk at all times.

    \b
    Example:
      conclave-party run
    """
    from party.budget.policy import Policy
    from party.connection.node import Node
    from party.open_home import mend_home
    from party.voting.answering import Answering
    from protocols.crypto.identity import PEM_BYTES, certificate_from_pem, key_from_pem
    from runtime.logs import Log
    from runtime.metrics import Monitor, exposition

    settings, invitation = home.settings(), home.invitation()
    key = key_from_pem(read_bytes(home.key, most=PEM_BYTES))
    authority = certificate_from_pem(invitation.authority)
    log, connection = Log(sys.stderr), Connection()

    def on_event(event: str, fields: dict[str, str | int]) -> None:
        connection(event)
        log(event, fields)

    stop, interrupted = threading.Event(), threading.Event()

    def end(received: int, _: object) -> None:
        if received == signal.SIGINT:
            interrupted.set()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    with ExitStack() as held:
        held.enter_context(home.running())
        mended = mend_home(home)
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
                healthy=lambda: connection.stands,
                metrics=lambda: exposition(_families(answering, policy, connection), dict(log.counts)),
            )
            held.callback(monitor.close)
        seats = answering.seats()
        on_event("started", {"studies": len(seats), "metrics_port": settings.metrics_port})
        while not stop.is_set():
            # Connecting again picks up studies that were approved or withdrawn meanwhile.
            again = threading.Event()
            watch = threading.Thread(
                target=_watch, args=(answering, policy, policy.approvals(), stop, again), daemon=True
            )
            watch.start()
            answering.warm(seats)
            node = Node(
                key=key,
                certificate=certificate_from_pem(read_bytes(home.certificate, most=PEM_BYTES)),
                authority=authority,
                address=invitation.address,
                seats=answering.seats,
                save_certificate=partial(write_atomically, home.certificate),
                on_event=on_event,
                renew_days_left=settings.renew_days_left,
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


class Connection:
    """Whether the node is connected, judged by the events of its log."""

    def __init__(self) -> None:
        self.stands = False

    def __call__(self, event: str) -> None:
        """Updates the state from one event."""
        if event == "connected":
            self.stands = True
        elif event in ("disconnected", "goodbye", "stopped", "malformed"):
            self.stands = False


def _families(answering: Answering, policy: Policy, connection: Connection) -> list[Family]:
    """Metrics: what each seat may still answer, and how full the lifetime caps are."""
    from runtime.metrics import Family

    left: list[tuple[Mapping[str, str], float]] = []
    used: list[tuple[Mapping[str, str], float]] = []
    for seat in answering.seats():
        labels = {"study": seat.study.name, "seat": seat.party.name}
        balance = seat.ledger.balance(seat.party.name)
        used.append((labels, balance.spent / balance.cap))
        left.append((labels, float(answers_left(seat.study, seat.party.name, balance.spent))))
    reserved = [({"data_set": each.data_set, "unit": each.unit}, each.share) for each in policy.lifetime_uses()]
    return [
        Family("conclave_connected", "Whether the node has a session.", [({}, float(connection.stands))]),
        Family("conclave_answers_left", "Answers that the seat's budget still affords, in the worst case.", left),
        Family("conclave_budget_used_ratio", "Share of the seat's cap that is spent or reserved.", used),
        Family("conclave_lifetime_reserved_ratio", "Share of a lifetime cap that studies have reserved.", reserved),
    ]
