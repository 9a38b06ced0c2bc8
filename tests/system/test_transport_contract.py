"""One suite for every transport: the same Party and Coordinator, the same labels and ledgers, whatever carries them."""

import numpy as np
import pytest

from coordinator.in_process import InProcessTransport
from party.party import Party
from protocols.labelling.coordinator import Coordinator
from protocols.ledger.ledger import Ledger
from protocols.levels.clear import ClearAggregation
from protocols.noise import simulated
from protocols.study.queries import QueryBatch
from protocols.wire.messages import Outcome, Refusal, VoteReply, VoteRequest
from simulations.engines import ENGINES, open_engine
from simulations.setup.levels import one_stream
from simulations.stages.replay import replay
from simulations.stages.stored_votes import TeacherVotes
from tests.harness.party_host import EngineTransport, party_host
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


def with_transport(name, folder, body):
    """body(transport) over the transport of that name."""
    if name in ENGINES:
        spec = party_host(folder, STUDY, VOTES)
        return open_engine(name, workers=2).run(spec, NAMES, lambda exchange: body(EngineTransport(exchange)))
    ledgers = {party: Ledger(folder / f"{party}.sqlite") for party in NAMES}
    handlers = {
        party: Party(
            party,
            study=STUDY,
            ledger=ledgers[party],
            voter=lambda b, i=i: VOTES[i][:, b.ids].astype(np.int64),
            coins_from=None,
        ).handle
        for i, party in enumerate(NAMES)
    }
    try:
        return body(InProcessTransport(handlers))
    finally:
        for ledger in ledgers.values():
            ledger.close()


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


@pytest.mark.parametrize("name", ["coordinator.in_process", *ENGINES])
def test_every_transport_gives_the_labels_and_ledgers_of_the_replay(name, tmp_path):
    got = with_transport(name, tmp_path, exercise)
    labelling = got["labelling"]
    expected = replay(
        STUDY, TeacherVotes(10, VOTES), noise=one_stream(simulated(np.random.default_rng(3))), presence=None
    ).labelling
    assert labelling.ledger_differences == {}
    assert labelling.refusals == {}
    np.testing.assert_array_equal(labelling.labels, expected.labels)
    np.testing.assert_array_equal(labelling.spent, expected.spent)
    assert (labelling.labels >= 0).any()
    # A repeated request gets the stored reply; another under the same number is refused; every party answers.
    size = labelling.batches[0][0]
    for position, party in enumerate(NAMES):
        reply = got["repeated"][party]
        assert isinstance(reply, VoteReply)
        np.testing.assert_array_equal(reply.votes, VOTES[position][:, :size])
    assert isinstance(got["reused"]["p1"], Refusal)
    assert got["reused"]["p1"].code == "batch_reused"
    assert {party: reply.code for party, reply in got["mixed"].items()} == {"p0": "other_study", "p5": "unknown_batch"}
