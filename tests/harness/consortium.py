"""A consortium on loopback for tests: an authority, a hub and nodes in threads, with real mutual TLS."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from coordinator.connection.hub import Hub
from coordinator.connection.relaying import AT_ONCE
from party.connection.node import Node
from party.connection.seat import ServedSeat
from party.party import Party
from protocols.crypto.identity import certificate_from_pem, certificate_request, new_key, to_pem
from protocols.crypto.randomness import system_source
from protocols.errors import Refused
from protocols.labelling.coordinator import Coordinator
from protocols.ledger.ledger import Ledger
from protocols.levels.clear import ClearAggregation
from protocols.levels.table import Means, ballot_of
from protocols.noise import simulated
from protocols.study.deployed import DeployedStudy
from protocols.study.study import party_of
from protocols.wire.enrolment import Enrolled
from runtime.address import free_port
from tests.harness.certifying import Certifying
from tests.harness.clocks import LoopClock
from tests.harness.studies import pool_of, voter


@dataclass
class Consortium(Certifying):
    """The parts, and what happened. Use as a context manager."""

    study: DeployedStudy
    folder: Path
    denied: dict[str, str] = field(default_factory=dict)
    # Seats for which no round waits: its deadline passes as soon as all others have answered.
    unawaited: set[str] = field(default_factory=set)
    events: list = field(default_factory=list)
    renew_days_left: int = 0
    keys: dict = field(default_factory=dict)
    # Made anew at each start of the hub.
    aggregation: Callable = lambda: ClearAggregation(simulated(np.random.default_rng(1)))
    days: int = 30

    def __enter__(self):
        self.make_authority()
        self.key = new_key()
        self.certificate = self.certify(self.key, "centre", role="coordinator")
        self.address = f"127.0.0.1:{free_port()}"
        self.certificates, self.ledgers, self.parties = {}, {}, {}
        self.stops, self.threads, self.ended = {}, {}, {}
        self.hub, self.ledger, self.coordinator = None, None, None
        self.start_hub()
        return self

    def __exit__(self, *_):
        for name in list(self.threads):
            self.stop_node(name)
        self.stop_hub()
        for ledger in self.ledgers.values():
            ledger.close()

    def start_hub(self, ledger: str = "coordinator.sqlite") -> None:
        self.hub = Hub(
            key=self.key,
            certificate=self.certificate,
            authority=self.authority,
            denied=lambda identity: self.denied.get(identity.name),
            renew=self.renew,
            enrol=lambda message: Enrolled(b"", "pending", message.party),
            on_event=lambda event, fields: self.events.append((event, fields)),
        )
        self._time_rounds()
        _, self.enrol_port = self.hub.start(listen=self.address, enrol_listen="127.0.0.1:0")
        self.ledger = Ledger(self.folder / ledger)
        self.open_study()

    def open_study(self) -> None:
        """Opens the study at the hub, and a coordinator of it."""
        transport = self.hub.open_study(
            self.study, self.ledger, outcome_for=lambda *args: self.coordinator.outcome_for(*args)
        )
        self.coordinator = Coordinator(
            self.study, ledger=self.ledger, aggregation=self.aggregation(), exchange=transport, run=b"run"
        )

    def _time_rounds(self) -> None:
        """Has the deadline of a round of the hub pass when nobody but the unawaited is still to answer."""
        sessions, clock, unanswered, rounds = self.hub._sessions, LoopClock(self.hub._loop), set(), []
        ask, ask_all, places = sessions.ask, sessions.ask_all, self.hub._relay.places

        async def asked(session, opened, seat, request, *more):
            reply = await ask(session, opened, seat, request, *more)
            unanswered.discard((seat, id(request)))
            return reply

        def has_its_request(opened, seat):
            """One that is not here, or is refused, gets none."""
            session = sessions.open.get(party_of(seat))
            if session is None or (opened.study.digest, seat) in session.refused:
                return True
            return bool(session.waiting) and not session.writes

        def is_over(opened, own):
            if AT_ONCE - places._value > len(rounds):  # what is to be relayed is on its way here, against the clock
                return False
            waits = {seat for seat, _ in unanswered}
            rest = {seat for seat, _ in own & unanswered}
            return rest and waits <= self.unawaited and all(has_its_request(opened, seat) for seat in rest)

        async def end(opened, own):
            while not is_over(opened, own):
                await asyncio.sleep(0.005)
            clock.put_forward(opened.study.terms.deadline_s)

        async def round_of(opened, requests, **how):
            own = {(seat, id(request)) for seat, request in requests.items()}
            unanswered.update(own)
            rounds.append(opened)
            ending = asyncio.ensure_future(end(opened, own))
            try:
                return await ask_all(opened, requests, **how)
            finally:
                unanswered.difference_update(own)
                rounds.pop()
                ending.cancel()

        sessions.ask, sessions.ask_all = asked, round_of

    def stop_hub(self) -> None:
        self.hub.stop()
        self.ledger.close()

    def renew(self, identity, request):
        if identity.name == "hospital-9":
            raise Refused("denied", "no renewal")
        return to_pem(self.certify(self.keys[identity.name], identity.name, days=90))

    def add_node(self, name: str, *, file: str | None = None, settles: bool = True, vote=None) -> Party:
        """A node of a party, not yet started."""
        self.keys.setdefault(name, new_key())
        if name not in self.certificates:
            self.certificates[name] = self.certify(self.keys[name], name)
        ledger = Ledger(self.folder / (file or f"{name}.sqlite"))
        self.ledgers[name] = ledger
        means = Means(key=lambda: self.keys[name])
        self.parties[name] = Party(
            name,
            study=self.study,
            ledger=ledger,
            voter=vote or voter(name, self.study.votes.voters),
            coins_from=None,
            settles=settles,
            ballot=ballot_of(self.study, name, ledger=ledger, source=system_source, means=means),
        )
        return self.parties[name]

    def node(self, name: str) -> Node:
        def save(pem):
            self.certificates[name] = certificate_from_pem(pem)

        return Node(
            key=self.keys[name],
            certificate=self.certificates[name],
            authority=self.authority,
            address=self.address,
            seats=lambda: [ServedSeat(self.study, self.parties[name], self.ledgers[name], anchor=lambda: None)],
            save_certificate=save,
            on_event=lambda event, fields: self.events.append((event, {"node": name, **fields})),
            renew_days_left=self.renew_days_left,
        )

    def start_node(self, name: str) -> None:
        stop = self.stops[name] = threading.Event()
        node = self.node(name)

        def run():
            try:
                node.run(stop)
            except Refused as error:
                self.ended[name] = error.code

        self.threads[name] = threading.Thread(target=run)
        self.threads[name].start()

    def stop_node(self, name: str) -> None:
        self.stops.pop(name).set()
        self.threads.pop(name).join()

    def start_all(self) -> None:
        for seat in self.study.roster:
            self.add_node(seat.party)
            self.start_node(seat.party)
        missing = self.hub.wait_for(frozenset(self.threads), timeout_s=300)
        assert not missing

    def label(self):
        terms = self.study.terms
        return self.coordinator.label(pool_of(terms.pool_size, terms.input_shape[0]))

    def request(self, name):
        """A certificate request of a party's key."""
        return certificate_request(self.keys[name], name=name)

    def codes(self, event: str) -> set:
        return {fields.get("code") for happened, fields in self.events if happened == event}
