"""A guardian's port on loopback for tests, and stand-ins for what speaks there."""

import datetime
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from coordinator.in_process import InProcessTransport
from coordinator.members import Authority, authority_pem
from coordinator.serving import GuardianLine, check_guardian, dial
from coordinator.store.store import Store
from guardian.home import GuardianHome, GuardianSettings, accept_certificate, approve_study, create_guardian
from guardian.port import GuardianPort
from party.party import Party
from protocols.crypto.channel import Channel
from protocols.crypto.identity import new_key
from protocols.crypto.randomness import system_source
from protocols.errors import Refused
from protocols.labelling.coordinator import Coordinator
from protocols.ledger.ledger import Ledger
from protocols.levels.two_server.aggregation import SharedAggregation
from protocols.levels.two_server.ballot import SharedBallot
from protocols.study.deployed import DeployedStudy, deployed
from protocols.study.levels import TwoServer
from protocols.study.queries import QueryBatch
from protocols.wire.guardian import GuardedStudy
from runtime.address import free_port
from simulations.stages.record_votes import contributions
from tests.harness.certifying import Certifying
from tests.harness.operators import make_home
from tests.harness.record_votes import HOLDINGS, QUERIES, study_of
from tests.harness.studies import NOW, deployed_study, pool_of, seat_keys, voter

SEALING, SIGNING = X25519PrivateKey.generate(), Ed25519PrivateKey.generate()
# Of the seats, in order of the roster.
KEYS = tuple(ec.derive_private_key(2000 + seat, ec.SECP256R1()) for seat in range(12))


def guarded_study(
    parties: int = 3, *, guardian: str = "notary", sealing=SEALING, signing=SIGNING, **more
) -> DeployedStudy:
    """A study of level two_server."""
    terms = TwoServer(
        units=64,
        abstention=False,
        guardian=guardian,
        sealing_key=sealing.public_key().public_bytes_raw().hex(),
        signing_key=signing.public_key().public_bytes_raw().hex(),
        seat_keys=seat_keys(KEYS),
    )
    return deployed_study(parties, confidentiality=terms, **more)


def guarded_records(*, sealing=SEALING, signing=SIGNING) -> DeployedStudy:
    """A study of level two_server in which the records of tests/harness/record_votes.py vote."""
    terms = guarded_study(3, sealing=sealing, signing=signing)
    names = tuple(seat.party for seat in terms.roster)
    return deployed(study_of(terms.confidentiality, names=names, quorum=2), terms.terms)


class Echo:
    """Says back what it hears, until it hears "end" or what makes it fail."""

    def __init__(self, errors: dict[bytes, Exception] | None = None) -> None:
        self.errors = errors or {}
        self.heard = 0

    def serve(self, channel) -> None:
        while (data := channel.recv(2**28)) != b"end":
            if data in self.errors:
                raise self.errors[data]
            self.heard += 1
            channel.send(data)


@dataclass
class Guardianship(Certifying):
    """An authority, a guardian's port that knows one study, and the line of a coordinator to it."""

    study: DeployedStudy = field(default_factory=guarded_study)
    guardian: Echo = field(default_factory=Echo)
    role: str = "guardian"
    denied: dict[str, str] = field(default_factory=dict)
    denied_there: dict[str, str] = field(default_factory=dict)
    events: list = field(default_factory=list)
    silence_s: float = 300.0
    # Of the guardian's certificate.
    since: datetime.datetime = NOW
    days: int = 30

    def __post_init__(self) -> None:
        self.make_authority()
        self.key, self.guardian_key = new_key(), new_key()
        self.busy = threading.Lock()

    @contextmanager
    def open(self, *, key=None, name="notary", listen=None) -> Iterator[GuardianLine]:
        """The port is open; the coordinator's line to it. key: of the guardian."""
        key = key or self.guardian_key
        port = GuardianPort(
            key=key,
            certificate=self.certify(key, name, self.role, days=self.days, now=self.since),
            authority=self.authority,
            denied=lambda identity: self.denied_there.get(identity.name),
            find=self.find,
            asks=self.asks,
            on_event=lambda event, fields: self.events.append((event, fields)),
            silence_s=self.silence_s,
        )
        address = listen or f"127.0.0.1:{free_port()}"
        port.start(address)
        try:
            yield self.line(address)
        finally:
            port.stop()

    def line(self, address, *, name="centre", role="coordinator", **more) -> GuardianLine:
        """A line with the coordinator's key, under any name and role."""
        line = GuardianLine(
            address=address,
            key=self.key,
            certificate=self.certify(self.key, name, role),
            authority=self.authority,
            denied=lambda identity: self.denied.get(identity.name),
            now=lambda: datetime.datetime.now(datetime.UTC),
            silence_s=self.silence_s,
        )
        return replace(line, **more)

    def find(self, digest: bytes) -> GuardedStudy:
        if digest != self.study.digest:
            raise Refused("unknown_study", f"study {digest.hex()[:16]} is not approved here")
        return GuardedStudy(self.study, self.guardian, self.busy)

    def asks(self, name: str) -> bool:
        return name == self.study.who_asks

    def codes(self) -> list[str]:
        """What happened at the port, in order."""
        return [str(fields.get("code", event)) for event, fields in self.events]


