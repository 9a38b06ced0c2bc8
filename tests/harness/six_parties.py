"""Six parties that vote under cover, a coordinator that begins anew at each label, and at two_server a guardian."""

import os
from contextlib import contextmanager

import numpy as np

from coordinator.in_process import InProcessTransport
from protocols.errors import ChannelClosed
from protocols.labelling.coordinator import Coordinator
from protocols.ledger.ledger import Ledger
from protocols.levels.secure_sum.aggregation import SummedAggregation
from protocols.levels.secure_sum.ballot import SummedBallot
from protocols.levels.two_server.aggregation import SharedAggregation
from protocols.levels.two_server.ballot import SharedBallot
from protocols.wire.messages import ConcealedVotes
from tests.harness.levels import SEAT_KEYS, GuardianHere, lattice_study, rng_votes, seated, secure_sum, two_server
from tests.harness.seeded import seeded_source

SIZE, POOL = 10, np.zeros((40, 2), np.float32)
SUMMED = lattice_study(secure_sum(colluders=1), batch_limit=SIZE, sigma=10.0)
SHARED = lattice_study(two_server(), batch_limit=SIZE, quorum=4, sigma=6.0, sigma_threshold=6.0)
VOTES = rng_votes(6, 1, 40, 5, 3)
NAMES = [seat.party for seat in SUMMED.roster]


class World:
    """The parties of a study, SUMMED or SHARED. gone: whom a request does not reach."""

    def __init__(self, study, folder):
        self.study, self.folder = study, folder
        self.ledgers = {name: Ledger(":memory:") for name in NAMES}
        self.gone = lambda name, request: False
        self.requests, self.vectors = [], []
        source = os.urandom

        def ballot(i, name):
            if study is SUMMED:
                return SummedBallot(study, name, ledger=self.ledgers[name], key=SEAT_KEYS[i], source=source)
            return SharedBallot(study, name, key=SEAT_KEYS[i], source=source)

        self.parties = seated(study, self.ledgers, ballot=ballot, vote=lambda i, batch: VOTES[i][:, batch.ids])
        self.own = Ledger(folder / "coordinator.sqlite")
        self.guardians = Ledger(":memory:")
        self.guardian = GuardianHere(study, self.guardians, seeded_source(9)) if study is SHARED else None
        self.guardian_gone = False

    def exchange(self, requests):
        self.requests += requests.values()
        missing = frozenset(name for name, request in requests.items() if self.gone(name, request))
        replies = InProcessTransport({name: self.parties[name].handle for name in NAMES}, absent=lambda _: missing)(
            requests
        )
        self.vectors += [reply for reply in replies.values() if isinstance(reply, ConcealedVotes)]
        return replies

    @contextmanager
    def dial(self):
        if self.guardian_gone:
            raise ChannelClosed("gone")
        with self.guardian.dial() as channel:
            yield channel

    def coordinator(self):
        level = SummedAggregation() if self.study is SUMMED else SharedAggregation(self.dial, source=os.urandom)
        return Coordinator(self.study, ledger=self.own, aggregation=level, exchange=self.exchange, run=b"run")

    def label(self):
        return self.coordinator().label(POOL)

    def spends(self):
        return [self.ledgers[name].balance(name).spent for name in NAMES]

    def coordinators(self):
        return [self.own.balance(name).spent for name in NAMES]

    def notes(self, ledger):
        return {row[0] for row in ledger._rows("SELECT kind FROM note WHERE digest = ?", (self.digest,))}

    @property
    def digest(self):
        return self.own.stored(0).digest

    def close(self):
        for ledger in (*self.ledgers.values(), self.own, self.guardians):
            ledger.close()
