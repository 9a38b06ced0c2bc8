"""A relay that answers with an earlier refusal, signed by the hospital itself, in place of its votes."""

from protocols.ledger.ledger import Ledger
from protocols.wire.messages import HiddenVotes, Refusal, VoteRequest
from tests.harness.levels import GuardianHere
from tests.harness.private_models import PrivateParties, asking, hidden_queries, hidden_study
from tests.harness.seeded import seeded_source

STUDY = hidden_study()
VICTIM = "p0"


def test_a_replayed_refusal_gets_a_hospital_named_and_charges_it_once_and_the_others_votes_count():
    """What remains while querier and hospitals do not seal to each other: the querying hospital computes again, and
    joins the stored reply of the first computation to the second."""
    parties, withheld = PrivateParties(STUDY), []
    honest = parties.exchange()

    def relay(requests):
        replies = honest(requests)
        if isinstance(requests.get(VICTIM), VoteRequest) and not withheld:
            assert isinstance(replies[VICTIM], HiddenVotes)
            withheld.append(replies[VICTIM])
            replies[VICTIM] = Refusal("no_inference", "no_inference: nothing was computed for this batch")
        return replies

    with Ledger(":memory:") as own, Ledger(":memory:") as guardians:
        here = GuardianHere(STUDY, guardians, seeded_source(5))
        coordinator, positions = asking(STUDY, here, own, relay, hidden_queries(8))
        got = coordinator.label(positions)
        named = [entry for entry in guardians.log.entries() if entry.event == "votes_refused"]
        assert [entry.fields["parties"] for entry in named] == [VICTIM]
    assert got.refusals == {VICTIM: "bad_votes"}
    assert (got.labels >= 0).any()
    charged = parties.spent()
    assert 0 < charged[0] <= int(STUDY.budgets.amount(8, 8)[0])
    assert len([number for name, number in parties.admitted if name == VICTIM]) == 1
