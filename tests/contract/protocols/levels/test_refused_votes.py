"""Where queries are hidden, a guardian takes no more votes of a seat after it refused three batches of them."""

from dataclasses import replace

import pytest

from protocols.errors import ChannelClosed
from protocols.ledger.ledger import Ledger
from protocols.levels.hidden_queries import querier as private_queries
from protocols.levels.two_server.batch_notes import MOST_REFUSED, RefusedVotes
from protocols.levels.two_server.statement import Fate, Statement
from protocols.wire.messages import ConcealedVotes
from tests.harness.guardian_attempts import STUDY, World
from tests.harness.levels import GuardianHere
from tests.harness.private_models import PrivateParties, asking, hidden_queries, hidden_study, linear_models
from tests.harness.seeded import seeded_source

HIDDEN = hidden_study(seats=3, batch_limit=2, threshold=2.0)
BATCHES, VICTIM = 5, 2


class Spoiling:
    """A querying party that makes the votes of p2 malformed in the first batches."""

    def __init__(self, monkeypatch, times=MOST_REFUSED):
        self.parties = PrivateParties(HIDDEN, linear_models(HIDDEN))
        self.own, self.guardians = Ledger(":memory:"), Ledger(":memory:")
        self.here = GuardianHere(HIDDEN, self.guardians, seeded_source(5))
        finish, self.finished = private_queries.finish, 0

        def spoilt(unfinished, last):
            share = finish(unfinished, last)
            batch, seat = divmod(self.finished, len(HIDDEN.roster))
            self.finished += 1
            if seat != VICTIM or batch >= times:
                return share
            votes = share.votes.copy()
            votes[0, 0, 1] = (votes[0, 0, 1] + 1) % (2**31 - 1)
            return replace(share, votes=votes)

        monkeypatch.setattr(private_queries, "finish", spoilt)

    def label(self):
        coordinator, positions = asking(
            HIDDEN, self.here, self.own, self.parties.exchange(), hidden_queries(2 * BATCHES)
        )
        return coordinator.label(positions)

    def events(self, name):
        return [entry for entry in self.guardians.log.entries() if entry.event == name]

    def fate(self, number):
        """What the guardian's statement of a batch says of p2."""
        digest = self.own.stored(number).digest
        statement = Statement.read(self.own.noted(digest, "guardian"), seats=len(HIDDEN.roster))
        return Fate(int(statement.fates[VICTIM]))


def test_after_three_refused_batches_no_vote_of_the_seat_is_taken_and_the_study_goes_on(monkeypatch):
    world = Spoiling(monkeypatch)
    got = world.label()
    assert len(got.batches) == BATCHES
    assert len(world.events("votes_refused")) == MOST_REFUSED
    assert [entry.fields["seat"] for entry in world.events("votes_barred")] == ["p2", "p2"]
    # One reason for it, at the asker, in the guardian's statement, and at the hospital.
    assert got.refusals == {"p2": "votes_barred"}
    assert [world.fate(number) for number in range(BATCHES)] == [Fate.BAD_VOTES] * 3 + [Fate.VOTES_BARRED] * 2
    assert (got.labels >= 0).any()
    assert world.guardians.balance("p2").spent == 0


def test_two_refused_batches_bar_nobody(monkeypatch):
    world = Spoiling(monkeypatch, MOST_REFUSED - 1)
    assert world.label().refusals == {"p2": "bad_votes"}
    assert world.events("votes_barred") == []
    assert world.fate(BATCHES - 1) is Fate.COUNTED


def test_a_batch_that_was_fixed_before_its_seat_was_barred_ends_with_that_seat(monkeypatch):
    """The line breaks when the labels of the first batch are computed, and the seat is barred before it is repeated."""
    world = Spoiling(monkeypatch, 0)
    real = private_queries.PrivateQueries._converse

    def cut(self, channel, *given):
        class Cut:
            def __init__(self):
                self.left = 6

            def send(self, data):
                channel.send(data)

            def recv(self, limit):
                self.left -= 1
                if self.left == 0:
                    raise ChannelClosed("cut")
                return channel.recv(limit)

        return real(self, Cut(), *given)

    monkeypatch.setattr(private_queries.PrivateQueries, "_converse", cut)
    assert world.label().stop.reason == "guardian_lost"
    refusals = RefusedVotes(world.guardians, HIDDEN.digest, hidden=True)
    for request in (b"1", b"2", b"3"):
        refusals.count(["p2"], request * 32)
    monkeypatch.setattr(private_queries.PrivateQueries, "_converse", real)
    got = world.label()
    assert [world.fate(number) for number in (0, 1)] == [Fate.COUNTED, Fate.VOTES_BARRED]
    assert got.refusals == {"p2": "votes_barred"}
    assert len(got.batches) == BATCHES


@pytest.mark.parametrize("hidden", [True, False])
def test_a_batch_that_is_repeated_counts_once(hidden):
    with Ledger(":memory:") as ledger:
        refusals = RefusedVotes(ledger, b"s" * 32, hidden=hidden)
        barred = []
        for request in (b"1", b"2", b"2", b"1", b"3", b"3"):
            refusals.count(["p2"], request * 32)
            barred.append(refusals.barred(["p1", "p2"]).tolist())
        assert barred == [[False, False]] * 4 + [[False, hidden]] * 2


def test_at_two_server_a_server_shuts_no_hospital_out_by_refusing_its_votes():
    seen = []

    def tamper(name, reply):
        if name != "p2" or not isinstance(reply, ConcealedVotes):
            return reply
        if reply.batch_digest not in seen:
            seen.append(reply.batch_digest)
        if seen.index(reply.batch_digest) >= MOST_REFUSED:
            return reply
        shares = reply.arrays[1].copy()
        shares[0, 0, 1] = (shares[0, 0, 1] + 1) % (2**31 - 1)
        return ConcealedVotes(reply.batch_digest, (reply.arrays[0], shares, *reply.arrays[2:]))

    world = World(study=STUDY.voting(query_limit=10, batch_limit=2), tamper=tamper)
    got = world.label()
    assert len(seen) == 5
    assert "votes_barred" not in {entry.event for entry in world.guardians.log.entries()}
    assert (got.labels >= 0).any()
    # The votes of the last two batches count.
    own, guardians, _ = world.spent()
    assert own == guardians
    assert own[2] > 0
    assert got.refusals == {"p2": "bad_votes"}
    world.close()
