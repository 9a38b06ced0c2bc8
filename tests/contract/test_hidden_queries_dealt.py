"""What the guardian deals for a computation serves that computation alone."""

import numpy as np
import pytest

from protocols.ledger.ledger import Ledger
from protocols.levels.hidden_queries import querier as private_queries
from tests.contract.test_hidden_queries import computing, session, vote_request
from tests.harness.levels import GuardianHere
from tests.harness.private_models import PrivateParties, hidden_study
from tests.harness.seeded import seeded_source

STUDY = hidden_study()


@pytest.mark.parametrize(
    "changed",
    [
        lambda dealt, other: other,  # dealt for a key that is gone
        lambda dealt, other: (dealt[0] ^ (np.arange(dealt[0].size) == 40), dealt[1]),
        lambda dealt, other: dealt[:1],
        lambda dealt, other: (dealt[0], dealt[1][:-1]),
    ],
    ids=["another key", "flipped", "unsigned", "short"],
)
def test_a_dealt_part_is_of_the_guardian_for_this_key_or_it_is_refused(changed, monkeypatch):
    parties, request, seen = PrivateParties(STUDY), vote_request(STUDY), []
    first = private_queries._first

    with Ledger(":memory:") as guardians:
        here = GuardianHere(STUDY, guardians, seeded_source(5))
        monkeypatch.setattr(private_queries, "_first", lambda part: seen.append(first(part)) or seen[-1])
        session(STUDY, parties, "p0", here, request)
        monkeypatch.setattr(
            private_queries,
            "_first",
            lambda part: tuple(each.astype(np.uint8) for each in changed(first(part), seen[0])),
        )
        noted, left_out = computing(STUDY, parties, "p0", here, request)
    assert noted is None
    assert left_out["p0"] in ("bad_signature", "malformed")
    assert parties.spent()[0] == 0
