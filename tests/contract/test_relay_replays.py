"""A relay that answers with a refusal, signed by the hospital itself at another moment, in place of its votes."""

import numpy as np
import pytest

from protocols.ledger.ledger import Ledger
from protocols.wire.messages import ConcealedVotes, Refusal, VoteRequest
from tests.contract.test_hidden_queries import vote_request
from tests.harness.levels import GuardianHere
from tests.harness.private_models import PrivateParties, asking, hidden_queries, hidden_study, linear_models
from tests.harness.seeded import seeded_source

STUDY = hidden_study()
VICTIM = "p0"


@pytest.mark.parametrize("signed", [True, False])
def test_a_refusal_of_another_moment_is_not_believed_and_names_nobody(signed):
    parties, withheld = PrivateParties(STUDY, linear_models(STUDY)), []
    honest = parties.exchange()
    (earlier,) = honest({VICTIM: vote_request(STUDY)}).values()
    assert isinstance(earlier, Refusal)
    assert earlier.code == "no_inference"
    assert earlier.signature
    replayed = earlier if signed else Refusal("no_inference", earlier.reason)

    def relay(requests):
        replies = honest(requests)
        if isinstance(requests.get(VICTIM), VoteRequest) and not withheld:
            assert isinstance(replies[VICTIM], ConcealedVotes)
            withheld.append(replies[VICTIM])
            replies[VICTIM] = replayed
        return replies

    with Ledger(":memory:") as own, Ledger(":memory:") as guardians:
        here = GuardianHere(STUDY, guardians, seeded_source(5))
        coordinator, positions = asking(STUDY, here, own, relay, hidden_queries(8))
        got = coordinator.label(positions)
        assert not [entry for entry in guardians.log.entries() if entry.event == "votes_refused"]
    # With a signature of another moment the hospital is asked again, and gives the reply that it stored.
    assert got.refusals == ({} if signed else {VICTIM: "absent"})
    assert (got.labels >= 0).any()
    assert 0 < parties.spent()[0] <= int(STUDY.budgets.amount(8, 8)[0])
    assert parties.admitted.count((VICTIM, 0)) == 1
    assert np.count_nonzero(parties.spent()) == len(STUDY.roster)
