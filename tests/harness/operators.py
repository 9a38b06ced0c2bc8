"""An operator's home for tests, and a hub of one process with the interface of the real one."""

import threading
import time
from pathlib import Path

import numpy as np

from coordinator.connection.sessions import Connected
from coordinator.home import CoordinatorHome, CoordinatorSettings
from coordinator.in_process import InProcessTransport
from coordinator.labelling.study_creation import create_study, write_pool
from coordinator.members import Authority, create_consortium
from coordinator.store.store import Store
from party.party import Party
from protocols.crypto.identity import certificate_request, new_key, request_fingerprint, to_pem
from protocols.ledger.ledger import Ledger
from protocols.study.file import write_study
from protocols.study.study import party_of
from protocols.wire.enrolment import Enrol
from protocols.wire.messages import Refusal, VoteRequest
from tests.harness.studies import NOW, deployed_study, pool_of, voter

SETTINGS = CoordinatorSettings(
    consortium="heart",
    coordinator="centre",
    listen="127.0.0.1:0",
    enrol_listen="127.0.0.1:0",
    address="127.0.0.1:7443",
    enrol_address="127.0.0.1:7444",
    metrics_port=0,
)


def make_home(folder: Path, **changes) -> CoordinatorHome:
    """A home after init."""
    home = CoordinatorHome(folder / "home")
    create_consortium(home, CoordinatorSettings(**{**SETTINGS.__dict__, **changes}))
    return home


def add_study(home: CoordinatorHome, folder: Path, **how):
    """A study of hospital-0, hospital-1, ... in the home, with its pool."""
    study = deployed_study(**{"parties": 3, **how})
    terms = study.terms
    (folder / "study.toml").write_text(write_study(study))
    write_pool(folder / "pool.npy", pool_of(terms.pool_size, terms.input_shape[0]))
    with Store(home) as store:
        return create_study(
            store, home.settings(), file=folder / "study.toml", pool_file=folder / "pool.npy", today=NOW.date()
        )


def enrol(home: CoordinatorHome, store: Store, party: str, key=None):
    """A party's key and certificate (PEM), through an invitation and an approval."""
    authority = Authority(home, store, home.settings())
    key = key or new_key()
    request = certificate_request(key, name=party)
    message = Enrol(party, authority.invite(party), to_pem(request))
    assert authority.enrol(message).code == "pending"
    authority.approve(party, key_fingerprint=request_fingerprint(request))
    return key, authority.enrol(message).certificate


class FakeHub:
    """Parties of one process. present: who is connected; silent: who says nothing; refusing: seat to code."""

    def __init__(self, study, *, present=None) -> None:
        self.study = study
        self.ledgers = {seat.party: Ledger(":memory:") for seat in study.roster}
        self.parties = {
            name: Party(name, study=study, ledger=ledger, voter=voter(name, study.votes.voters), coins_from=None)
            for name, ledger in self.ledgers.items()
        }
        self.present = {party_of(name) for name in self.ledgers} if present is None else set(present)
        self.refusing: dict[str, str] = {}
        self.asked: list[tuple[int, bytes]] = []
        self.hold: threading.Event | None = None
        self.in_round = threading.Event()
        self.events: list[str] = []

    def __call__(self, **callbacks):
        """In place of the class Hub."""
        self.callbacks = callbacks
        return self

    def start(self, *, listen, enrol_listen):
        self.events.append("start")
        return 1, 2

    def stop(self):
        self.events.append("stop")

    def connected(self):
        now = time.time()
        return {
            name: Connected(now, now, "ipv4:127.0.0.1:1", "conclave 0", 1, frozenset(
                (self.study.digest, seat) for seat in self.ledgers if party_of(seat) == name))
            for name in sorted(self.present)
        }  # fmt: skip

    def silent(self):
        return {}

    def go_on_without(self, study, seats):
        self.without = seats

    def open_study(self, study, ledger, *, outcome_for=None):
        self.outcome_for = outcome_for
        handlers = {name: party.handle for name, party in self.parties.items()}
        transport = InProcessTransport(
            handlers, absent=lambda requests: frozenset(s for s in requests if party_of(s) not in self.present)
        )

        def exchange(requests):
            first = next(iter(requests.values()))
            if isinstance(first, VoteRequest):
                self.asked.append((first.batch.number, first.digest))
                if self.hold is not None:
                    self.in_round.set()
                    self.hold.wait(300)
            refusing = self.refusing  # a test may put another in its place meanwhile
            replies = transport({s: r for s, r in requests.items() if s not in refusing})
            return {s: Refusal(refusing[s], "no") if s in refusing else replies[s] for s in requests}

        return exchange


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays have equal values."""
    return a.shape == b.shape and bool((a == b).all())
