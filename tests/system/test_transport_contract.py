"""One suite for every transport: the same Party and Coordinator, the same labels and ledgers, whatever carries them."""

from contextlib import ExitStack

import numpy as np

from coordinator.in_process import InProcessTransport
from party.party import Party
from protocols.labelling.replay import replay
from protocols.labelling.stored_votes import CastVotes
from protocols.ledger.ledger import Ledger
from protocols.noise import simulated
from protocols.wire.messages import Refusal, VoteReply
from tests.harness.studies import one_stream
from tests.harness.transport_contract import NAMES, STUDY, VOTES, exercise


def test_the_transport_of_one_process_gives_the_labels_and_ledgers_of_the_replay(tmp_path):
    with ExitStack() as open_ledgers:
        handlers = {
            party: Party(
                party,
                study=STUDY,
                ledger=open_ledgers.enter_context(Ledger(tmp_path / f"{party}.sqlite")),
                voter=lambda b, i=i: VOTES[i][:, b.ids].astype(np.int64),
                coins_from=None,
            ).handle
            for i, party in enumerate(NAMES)
        }
        check(exercise(InProcessTransport(handlers)))


def test_every_engine_gives_the_labels_and_ledgers_of_the_replay(carried):
    check(carried["contract"])


def check(got):
    labelling = got["labelling"]
    expected = replay(
        STUDY, CastVotes(10, VOTES), noise=one_stream(simulated(np.random.default_rng(3))), presence=None
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
