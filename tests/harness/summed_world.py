"""Six hospitals and a coordinator that add up votes under masks, in one process; anything may stand between them."""

import numpy as np

from coordinator.in_process import InProcessTransport
from protocols.labelling.coordinator import Coordinator
from protocols.ledger.ledger import Ledger
from protocols.levels.secure_sum.aggregation import SummedAggregation
from protocols.levels.secure_sum.ballot import SummedBallot
from protocols.wire.messages import StepRequest, VoteRequest
from tests.harness.levels import SEAT_KEYS, lattice_study, rng_votes, seated, secure_sum
from tests.harness.seeded import seeded_source

STUDY = lattice_study(secure_sum(colluders=1), batch_limit=40)
NAMES = [seat.party for seat in STUDY.roster]
VOTES = rng_votes(6, 1, 40, 5, 3)
POOL = np.zeros((40, 2), np.float32)
STEPS = ["sum_keys", "sum_shares", "sum_check", "vote", "sum_agree", "sum_open"]


def kind(request):
    return request.step if isinstance(request, StepRequest) else "vote" if isinstance(request, VoteRequest) else "told"


class World:
    """Six parties and a coordinator; `tamper(name, request, reply)` stands between them."""

    def __init__(self, tamper=lambda name, request, reply: reply):
        self.ledgers = {name: Ledger(":memory:") for name in NAMES}
        self.own, self.tamper = Ledger(":memory:"), tamper
        self.parties = seated(
            STUDY,
            self.ledgers,
            ballot=lambda i, name: SummedBallot(
                STUDY, name, ledger=self.ledgers[name], key=SEAT_KEYS[i], source=seeded_source(i)
            ),
            vote=lambda i, batch: VOTES[i][:, batch.ids],
        )

    def exchange(self, requests):
        handlers = {
            name: lambda request, name=name: self.tamper(name, request, self.parties[name].handle(request))
            for name in NAMES
        }
        return InProcessTransport(handlers)(requests)

    def label(self, without=()):
        return Coordinator(
            STUDY, ledger=self.own, aggregation=SummedAggregation(), exchange=self.exchange, run=b"run"
        ).label(POOL, without=lambda: without)

    def close(self):
        for ledger in (*self.ledgers.values(), self.own):
            ledger.close()
