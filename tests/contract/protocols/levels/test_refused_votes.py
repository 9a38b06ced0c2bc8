"""A guardian takes no more votes of a seat after it refused three batches of them, whoever spoilt them."""

from dataclasses import replace

from protocols.ledger.ledger import Ledger
from protocols.levels.two_server.refused_votes import MOST_REFUSED, RefusedVotes
from protocols.wire.messages import HiddenVotes
from tests.harness.guardian_attempts import STUDY, World

# Five batches of two: whatever the noise, the budgets last for ten answers.
SMALL = replace(STUDY, query_limit=10, batch_limit=2)


def spoilt(times):
    """A world in which p2's votes of so many batches are no vote; the later ones are."""
    seen = []

    def tamper(name, reply):
        if name != "p2" or not isinstance(reply, HiddenVotes):
            return reply
        if reply.batch_digest not in seen:
            seen.append(reply.batch_digest)
        if seen.index(reply.batch_digest) >= times:
            return reply
        shares = reply.arrays[1].copy()
        shares[0, 0, 1] = (shares[0, 0, 1] + 1) % (2**31 - 1)
        return HiddenVotes(reply.batch_digest, (reply.arrays[0], shares, *reply.arrays[2:]))

    return World(study=SMALL, tamper=tamper), seen


def events(world, name):
    return [entry for entry in world.guardians.log.entries() if entry.event == name]


def test_after_three_refused_batches_no_vote_of_the_seat_is_taken_and_the_study_goes_on():
    world, seen = spoilt(MOST_REFUSED)
    got = world.label()
    assert len(seen) == 5
    assert len(events(world, "votes_refused")) == MOST_REFUSED
    assert [entry.fields["seat"] for entry in events(world, "votes_barred")] == ["p2", "p2"]
    assert set(got.refusals) == {"p2"}
    assert (got.labels >= 0).any()
    own, guardians, _ = world.spent()
    assert own == guardians
    assert own[2] == 0
    world.close()


def test_two_refused_batches_bar_nobody():
    world, _ = spoilt(MOST_REFUSED - 1)
    world.label()
    assert events(world, "votes_barred") == []
    assert len(events(world, "votes_refused")) == MOST_REFUSED - 1
    assert world.spent()[0][2] > 0
    world.close()


def test_a_batch_that_is_repeated_counts_once_and_is_answered_as_it_was():
    with Ledger(":memory:") as ledger:
        refusals = RefusedVotes(ledger, b"s" * 32)
        for request in (b"1", b"2", b"2", b"1", b"3", b"3", b"4"):
            refusals.count(["p2"], request * 32)
        assert [refusals.bars("p2", each * 32) for each in (b"1", b"2", b"3", b"4", b"5")] == [False] * 3 + [True] * 2
        assert not refusals.bars("p1", b"5" * 32)
