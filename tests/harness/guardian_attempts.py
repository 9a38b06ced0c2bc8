"""Six parties, a coordinator and a guardian in one process, whose conversations can be cut at any message."""

import numpy as np

from coordinator.in_process import InProcessTransport
from protocols.labelling.coordinator import Coordinator
from protocols.ledger.ledger import Ledger
from protocols.levels.two_server.aggregation import SharedAggregation
from protocols.levels.two_server.ballot import SharedBallot
from protocols.wire.messages import ConcealedVotes
from tests.harness.levels import SEAT_KEYS, GuardianHere, lattice_study, rng_votes, seated, two_server
from tests.harness.seeded import seeded_source
from tests.harness.signed import signed_again

STUDY = lattice_study(two_server(), batch_limit=40, classes=3)
NAMES = [seat.party for seat in STUDY.roster]
VOTES = rng_votes(6, 1, 40, 3, 3)
POOL = np.zeros((40, 2), np.float32)


class World:
    """Six parties, a coordinator and a guardian in one process; seeds say what noise there is."""

    def __init__(self, study=STUDY, tamper=lambda name, reply: reply, *, vote=None):
        """vote(position, batch): what a seat's teachers, or its records, say; None: VOTES."""
        self.study = study
        self.names = [seat.party for seat in study.roster]
        vote = vote or (lambda position, batch: VOTES[position][:, batch.ids])
        self.ledgers = {name: Ledger(":memory:") for name in self.names}
        self.own, self.guardians = Ledger(":memory:"), Ledger(":memory:")
        self.parties = seated(
            study,
            self.ledgers,
            ballot=lambda i, name: SharedBallot(study, name, key=SEAT_KEYS[i], source=seeded_source(i)),
            vote=vote,
        )
        self.exchange = InProcessTransport(
            {name: lambda request, name=name: self._answered(name, request, tamper) for name in self.names}
        )
        self.wrap = lambda channel: channel

    def _answered(self, name, request, tamper):
        """A party's reply, changed before it is signed."""
        reply = self.parties[name].handle(request)
        if not isinstance(reply, ConcealedVotes):
            return tamper(name, reply)
        changed = tamper(name, ConcealedVotes(reply.batch_digest, reply.arrays[:-1]))
        if not isinstance(changed, ConcealedVotes) or not changed.arrays:
            return changed
        key = SEAT_KEYS[self.study.seats[name]]
        return signed_again(self.study, name, changed, key=key, queries=request.batch.ids.tolist())

    def close(self):
        for ledger in (*self.ledgers.values(), self.own, self.guardians):
            ledger.close()

    @property
    def pool(self):
        return np.zeros((self.study.query_limit, 2), np.float32)

    def coordinator(self, *, source=7):
        """A fresh coordinator and a fresh guardian on the same ledgers."""
        self.here = GuardianHere(self.study, self.guardians, seeded_source(source, 1), wrap=lambda c: self.wrap(c))
        return Coordinator(
            self.study,
            ledger=self.own,
            aggregation=SharedAggregation(self.here.dial, source=seeded_source(source)),
            exchange=self.exchange,
            run=b"run",
        )

    def label(self, *, source=7, queries=None):
        """One run of them, over so many queries; None: all."""
        return self.coordinator(source=source).label(self.pool[:queries])

    def spent(self):
        """Of everybody, by whoever keeps it."""
        return [[ledger.balance(name).spent for name in self.names] for ledger in (self.own, self.guardians)] + [
            [self.ledgers[name].balance(name).spent for name in self.names]
        ]
