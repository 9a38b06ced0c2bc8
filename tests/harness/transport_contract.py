"""What the contract of transports asks of each: one study, and a run of it with repeated, reused and mixed requests."""

import numpy as np

from protocols.labelling.coordinator import Coordinator
from protocols.ledger.ledger import Ledger
from protocols.levels.clear import ClearAggregation
from protocols.noise import simulated
from protocols.study.queries import QueryBatch
from protocols.wire.messages import Outcome, VoteRequest
from tests.harness.studies import make_study, make_votes

VOTES, _ = make_votes(6, 40)
STUDY = make_study(
    [1.0, 1.0, 2.0, 2.0, 3.0, 3.0],
    rule="exhaustive",
    sigma=6.0,
    sigma_threshold=4.0,
    threshold=3.0,
    queries=40,
    batch_limit=6,
)
NAMES = [seat.party for seat in STUDY.roster]


def exercise(transport):
    """Everything that the contract asks, in one run, because starting an engine takes its time."""
    with Ledger(":memory:") as ledger:
        coordinator = Coordinator(
            STUDY,
            ledger=ledger,
            aggregation=ClearAggregation(simulated(np.random.default_rng(3))),
            exchange=transport,
            run=b"contract",
        )
        labelling = coordinator.label(np.zeros((40, 2), np.float32))
    again = QueryBatch(0, np.arange(labelling.batches[0][0]), np.zeros((labelling.batches[0][0], 2), np.float32))
    other = QueryBatch(0, again.ids, again.inputs + 1)
    return {
        "labelling": labelling,
        "repeated": transport(dict.fromkeys(NAMES, VoteRequest(STUDY.digest, coordinator.run, again))),
        "reused": transport({"p1": VoteRequest(STUDY.digest, coordinator.run, other)}),
        "mixed": transport(
            {
                "p0": VoteRequest(bytes(32), coordinator.run, other),
                "p5": Outcome(STUDY.digest, bytes(32), np.ones(3, bool)),
            }
        ),
    }