@dataclass
class TwoOrganisations:
    """A coordinator's and a guardian's home, certified as people do it, and one study that the guardian approved.

    The coordinator runs in this process, over a real line; what runs the guardian is for the test to say.
    """

    folder: Path
    parties: int = 3
    more: dict = field(default_factory=dict)
    # Whether records vote, and no teachers.
    records: bool = False
    # Called at each message of a conversation, with how many there were in it: to break something there.
    on_message: Callable[[int], None] = lambda number: None

    def __post_init__(self) -> None:
        self.home = make_home(self.folder)
        self.guardian = GuardianHome(self.folder / "guardian")
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        settings = GuardianSettings(name="notary", coordinator="centre", listen=self.address, metrics_port=0)
        self.print_of_key = create_guardian(self.guardian, settings)
        self.accept()
        keys = {"sealing": self.guardian.sealing_key(), "signing": self.guardian.signing_key()}
        self.study = guarded_records(**keys) if self.records else guarded_study(self.parties, **keys, **self.more)
        self.sums = contributions(self.study, QUERIES, HOLDINGS) if self.records else []
        approve_study(self.guardian, self.study, today=NOW.date(), source=system_source)
        self.ledger = Ledger(self.folder / "coordinator.sqlite")
        self.ledgers = {seat.party: Ledger(":memory:") for seat in self.study.roster}
        self.messages = 0

    def accept(self) -> None:
        """A certificate of the coordinator's authority for the guardian, as it came back."""
        with Store(self.home) as store:
            issued = Authority(self.home, store, self.home.settings()).certify_guardian(
                self.guardian.request_file.read_bytes(), key_fingerprint=self.print_of_key
            )
        accept_certificate(self.guardian, issued.pem, authority_pem(self.home), now=datetime.datetime.now(datetime.UTC))

    def close(self) -> None:
        for ledger in (self.ledger, *self.ledgers.values()):
            ledger.close()

    def line(self, **more) -> GuardianLine:
        """The coordinator's line, with its own key and certificate."""
        made = GuardianLine(
            address=self.address,
            key=self.home.key(),
            certificate=self.home.certificate(),
            authority=self.home.authority(),
            denied=lambda identity: None,
            now=lambda: datetime.datetime.now(datetime.UTC),
            silence_s=300.0,
        )
        return replace(made, **more)

    def label(self):
        """One attempt of a coordinator that begins anew, as after a restart; its parties answer from their ledgers."""
        parties = {
            name: Party(
                name,
                study=self.study,
                ledger=ledger,
                voter=(lambda batch, at=at: self.sums[at]) if self.records else voter(name),
                coins_from=None,
                ballot=SharedBallot(self.study, name, key=KEYS[at], source=system_source),
            )
            for at, (name, ledger) in enumerate(self.ledgers.items())
        }
        coordinator = Coordinator(
            self.study,
            ledger=self.ledger,
            aggregation=SharedAggregation(self._dial, source=system_source),
            exchange=InProcessTransport({name: party.handle for name, party in parties.items()}),
            run=os.urandom(16),
        )
        pool = pool_of(self.study.terms.pool_size, self.study.terms.input_shape[0])
        return coordinator.label(pool[: self.study.query_limit])

    @contextmanager
    def _dial(self) -> Iterator[Channel]:
        with dial(self.study, self.line()) as channel:
            yield _Counted(channel, self)

    def check(self) -> None:
        """Whether the guardian is there and knows the study."""
        check_guardian(self.study, self.line())

    def votes(self, query: int) -> np.ndarray:
        """What the parties vote on one query of the pool: i64[votes, 1]."""
        pool = pool_of(self.study.terms.pool_size, self.study.terms.input_shape[0])
        batch = QueryBatch(0, np.array([query]), pool[[query]])
        return np.concatenate([voter(name)(batch) for name in self.ledgers])

    def guardians_ledger(self) -> Path:
        return self.guardian.studies / self.study.name / "ledger.sqlite"

    def seeds(self, ledger: Path | str) -> dict[bytes, bytes]:
        """The noise seed of each request that a server has noted and not forgotten."""
        with sqlite3.connect(f"file:{ledger}?mode=ro", uri=True, timeout=300) as database:
            noted = database.execute("SELECT digest, substr(value, 9) FROM note WHERE kind = 'noise_seed'")
            return dict(noted.fetchall())


class _Counted:
    """A channel that says so before each message."""

    def __init__(self, channel: Channel, world: TwoOrganisations) -> None:
        self._channel = channel
        self._world = world
        self._number = 0

    def _next(self) -> None:
        self._world.messages += 1
        self._world.on_message(self._number)
        self._number += 1

    def send(self, data: bytes) -> None:
        self._next()
        self._channel.send(data)

    def recv(self, limit: int) -> bytes:
        self._next()
        return self._channel.recv(limit)
