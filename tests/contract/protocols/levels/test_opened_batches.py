"""A server opens no new batch of a study after three that were opened and never settled: each may have shown a bit."""

from contextlib import suppress

from protocols.crypto.edwards import POINT_BYTES
from protocols.crypto.oblivious_transfer import TRANSFER_TAG_BYTES
from protocols.errors import ChannelClosed, Refused
from protocols.ledger.ledger import Ledger
from protocols.levels.two_server.batch_notes import MOST_OPENED, OpenedBatches
from tests.harness.amounts import nano
from tests.harness.guardian_attempts import STUDY, World
from tests.harness.kept_messages import Breaking
from tests.harness.refusals import refused_for

SMALL = STUDY.voting(batch_limit=1)
STUDY_DIGEST, REQUESTS = b"s" * 32, [bytes([at]) * 32 for at in range(5)]


class LeavingAtTheTag:
    """The guardian's end of a coordinator that hangs up where it would send its tag: by then it has its bit."""

    def __init__(self, channel):
        self.channel, self.evaluated = channel, False
        self.send = channel.send

    def recv(self, limit):
        if self.evaluated and limit == TRANSFER_TAG_BYTES:
            raise ChannelClosed("the coordinator left")
        data = self.channel.recv(limit)
        self.evaluated = self.evaluated or data == b"evaluated"
        return data


class FalseTag:
    """The guardian's end that sends a wrong tag, as if its circuit had told it a bit that is zero."""

    def __init__(self, channel):
        self.channel, self.evaluated = channel, False

    def recv(self, limit):
        data = self.channel.recv(limit)
        self.evaluated = self.evaluated or data == b"evaluated"
        return data

    def send(self, data):
        wrong = len(data) == POINT_BYTES + TRANSFER_TAG_BYTES and self.evaluated
        self.channel.send(bytes(data[:-1]) + bytes([data[-1] ^ 1]) if wrong else data)


def labelled(world, batches):
    """A run over a pool of so many batches, of one query each."""
    return world.coordinator().label(world.pool[:batches])


def left_open(world, batches):
    """So many batches, opened, never settled, and given up."""
    for number in range(batches):
        with suppress(Refused):
            assert labelled(world, MOST_OPENED).stop.reason == "guardian_lost"
        world.coordinator().give_up(number, world.pool)


def amnesiac(world):
    """A coordinator that deviates: it does not count what it opened."""
    world.own.forget(SMALL.digest, "opened 0")


def test_a_guardian_takes_no_new_batch_after_three_whose_coordinator_left_with_the_guardians_tag():
    world = World(study=SMALL)
    world.wrap = LeavingAtTheTag
    left_open(world, MOST_OPENED)
    world.wrap = lambda channel: channel
    before = world.spent()[1]
    amnesiac(world)
    with refused_for("guardian_refuses", "too_many_opened"):
        labelled(world, MOST_OPENED + 1)
    assert isinstance(world.here.faults[0], Refused)
    assert world.spent()[1] == before
    assert world.guardians.stored(MOST_OPENED) is None
    world.close()


def test_two_batches_that_were_left_open_stop_nothing():
    world = World(study=SMALL)
    world.wrap = LeavingAtTheTag
    left_open(world, MOST_OPENED - 1)
    world.wrap = lambda channel: channel
    assert len(labelled(world, MOST_OPENED + 1).batches) == MOST_OPENED + 1
    assert [world.guardians.stored(number).settled for number in range(4)] == [False, False, True, True]
    world.close()


def test_a_coordinator_asks_no_new_batch_after_three_with_a_guardian_that_cheats_and_names_it():
    world = World(study=SMALL)
    world.wrap = FalseTag
    left_open(world, MOST_OPENED)
    world.wrap = lambda channel: channel
    before, at_the_guardian = world.spent()[0], world.guardians.stored(MOST_OPENED)
    with refused_for("too_many_opened", 3):
        labelled(world, MOST_OPENED + 1)
    assert world.own.stored(MOST_OPENED) is None
    assert at_the_guardian is None
    assert world.spent()[0] == before
    world.close()


def messages_of_a_batch():
    """How many messages the guardian's end passes."""
    counted = []

    def count(channel):
        counted.append(Breaking(channel, 10**9))
        return counted[-1]

    world = World(study=SMALL)
    world.wrap = count
    labelled(world, 1)
    world.close()
    return 10**9 - counted[0].left


# That both evaluated, masks, question, answer, tag, outcome.
OPENING = 6


def test_honest_servers_whose_line_breaks_at_every_message_of_an_opening_settle_all_batches():
    messages, world = messages_of_a_batch(), World(study=SMALL)
    for left in range(messages - OPENING, messages):
        world.wrap = lambda channel, left=left: Breaking(channel, left)
        assert labelled(world, OPENING + 1).stop.reason == "guardian_lost"
    world.wrap = lambda channel: channel
    assert len(labelled(world, OPENING + 1).batches) == OPENING + 1
    own, guardians, parties = world.spent()
    assert own == guardians == parties
    opened = [entry.fields["batch"] for entry in world.guardians.log.entries() if entry.event == "labels_broken_off"]
    assert len(set(opened)) > MOST_OPENED
    world.close()


def test_a_settled_batch_is_not_counted_and_an_open_one_may_always_be_repeated():
    with Ledger(":memory:") as ledger:
        ledger.open_accounts(nano({"p0": 100}))
        opened = OpenedBatches(ledger, STUDY_DIGEST, other="the other")
        for number, request in enumerate(REQUESTS):
            ledger.reserve(number, request, {"p0": 1}, b"", queries=[number], limit=9)
        for request in (REQUESTS[0], REQUESTS[0], REQUESTS[1], REQUESTS[2]):
            opened.count(request)
        for request in REQUESTS[:3]:
            opened.check(request)
        for request in (REQUESTS[3], None):
            with refused_for("too_many_opened"):
                opened.check(request)
        ledger.give_up(0, REQUESTS[0])
        with refused_for("too_many_opened"):
            opened.count(REQUESTS[3])
        ledger.settle(1, REQUESTS[1], {"p0": 1}, payload=b"")
        opened.count(REQUESTS[3])
        opened.check(REQUESTS[1])
        with refused_for("too_many_opened"):
            opened.check()
