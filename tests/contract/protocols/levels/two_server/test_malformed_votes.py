"""Ten kinds of malformed votes, each in a whole batch: the party is named to both servers, and the rest goes on."""

import numpy as np
import pytest

from protocols.crypto.field import P, from_integers, plus, times
from protocols.levels.two_server.conversation import unseal
from protocols.levels.two_server.shares import CoordinatorShare, GuardianShare, vote_keys
from protocols.wire.messages import ConcealedVotes
from tests.harness import guardian_attempts
from tests.harness.guardian_attempts import VOTES, World
from tests.harness.levels import SEALING_KEY

STUDY = guardian_attempts.STUDY.voting(query_limit=10, batch_limit=10)
CHEAT, QUERY = 2, 3
VOTE = int(VOTES[CHEAT, 0, QUERY])
OTHER, THIRD = ((VOTE + step) % STUDY.classes for step in (1, 2))
HALF = (P + 1) // 2

# What is added to the cheat's vector in one query: class -> how much.
KINDS = {
    "two votes for one class": {VOTE: 1},
    "1,000 votes": {VOTE: 999},
    "two-hot": {OTHER: 1},
    "three-hot": {OTHER: 1, THIRD: 1},
    "all-hot": {each: 1 for each in range(STUDY.classes) if each != VOTE},
    "an abstention that is not allowed": {VOTE: -1},
    "a negative vote": {VOTE: -2},
    "a vote taken from another class": {VOTE: 1, OTHER: -1},
    "sum one, not one-hot": {OTHER: 1, THIRD: -1},
    "two half votes": {VOTE: HALF - 1, OTHER: HALF},
}


def cheating(reply, added):
    """p2's reply with the vector moved, and its products with the keys, as one who follows the format would."""
    arrays = [array.copy() for array in reply.arrays]
    about = {"study": STUDY.digest, "request": reply.batch_digest, "seat": "p2"}
    guardian = GuardianShare(*unseal(arrays[0].tobytes(), key=SEALING_KEY, **about))
    share = CoordinatorShare(*arrays[1:])
    queries = share.votes.shape[1]
    keys = vote_keys(share, guardian, queries=queries, context=reply.batch_digest)[0, :, QUERY]
    vector = from_integers(np.array([added.get(each, 0) for each in range(STUDY.classes)]))
    share.votes[0, QUERY] = plus(share.votes[0, QUERY], vector)
    share.keyed[0, :, QUERY] = plus(share.keyed[0, :, QUERY], times(keys[:, None], vector[None]))
    return ConcealedVotes(reply.batch_digest, tuple(arrays))


@pytest.mark.parametrize("kind", KINDS)
def test_a_malformed_vote_is_refused_and_its_party_named_in_both_logs(kind) -> None:
    cheated = []

    def tamper(name, reply):
        if name != "p2" or cheated or not isinstance(reply, ConcealedVotes):
            return reply
        cheated.append(cheating(reply, KINDS[kind]))
        return cheated[0]

    made = World(study=STUDY, tamper=tamper)
    got = made.label()
    assert got.refusals == {"p2": "bad_votes"}
    assert (got.labels >= 0).any()
    for ledger in (made.own, made.guardians):
        named = [entry.fields for entry in ledger.log.entries() if entry.event == "votes_refused"]
        assert named == [{"batch": 0, "parties": "p2"}]
    made.close()
