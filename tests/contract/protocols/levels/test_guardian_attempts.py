"""A batch that is attempted again after a fault: nothing charged or released twice, noise never drawn again."""

import functools

import numpy as np
import pytest

from coordinator.in_process import InProcessTransport
from protocols.errors import Refused
from protocols.ledger.ledger import Ledger
from tests.harness.guardian_attempts import NAMES, World
from tests.harness.kept_messages import Breaking
from tests.harness.refusals import refused_for

# Enough to see labels change.
FEW = 6


# That a guardian sends and receives in a batch.
MESSAGES = 51


@functools.cache
def messages_of_a_batch():
    """(how many messages there are, the labels of a run in which nothing breaks)."""
    made = World()
    counted = []

    def count(channel):
        breaking = Breaking(channel, 10**9)
        counted.append(breaking)
        return breaking

    made.wrap = count
    result = made.label(queries=FEW)
    made.close()
    return 10**9 - counted[0].left, result


def test_every_message_of_a_batch_is_tried():
    assert messages_of_a_batch()[0] == MESSAGES


@pytest.mark.parametrize("cut", range(MESSAGES))
def test_a_guardian_that_stops_at_any_message_and_starts_again_gives_the_labels_that_were_under_way(cut):
    made = World()
    made.wrap = lambda channel: Breaking(channel, cut)
    first = made.label(queries=FEW)
    made.wrap = lambda channel: channel
    # Another source: what decides labels was drawn, and kept, before the stop, or was not drawn yet.
    again = made.label(source=7 if cut == 0 else 8, queries=FEW)
    assert first.stop.reason == "guardian_lost"
    unbroken = messages_of_a_batch()[1]
    size = unbroken.batches[0][0]
    if cut > 0:
        np.testing.assert_array_equal(again.labels[:size], unbroken.labels[:size])
    own, guardians, parties = made.spent()
    assert own == guardians == parties == again.spent.tolist()
    made.close()


def test_a_guardian_without_its_ledger_is_not_believed(world):
    world.wrap = lambda channel: Breaking(channel, 6)
    assert world.label().stop.reason == "guardian_lost"
    world.guardians.close()
    world.guardians = Ledger(":memory:")
    world.wrap = lambda channel: channel
    with refused_for("guardian_refuses", "ledger_rolled_back"):
        world.label()
    assert isinstance(world.here.faults[0], Refused)


def test_the_same_batch_with_other_shares_is_refused_by_the_guardian(world):
    world.wrap = lambda channel: Breaking(channel, 15)
    world.label()
    digest = world.own.stored(0).digest
    world.own.forget(digest, "submitted")
    world.exchange = InProcessTransport(
        {name: world.parties[name].handle for name in NAMES}, absent=lambda _: frozenset({"p5"})
    )
    world.wrap = lambda channel: channel
    with refused_for("guardian_refuses", "other_submission"):
        world.label()


class Recorded:
    """A guardian's end that keeps what arrives."""

    def __init__(self, channel, kept):
        self.channel, self.kept = channel, kept

    def send(self, data):
        self.channel.send(data)

    def recv(self, limit):
        self.kept.append(self.channel.recv(limit))
        return self.kept[-1]


def test_what_the_guardian_sees_of_the_votes_is_the_same_in_every_attempt(world):
    attempts = []
    for cut in (6, 8, 10, 13, 17, 25, 33, None):
        kept = []
        attempts.append(kept)
        world.wrap = lambda channel, cut=cut, kept=kept: Recorded(
            channel if cut is None else Breaking(channel, cut), kept
        )
        world.label(source=10 + len(attempts), queries=FEW)
    # Submission; a commitment and four openings of the check of votes; four messages of masks; seven of inputs. Heads
    # in the first differ, the rest is that of the first attempt.
    whole = attempts[-1]
    for kept in attempts[:-1]:
        assert len(kept) >= 3
        assert kept[1:17] == whole[1 : len(kept[1:17]) + 1]


@pytest.mark.parametrize("forgetful", ["coordinator", "guardian"])
def test_a_server_that_comes_with_another_number_is_refused_by_the_other(world, forgetful):
    world.wrap = lambda channel: Breaking(channel, 15)
    assert world.label().stop.reason == "guardian_lost"
    digest = world.own.stored(0).digest
    assert world.guardians.noted(digest, "check coin") is not None
    world.wrap = lambda channel: channel
    if forgetful == "coordinator":
        for kind in ("check secret", "check coin"):
            world.own.forget(digest, kind)
        assert world.label(source=9).stop.reason == "guardian_lost"
        assert "other_check" in str(world.here.faults[0])
    else:
        for kind in ("check secret", "check coin"):
            world.guardians.forget(digest, kind)
        with refused_for("other_coin"):
            world.label(source=9)


def test_before_votes_are_checked_other_shares_may_take_the_place_of_the_first(world):
    world.exchange = InProcessTransport(
        {name: world.parties[name].handle for name in NAMES}, absent=lambda _: frozenset({"p5"})
    )
    world.wrap = lambda channel: Breaking(channel, 1)
    assert world.label().stop.reason == "guardian_lost"
    world.own.forget(world.own.stored(0).digest, "submitted")
    world.exchange = InProcessTransport({name: world.parties[name].handle for name in NAMES})
    world.wrap = lambda channel: channel
    got = world.label()
    assert (got.labels >= 0).any()
    own, guardians, parties = world.spent()
    assert own == guardians == parties


def test_labels_of_one_batch_are_computed_so_often_and_no_more(world, monkeypatch):
    monkeypatch.setattr("protocols.labelling.guardian.MOST_ATTEMPTS", 3)
    world.wrap = lambda channel: Breaking(channel, 22)
    for _ in range(3):
        assert world.label().stop.reason == "guardian_lost"
    world.wrap = lambda channel: channel
    with refused_for("guardian_refuses", "too_many_attempts"):
        world.label()
